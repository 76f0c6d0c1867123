// SPDX-License-Identifier: MIT
// Recurrent networks from both of PyTorch's exporters train as PyTorch does
// (tests/oracle/onnx_recurrent_training.py), and how they are unrolled and named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "core/data/zip.h"
#include "core/models/loss.h"
#include "tests/onnx/network_support.h"
#include "tests/train/small_training.h"

namespace halfscope {
namespace {

using test::FileBuilder;
using testing::HasSubstr;

constexpr int64_t kBatch = 4;

/// One network of the archive.
struct Training {
  std::vector<uint8_t> model, trained;
  std::map<std::string, DoubleTensor> arrays;  ///< x, labels, losses, norms
};

const std::map<std::string, Training>& trainings() {
  static const auto all = [] {
    std::map<std::string, Training> result;
    const std::string file = HALFSCOPE_SOURCE_DIR "/tests/onnx/files/recurrent_training.zip";
    const ZipReader archive(read_file(file), file);
    for (const ZipMember& member : archive.members()) {
      std::vector<uint8_t> bytes(member.size);
      archive.open(member)->read(bytes);
      const std::string name = member.name.substr(0, member.name.find('.'));
      const std::string what = member.name.substr(name.size() + 1);
      Training& training = result[name];
      if (what == "onnx") {
        training.model = std::move(bytes);
      } else if (what == "trained.onnx") {
        training.trained = std::move(bytes);
      } else {
        MemorySource source(bytes);
        training.arrays[what.substr(0, what.find('.'))] =
            read_npy_double_array(source, member.name);
      }
    }
    return result;
  }();
  return all;
}

std::vector<std::string> trained_names() {
  std::vector<std::string> result;
  for (const auto& [name, training] : trainings()) result.push_back(name);
  return result;
}

class RecurrentTraining : public testing::TestWithParam<std::string> {
 protected:
  const Training& given() const { return trainings().at(GetParam()); }
  Model model() const {
    return parse_onnx(given().model, GetParam(), ".", {.batch = kBatch}).model;
  }
  test::Result train(const std::string& plan) const {
    Dataset data{.name = "oracle", .sample_shape = {}, .train = {}, .test = {}};
    for (const char* name : {"x", "labels"})
      data.train.arrays.push_back(sample_array(name, given().arrays.at(name), "oracle"));
    TrainConfig config = test::config("unused", plan, "none");
    config.build = [this](int64_t) {
      Model made = model();
      add_loss(made, parse_loss("cross-entropy"));
      return made;
    };
    config.optimizer = parse_optimizer("sgd:lr=0.5");
    config.batch = kBatch;
    config.steps = given().arrays.at("losses").data.size();
    config.shuffle = false;
    return test::train(config, data);
  }
};

TEST_P(RecurrentTraining, TakesPyTorchsSteps) {
  const test::Result result = train("float64");
  const std::vector<double>&losses = given().arrays.at("losses").data,
        &norms = given().arrays.at("norms").data;
  ASSERT_EQ(result.seen.rows.size(), losses.size());
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(result.seen.rows[i].loss, losses[i], 1e-9 * losses[i]) << "step " << i;
    EXPECT_NEAR(result.seen.rows[i].grad_norm, norms[i], 1e-8 * norms[i]) << "step " << i;
  }
  const Model expected = parse_onnx(given().trained, GetParam(), ".", {.batch = kBatch}).model;
  ASSERT_EQ(result.weights.size(), expected.initial.size());
  for (const auto& [path, tensor] : expected.initial) {
    SCOPED_TRACE(path);
    test::expect_close(result.weights.at(path), tensor, 2e-7);
  }
}

TEST_P(RecurrentTraining, InFp32ItIsNearThat) {
  const test::Result result = train("float32");
  const double last = given().arrays.at("losses").data.back();
  EXPECT_NEAR(result.seen.rows.back().loss, last, 1e-4 * last);
}

INSTANTIATE_TEST_SUITE_P(Oracle, RecurrentTraining, testing::ValuesIn(trained_names()),
                         [](const auto& info) { return info.param; });

/// An LSTM with weights of this many directions; steps are the first dimension of x.
FileBuilder lstm(const std::vector<int64_t>& x, int64_t directions) {
  FileBuilder file;
  file.input("x", x).output("y");
  const auto numbers = [](int64_t count) {
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i % 7 - 3) / 8.0f);
    return values;
  };
  file.floats("w", {directions, 8, x[2]}, numbers(directions * 8 * x[2]));
  file.floats("r", {directions, 8, 2}, numbers(directions * 16));
  file.floats("b", {directions, 16}, numbers(directions * 16));
  ::onnx::NodeProto& node = file.node("LSTM", {"x", "w", "r", "b"}, {"y"}, "rnn");
  test::set_int(node, "hidden_size", 2);
  if (directions == 2) {
    ::onnx::AttributeProto& attribute = *node.add_attribute();
    attribute.set_name("direction");
    attribute.set_type(::onnx::AttributeProto::STRING);
    attribute.set_s("bidirectional");
  }
  return file;
}

