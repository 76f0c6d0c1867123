// SPDX-License-Identifier: MIT
// Doubts about files that lost a part of the network on the way: each one would train differently
// from the network without a word.
#include <gmock/gmock.h>

#include "tests/onnx/torch_files.h"

namespace halfscope {
namespace {

using test::add_metadata;
using test::constant;
using test::doubtful;
using test::DynamoFile;
using test::Names;
using test::random_values;
using test::ScriptFile;
using test::trained;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Without scale and bias, a folded normalization leaves no parameter behind that could be missed.
TEST(Doubts, FoldedBatchNormalizationsWithoutParametersAreDoubtful) {
  DynamoFile file;
  file.input("x", {1, 2, 4, 4}).output("y");
  file.floats("c.weight", {3, 2, 1, 1}, random_values(6, 1));
  file.floats("c_bias", {3}, random_values(3, 2));
  file.signature({"c.weight"}, {"bn.running_mean", "bn.running_var"});
  file.node("Conv", {"x", "c.weight", "c_bias"}, {"y"}, "node_Conv_1");
  file.call("bn", "_native_batch_norm_legit_no_training", "",
            {"bn.running_mean", "bn.running_var"});
  EXPECT_THAT(doubtful(file.import()), Not(Contains("batch normalization")));
  add_metadata(*file.graph().mutable_node(0), 9, "pkg.onnxscript.rewriter.rule_name",
               "FuseBatchNorm");
  EXPECT_THAT(doubtful(file.import()), Contains("batch normalization"));
}

// The user's list says what requires a gradient, which dynamo does not.
TEST(Doubts, ParametersOutsideOfTheUsersListDoNotTrain) {
  DynamoFile file;
  file.input("x", {2, 3}).output("y");
  file.floats("a.weight", {3, 3}, random_values(9, 1));
  file.floats("b.weight", {3, 3}, random_values(9, 2));
  file.signature({"a.weight", "b.weight"});
  file.node("Gemm", {"x", "a.weight"}, {"h"}, "node_linear");
  file.call("a", "linear", "", {"a.weight"});
  file.node("Gemm", {"h", "b.weight"}, {"y"}, "node_linear_1");
  file.call("b", "linear", "_1", {"b.weight"});
  EXPECT_THAT(trained(file.import()), ElementsAre("a.weight", "b.weight"));
  ::onnx::StringStringEntryProto& list = *file.file().add_metadata_props();
  list.set_key("halfscope.parameters");
  list.set_value("b.weight");
  EXPECT_THAT(trained(file.import()), ElementsAre("b.weight"));
  EXPECT_THAT(constant(file.import()), ElementsAre("a.weight"));
}

// A weight that was normalized before it was stored looks like any other, but for its rows.
TEST(Doubts, NormalizedWeightsAreDoubtful) {
  for (const bool centred : {false, true}) {
    std::vector<float> w = random_values(12, 1);
    for (size_t row = 0; row < 12 && centred; row += 4) {
      const float mean = (w[row] + w[row + 1] + w[row + 2] + w[row + 3]) / 4.0f;
      for (size_t i = row; i < row + 4; ++i) w[i] -= mean;
    }
    DynamoFile file;
    file.input("x", {1, 1, 4, 4}).output("y");
    file.floats("view_1", {3, 1, 2, 2}, w);
    file.signature({"c.weight"});
    file.folded_from("view_1", "['c.weight', 'getitem', 'val_3', 'view']");
    file.node("Conv", {"x", "view_1"}, {"y"}, "node_conv2d");
    file.call("c", "conv2d", "", {"c.weight"});
    EXPECT_EQ(doubtful(file.import()), centred ? Names{"c.weight"} : Names{});
  }
}

// Rows that start equal are one row only if some call repeated it: Mamba's rates start equal.
TEST(Doubts, EqualRowsAreOneRowOnlyIfACallRepeatedThem) {
  for (const bool expanded : {false, true}) {
    DynamoFile file;
    file.input("x", {3, 2}).output("y").floats("unsqueeze_3", {3, 2}, {1, 2, 1, 2, 1, 2});
    file.signature({"m.rates"});
    file.folded_from("unsqueeze_3", expanded ? "['m.rates', 'expand']" : "['m.rates', 'val_1']");
    file.node("Mul", {"x", "unsqueeze_3"}, {"y"}, "node_mul");
    file.call("m", "mul", "", {"m.rates"});
    const OnnxImport import = file.import();
    ASSERT_THAT(trained(import), ElementsAre("m.rates"));
    EXPECT_EQ(element_count(import.parameters[0].shape), expanded ? 2 : 6);
  }
}

/// A file with one call whose arguments are written like this.
Names doubts_of_call(const std::string& what, const std::string& arguments,
                     const std::string& trace = "") {
  DynamoFile file;
  file.input("x", {2, 3}).output("y");
  file.floats("m.weight", {3, 3}, random_values(9, 1));
  file.signature({"m.weight"});
  ::onnx::NodeProto& node = file.node("MatMul", {"x", "m.weight"}, {"y"}, "node_call");
  add_metadata(node, 9, "pkg.torch.onnx.name_scopes", "['', 'm', '" + what + "']");
  add_metadata(node, 9, "pkg.torch.onnx.fx_node",
               "%" + what + " : [num_users=1] = call_function[target=torch.ops.aten." + what +
                   ".default](args = (" + arguments + "), kwargs = {})");
  if (!trace.empty()) add_metadata(node, 9, "pkg.torch.onnx.stack_trace", trace);
  const OnnxImport import = file.import();
  Names reasons;
  for (const ImportDoubt& doubt : import.doubts) reasons.push_back(doubt.name + ": " + doubt.why);
  return reasons;
}

// Exporters leave arguments out that ONNX's operators lack, without a word.
TEST(Doubts, LostArgumentsAreDoubtful) {
  const std::string scores = "%x, %p_m_weight, None, 1, -100, ";
  EXPECT_THAT(doubts_of_call("cross_entropy_loss", scores + "0.0"), IsEmpty());
  EXPECT_THAT(doubts_of_call("cross_entropy_loss", "%x, %p_m_weight"), IsEmpty());
  EXPECT_THAT(doubts_of_call("cross_entropy_loss", scores + "0.1"),
              ElementsAre(HasSubstr("m: the network calls cross_entropy_loss with "
                                    "label_smoothing=0.1")));
  EXPECT_THAT(doubts_of_call("avg_pool2d", "%p_m_weight, [2, 2], [], [0, 0], False, True, 3"),
              ElementsAre(HasSubstr("divisor_override=3")));
  EXPECT_THAT(doubts_of_call("avg_pool2d", "%p_m_weight, [2, 2], [], [0, 0], False, True"),
              IsEmpty());
}

TEST(Doubts, ParametersInARegionWithoutGradientsAreDoubtful) {
  const std::string arguments = "%x, %p_m_weight";
  EXPECT_THAT(doubts_of_call("linear", arguments, "File \"/net.py\", line 5, in forward"),
              IsEmpty());
  EXPECT_THAT(doubts_of_call("linear", arguments, "File \"<eval_with_key>.9\", line 5, in forward"),
              ElementsAre(HasSubstr("m.weight: it is read under torch.no_grad()")));
}

// A linear layer of PyTorch multiplies by the transpose of its weight, which exporters compute.
TEST(Doubts, TransposedWeightsAreKnown) {
  const auto turned = [](const OnnxImport& import) {
    Names names;
    for (const ImportParameter& each : import.parameters) {
      if (each.turned) names.push_back(each.name);
    }
    return names;
  };
  DynamoFile file;
  file.input("x", {2, 3}).output("y");
  file.floats("val_1", {3, 3}, random_values(9, 1)).floats("val_2", {3, 3}, random_values(9, 2));
  file.signature({"a.weight", "b.w"});
  file.folded_from("val_1", "['a.weight']");
  file.folded_from("val_2", "['b.w']");
  file.node("MatMul", {"x", "val_1"}, {"h"}, "node_linear");
  file.call("a", "linear", "", {"a.weight"});
  file.node("MatMul", {"h", "val_2"}, {"y"}, "node_matmul");
  file.call("b", "matmul", "", {"b.w"});
  EXPECT_THAT(turned(file.import()), ElementsAre("a.weight"));
  ScriptFile script;
  script.input("x", {2, 3}).output("y");
  script.floats("onnx::MatMul_5", {3, 3}, random_values(9, 1));
  script.floats("b.w", {3, 3}, random_values(9, 2));
  script.node("MatMul", {"x", "onnx::MatMul_5"}, {"h"}, "/a/MatMul");
  script.node("MatMul", {"h", "b.w"}, {"y"}, "/b/MatMul");
  EXPECT_THAT(turned(script.import()), ElementsAre("a.weight"));
}

// A fixed matrix or filter is read where weights are.
TEST(Doubts, MatricesAndFiltersWithOtherNamesMayBeBuffers) {
  ScriptFile file;
  file.input("x", {2, 3}).output("y");
  file.floats("B", {3, 3}, random_values(9, 1)).floats("l.weight", {3, 3}, random_values(9, 2));
  file.node("MatMul", {"x", "B"}, {"h"}, "/MatMul");
  file.node("MatMul", {"h", "l.weight"}, {"y"}, "/l/MatMul");
  EXPECT_THAT(doubtful(file.import()), ElementsAre("B"));
}

// x + (round(x) - x).detach()
TEST(Doubts, SumsThatAddAndSubtractAValueAreDoubtful) {
  for (const bool estimates : {false, true}) {
    ScriptFile file;
    file.input("x", {2, 3}).output("y").floats("l.weight", {3, 3}, random_values(9, 2));
    file.node("MatMul", {"x", "l.weight"}, {"h"}, "/l/MatMul");
    file.node("Round", {"h"}, {"r"}, "/q/Round");
    file.node("Sub", {"r", estimates ? "h" : "x"}, {"d"}, "/q/Sub");
    file.node("Add", {"h", "d"}, {"y"}, "/q/Add");
    EXPECT_EQ(doubtful(file.import()), estimates ? Names{"q"} : Names{});
  }
}

// Beside normalizations that train, one in eval() was frozen on purpose.
TEST(Doubts, NormalizationsInEvalMayBeFrozen) {
  ScriptFile file;
  file.input("x", {4, 2}).output("y");
  for (const char* name : {"f.weight", "n.weight"}) file.floats(name, {2}, random_values(2, 1));
  for (const char* name : {"f.bias", "n.bias"}) file.floats(name, {2}, random_values(2, 2));
  for (const char* name : {"f.mean", "f.var", "n.mean", "n.var"}) file.floats(name, {2}, {1, 2});
  file.node("BatchNormalization", {"x", "f.weight", "f.bias", "f.mean", "f.var"}, {"h"},
            "/f/BatchNormalization");
  ::onnx::NodeProto& other =
      file.node("BatchNormalization", {"h", "n.weight", "n.bias", "n.mean", "n.var"},
                {"y", "m", "v"}, "/n/BatchNormalization");
  test::set_int(other, "training_mode", 1);
  EXPECT_THAT(doubtful(file.import()), ElementsAre("f.weight", "f.bias"));
  ::onnx::StringStringEntryProto& list = *file.file().add_metadata_props();
  list.set_key("halfscope.parameters");
  list.set_value("n.weight\nn.bias");
  EXPECT_THAT(doubtful(file.import()), IsEmpty());
}

// PyTorch updates the statistics of a shared normalization in each call.
TEST(Doubts, SharedNormalizationsAreNoted) {
  ScriptFile file;
  file.input("x", {4, 2}).output("y").floats("n.weight", {2}, random_values(2, 1));
  for (const char* name : {"n.bias", "n.mean", "n.var"}) file.floats(name, {2}, {1, 2});
  file.node("BatchNormalization", {"x", "n.weight", "n.bias", "n.mean", "n.var"}, {"h"},
            "/n/BatchNormalization");
  file.node("BatchNormalization", {"h", "n.weight", "n.bias", "n.mean", "n.var"}, {"y"},
            "/n_1/BatchNormalization");
  EXPECT_THAT(file.import().notes, ElementsAre(HasSubstr("n is called 2 times; each call keeps")));
}

TEST(Doubts, WeightsOfClassesDoNotTrain) {
  ScriptFile file;
  file.input("x", {2, 3}).input("t", {2}, 7).output("loss");
  file.floats("l.weight", {3, 3}, random_values(9, 2)).floats("loss.weight", {3}, {1, 2, 3});
  file.node("MatMul", {"x", "l.weight"}, {"h"}, "/l/MatMul");
  file.node("SoftmaxCrossEntropyLoss", {"h", "t", "loss.weight"}, {"loss"}, "/loss/Loss");
  EXPECT_THAT(trained(file.import()), ElementsAre("l.weight"));
}

}  // namespace
}  // namespace halfscope