TEST(RecurrentLayers, KeepOneVariablePerWeightOfTheFile) {
  const Model model = lstm({3, 2, 4}, 2).import().model;
  std::map<std::string, std::string> names;
  for (const Variable& variable : model.graph.variables()) names[variable.alias] = variable.path;
  EXPECT_EQ(names, (std::map<std::string, std::string>{
                       {"w", "rnn.weight_ih"}, {"r", "rnn.weight_hh"}, {"b", "rnn.bias"}}));
}

TEST(RecurrentLayers, MultiplyTheWholeSequenceOnce) {
  const Model model = lstm({5, 2, 4}, 1).import().model;
  std::set<std::string> products, paths;
  for (const Node& node : model.graph.nodes()) {
    paths.insert(node.path);
    if (node.op == "MatMul") products.insert(node.path);
  }
  // The first step starts from zeros.
  EXPECT_EQ(products,
            (std::set<std::string>{"rnn/input", "rnn/step_1/product", "rnn/step_2/product",
                                   "rnn/step_3/product", "rnn/step_4/product"}));
  for (const char* path : {"rnn", "rnn/step_3/forget", "rnn/step_4/hidden"})
    EXPECT_TRUE(paths.contains(path)) << path;
  EXPECT_FALSE(paths.contains("rnn/step_0/forget"));
}

std::string refusal_of(const FileBuilder& file) {
  try {
    file.import();
  } catch (const Error& error) {
    return std::string(error.what()) + " | " + error.hint();
  }
  return "none";
}

TEST(RecurrentLayers, RefuseWhatDoesNotFit) {
  EXPECT_THAT(
      refusal_of(lstm({5000, 1, 4}, 1)),
      HasSubstr("rnn (LSTM): its sequence of 5000 steps is too long to unroll | use at most "
                "4166 steps"));
  FileBuilder wrong = lstm({3, 2, 4}, 1);
  wrong.floats("r2", {1, 8, 3}, std::vector<float>(24, 0.5f));
  wrong.graph().mutable_node(0)->set_input(2, "r2");
  EXPECT_THAT(refusal_of(wrong), HasSubstr("rnn (LSTM): hidden_size is not the last dimension"));
  FileBuilder lengths = lstm({3, 2, 4}, 1);
  lengths.integers("lens", {2}, {3, 4});
  lengths.graph().mutable_node(0)->add_input("lens");
  EXPECT_THAT(refusal_of(lengths), HasSubstr("rnn (LSTM): a sequence of 4 steps of 3"));
  FileBuilder state = lstm({3, 2, 4}, 1);
  state.floats("h", {1, 1, 2}, {0.5f, 0.25f});
  state.graph().mutable_node(0)->add_input("");
  state.graph().mutable_node(0)->add_input("h");
  EXPECT_THAT(refusal_of(state), HasSubstr("initial_h must be [1, 2, 2], not [1, 1, 2]"));
  FileBuilder activation = lstm({3, 2, 4}, 1);
  ::onnx::AttributeProto& names = *activation.graph().mutable_node(0)->add_attribute();
  names.set_name("activations");
  names.set_type(::onnx::AttributeProto::STRINGS);
  for (const char* name : {"Sigmoid", "Affine", "Tanh"}) names.add_strings(name);
  EXPECT_THAT(refusal_of(activation), HasSubstr("the activation 'affine' takes no factors"));
  names.set_strings(1, "Gelu");
  EXPECT_THAT(refusal_of(activation), HasSubstr("the activation 'gelu' is not supported"));
}

TEST(Scattering, RefusesWhatHasNoOneAnswer) {
  FileBuilder twice;
  twice.input("x", {3, 2}).input("u", {2, 2}).output("y");
  twice.integers("i", {2, 1}, {1, -2});
  twice.node("ScatterND", {"x", "i", "u"}, {"y"}, "put");
  EXPECT_THAT(refusal_of(twice), HasSubstr("put (ScatterND): it writes the same element twice"));
  FileBuilder computed;
  computed.input("x", {3, 2}, 7).input("u", {2, 2}, 7).input("i", {2, 1}, 7).output("y");
  computed.node("ScatterND", {"x", "i", "u"}, {"y"}, "put");
  EXPECT_THAT(refusal_of(computed),
              HasSubstr("put (ScatterND): its indices are only known at run time"));
  FileBuilder beyond;
  beyond.input("x", {3, 2}).output("y");
  beyond.integers("i", {1, 1}, {3});
  beyond.node("GatherND", {"x", "i"}, {"y"}, "pick");
  EXPECT_THAT(refusal_of(beyond), HasSubstr("pick (GatherND): index 3 is out of range for size 3"));
}

TEST(Scattering, ComputedRowsMustAllDiffer) {
  FileBuilder file;
  file.input("x", {3, 2}).input("i", {3, 1}, 7).input("u", {3, 2}).output("y");
  file.node("ScatterND", {"x", "i", "u"}, {"y"}, "put");
  const auto network = test::start(file.import().model, preset_plan("float32").value());
  const auto with = [&](std::vector<float> rows) {
    const std::vector<Tensor> inputs{
        {{3, 2}, {0, 0, 0, 0, 0, 0}}, {{3, 1}, std::move(rows)}, {{3, 2}, {1, 2, 3, 4, 5, 6}}};
    return test::run(network, inputs)[0].data;
  };
  EXPECT_THAT(with({2, -3, 1}), testing::ElementsAre(3, 4, 5, 6, 1, 2));
  for (const std::vector<float>& rows :
       {std::vector<float>{0, 0, 1}, {1, 2, 2}, {0, 1, 3}, {-4, 1, 2}}) {
    EXPECT_THROW(with(rows), Error) << rows[0] << " " << rows[1] << " " << rows[2];
  }
}

TEST(Selecting, RefusesComputedIndicesThatAreOutOfRange) {
  for (const char* op : {"GatherND", "ScatterND"}) {
    FileBuilder file;
    file.input("x", {3, 2}).input("i", {1, 2}, 7).output("y");
    if (std::string(op) == "GatherND") {
      file.node(op, {"x", "i"}, {"y"}, "pick");
    } else {
      file.input("u", {1});
      ::onnx::AttributeProto& how = *file.node(op, {"x", "i", "u"}, {"y"}, "pick").add_attribute();
      how.set_name("reduction");
      how.set_type(::onnx::AttributeProto::STRING);
      how.set_s("add");
    }
    file.file().mutable_opset_import(0)->set_version(18);
    const auto network = test::start(file.import().model, preset_plan("float32").value());
    const Tensor x{{3, 2}, {1, 2, 3, 4, 5, 6}}, u{{1}, {8}};
    const auto with = [&](float row, float column) {
      const std::vector<Tensor> inputs{x, {{1, 2}, {row, column}}, u};
      return test::run(network, inputs)[0].data;
    };
    EXPECT_EQ(with(-3, 1)[op == std::string("GatherND") ? 0 : 1],
              op == std::string("GatherND") ? 2.0f : 10.0f);
    for (const auto& [row, column] : {std::pair(0, 2), std::pair(0, -3), std::pair(3, 0),
                                      std::pair(-4, 1), std::pair(1, 100)}) {
      EXPECT_THROW(with(static_cast<float>(row), static_cast<float>(column)), Error)
          << op << " " << row << " " << column;
    }
  }
}

/// A loop that adds w to x; the number of turns is a constant, or an input with `computed`.
FileBuilder loop(int64_t turns, bool computed) {
  FileBuilder file;
  file.input("x", {2, 3}).output("y");
  file.floats("w", {3}, {0.5f, -1.0f, 2.0f});
  if (computed) {
    file.input("n", {1}, 7);
  } else {
    file.integers("n", {}, {turns});
  }
  FileBuilder body;
  body.input("i", {}, 7).input("going", {}, 9).input("x_in", {2, 3});
  body.output("go").output("x_out");
  body.node("Identity", {"going"}, {"go"});
  body.node("Add", {"x_in", "w"}, {"x_out"}, "add");
  ::onnx::AttributeProto& attribute =
      *file.node("Loop", {"n", "", "x"}, {"y"}, "loop").add_attribute();
  attribute.set_name("body");
  attribute.set_type(::onnx::AttributeProto::GRAPH);
  *attribute.mutable_g() = body.graph();
  return file;
}

TEST(Loops, AreRepeatedWithTheSameWeights) {
  const Model model = loop(3, false).import().model;
  std::set<std::string> paths;
  for (const Node& node : model.graph.nodes()) paths.insert(node.path);
  EXPECT_EQ(paths,
            (std::set<std::string>{"loop/turn_0/add", "loop/turn_1/add", "loop/turn_2/add"}));
  EXPECT_EQ(model.graph.variables().size(), 1u);
}

TEST(Loops, DoNotTieWeightsToThemselves) {
  const OnnxImport import = loop(3, false).import();
  ASSERT_EQ(import.parameters.size(), 1u);
  EXPECT_EQ(import.parameters[0].readers, std::vector<std::string>{"loop/turn_0/add"});
}

/// Reverses 0 to 15 in four rows of four.
FileBuilder reversed(const std::vector<int64_t>& lengths, int64_t batch_axis, int64_t time_axis) {
  FileBuilder file;
  file.input("x", {4, 4}).output("y").integers("n", {4}, lengths);
  ::onnx::NodeProto& node = file.node("ReverseSequence", {"x", "n"}, {"y"}, "reverse");
  test::set_int(node, "batch_axis", batch_axis);
  test::set_int(node, "time_axis", time_axis);
  return file;
}

std::vector<float> reversed_numbers(const std::vector<int64_t>& lengths, int64_t batch_axis,
                                    const std::vector<float>& x) {
  const Model model = reversed(lengths, batch_axis, 1 - batch_axis).import().model;
  const std::vector<Tensor> inputs{{{4, 4}, x}};
  return test::run(test::start(model, preset_plan("float32").value()), inputs)[0].data;
}

// The two examples of the standard (ReverseSequence, opset 10), and sequences of one length.
TEST(ReverseSequence, TurnsTheFirstElementsAround) {
  EXPECT_EQ(
      reversed_numbers({4, 3, 2, 1}, 1, {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15}),
      (std::vector<float>{3, 6, 9, 12, 2, 5, 8, 13, 1, 4, 10, 14, 0, 7, 11, 15}));
  const std::vector<float> rows{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  EXPECT_EQ(reversed_numbers({1, 2, 3, 4}, 0, rows),
            (std::vector<float>{0, 1, 2, 3, 5, 4, 6, 7, 10, 9, 8, 11, 15, 14, 13, 12}));
  EXPECT_EQ(reversed_numbers({3, 3, 3, 3}, 0, rows),
            (std::vector<float>{2, 1, 0, 3, 6, 5, 4, 7, 10, 9, 8, 11, 14, 13, 12, 15}));
}

TEST(ReverseSequence, RefusesWrongLengthsAndAxes) {
  EXPECT_THAT(refusal_of(reversed({1, 2, 3, 5}, 0, 1)), HasSubstr("reverse (ReverseSequence)"));
  EXPECT_THAT(refusal_of(reversed({1, 2, 3, -1}, 0, 1)), HasSubstr("a sequence length"));
  EXPECT_THAT(refusal_of(reversed({1, 2, 3, 4}, 1, 1)), HasSubstr("batch_axis and time_axis"));
}

TEST(Loops, RefuseNumbersOfTurnsThatAreNotKnownOrTooLarge) {
  EXPECT_THAT(refusal_of(loop(0, true)),
              HasSubstr("loop (Loop): its number of turns is only known at run time"));
  EXPECT_THAT(refusal_of(loop(1'000'000, false)),
              HasSubstr("loop (Loop): 1000000 turns are too many to unroll"));
  FileBuilder list;
  list.input("x", {2, 3}).output("y");
  list.node("SequenceConstruct", {"x", "x"}, {"both"}, "pair");
  list.node("Neg", {"both"}, {"y"}, "minus");
  EXPECT_THAT(refusal_of(list), HasSubstr("minus (Neg): its input is a list of tensors"));
}

}  // namespace
}  // namespace halfscope
