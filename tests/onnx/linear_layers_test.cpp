// SPDX-License-Identifier: MIT
// Linear layers that PyTorch's exporters write as a product and a sum: where the bias becomes a
// part of the product, and that it is then rounded once. tests/python/twin_rounding_test.py
// compares with PyTorch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/onnx/export.h"
#include "tests/onnx/composite_support.h"
#include "tests/onnx/torch_files.h"

namespace halfscope {
namespace {

using test::DynamoFile;
using test::FileBuilder;
using test::node_list;
using test::ScriptFile;
using testing::ElementsAre;

/// Adds x w + bias in the order of TorchScript: bias first.
void add_linear(FileBuilder& file, const std::string& x, const std::string& y) {
  file.node("MatMul", {x, "w"}, {y + "_product"}, y + "/product");
  file.node("Add", {"b", y + "_product"}, {y}, y + "/bias");
}

/// x [2, 3, 2] times w [2, 2] plus b [2].
template <class File>
File with_weights() {
  File file;
  file.input("x", {2, 3, 2}).output("y");
  file.floats("w", {2, 2}, {1024, 1, 1025, 1}).floats("b", {2}, {1, 0.5f});
  return file;
}

const Tensor& ones() {
  static const Tensor x{{2, 3, 2}, std::vector<float>(12, 1.0f)};
  return x;
}

std::vector<float> result(const Model& model, const char* plan) {
  const Tensor y =
      test::run(test::start(model, preset_plan(plan).value()), std::vector{ones()}).at(0);
  return {y.data[0], y.data[1]};
}

TEST(LinearLayers, AddTheBiasBeforeTheyRound) {
  ScriptFile file = with_weights<ScriptFile>();
  add_linear(file, "x", "y");
  const Model model = file.import().model;
  EXPECT_THAT(node_list(model), ElementsAre("y/bias MatMul"));
  // fp16 has even numbers only from 2048 on. 2049 alone would become 2048, and 2049 that again.
  EXPECT_THAT(result(model, "float16"), ElementsAre(2050, 2.5f));
  EXPECT_THAT(result(model, "float32"), ElementsAre(2050, 2.5f));
  EXPECT_THAT(result(model, "float64"), ElementsAre(2050, 2.5f));
}

TEST(LinearLayers, AreNotTheNetworksOwnSums) {
  ScriptFile own = with_weights<ScriptFile>();
  own.node("MatMul", {"x", "w"}, {"product"}, "product");
  own.node("Add", {"product", "b"}, {"y"}, "sum");
  const Model model = own.import().model;
  EXPECT_THAT(node_list(model), ElementsAre("product MatMul", "sum Add"));
  EXPECT_THAT(result(model, "float16"), ElementsAre(2048, 2.5f));
  FileBuilder other = with_weights<FileBuilder>();  // of another exporter
  add_linear(other, "x", "y");
  EXPECT_THAT(node_list(other.import().model), ElementsAre("y/product MatMul", "y/bias Add"));
  ScriptFile read = with_weights<ScriptFile>();  // something else reads the product
  add_linear(read, "x", "y");
  read.output("y_product");
  EXPECT_THAT(node_list(read.import().model), ElementsAre("y/product MatMul", "y/bias Add"));
}

TEST(LinearLayers, OfATransposedInputRoundTwice) {
  const auto turned = [](FileBuilder& file, const std::string& from, const std::string& to) {
    const int64_t order[] = {0, 2, 1};
    test::set_ints(file.node("Transpose", {from}, {to}, to), "perm",
                   {order[0], order[1], order[2]});
  };
  ScriptFile view;
  view.input("x", {2, 2, 3}).output("y");
  view.floats("w", {2, 2}, {1024, 1, 1025, 1}).floats("b", {2}, {1, 0.5f});
  turned(view, "x", "x_t");
  view.node("Relu", {"x_t"}, {"positive"}, "relu");
  add_linear(view, "positive", "y");
  EXPECT_THAT(node_list(view.import().model),
              ElementsAre("x_t Transpose", "relu Relu", "y/product MatMul", "y/bias Add"));

  ScriptFile twice = with_weights<ScriptFile>();
  turned(twice, "x", "there");
  twice.node("Relu", {"there"}, {"positive"}, "relu");
  turned(twice, "positive", "back");
  add_linear(twice, "back", "y");
  EXPECT_THAT(node_list(twice.import().model),
              ElementsAre("there Transpose", "relu Relu", "back Transpose", "y/bias MatMul"));

  // One row or column has the same order in memory.
  ScriptFile flat;
  flat.input("x", {2, 2, 1}).output("y");
  flat.floats("w", {2, 2}, {1024, 1, 1025, 1}).floats("b", {2}, {1, 0.5f});
  turned(flat, "x", "x_t");
  add_linear(flat, "x_t", "y");
  EXPECT_THAT(node_list(flat.import().model), ElementsAre("x_t Transpose", "y/bias MatMul"));
}

/// Whether a linear layer of a part of x [2, 4, 2] rounds once.
bool joins_part(const std::vector<int64_t>& starts, const std::vector<int64_t>& ends,
                const std::vector<int64_t>& steps, bool relu = false) {
  ScriptFile file;
  file.input("x", {2, 4, 2}).output("y");
  file.floats("w", {2, 2}, {1, 2, 3, 4}).floats("b", {2}, {1, 2});
  file.integers("starts", {3}, starts).integers("ends", {3}, ends);
  file.integers("axes", {3}, {0, 1, 2}).integers("steps", {3}, steps);
  file.node("Slice", {"x", "starts", "ends", "axes", "steps"}, {"part"}, "slice");
  if (relu) file.node("Relu", {"part"}, {"positive"}, "relu");
  add_linear(file, relu ? "positive" : "part", "y");
  const Model model = file.import().model;
  return model.graph.node(static_cast<NodeId>(model.graph.nodes().size()) - 1).op == "MatMul";
}

TEST(LinearLayers, OfAPartWithGapsRoundTwice) {
  EXPECT_TRUE(joins_part({1, 0, 0}, {2, 4, 2}, {1, 1, 1}));
  EXPECT_TRUE(joins_part({1, 1, 0}, {2, 3, 2}, {1, 1, 1})) << "of one sample";
  EXPECT_FALSE(joins_part({0, 1, 0}, {2, 4, 2}, {1, 1, 1}));
  EXPECT_FALSE(joins_part({1, 0, 0}, {2, 4, 2}, {1, 2, 1})) << "every other one";
  EXPECT_TRUE(joins_part({0, 1, 0}, {2, 4, 2}, {1, 1, 1}, true)) << "the ReLU packs it";
}

/// As dynamo writes F.linear(ARGUMENT, w, b) of a transposed x.
Model called_with(const std::string& argument) {
  DynamoFile file;
  file.input("x", {2, 2, 3}).output("y");
  file.floats("w", {2, 2}, {1, 2, 3, 4}).floats("b", {2}, {1, 2});
  test::set_ints(file.node("Transpose", {"x"}, {"x_t"}, "x_t"), "perm", {0, 2, 1});
  add_linear(file, "x_t", "y");
  for (const int node : {1, 2}) {
    test::add_metadata(*file.graph().mutable_node(node), 9, "pkg.torch.onnx.fx_node",
                       "%linear : [num_users=1] = call_function[target=torch.ops.aten.linear."
                       "default](args = (" +
                           argument + ", %w, %b), kwargs = {})");
  }
  return file.import().model;
}

TEST(LinearLayers, ACopyOfATransposedInputIsInOrder) {
  EXPECT_EQ(called_with("%transpose").graph.nodes().size(), 3u);
  EXPECT_EQ(called_with("%clone").graph.nodes().size(), 2u);
  EXPECT_EQ(called_with("%clone_7").graph.nodes().size(), 2u);
}

TEST(LinearLayers, GoOutAsTheyCameIn) {
  ScriptFile file = with_weights<ScriptFile>();
  add_linear(file, "x", "y");
  const Model model = file.import().model;
  const std::string bytes = onnx_bytes(model, model.initial);
  const Model again =
      parse_onnx({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "again", ".")
          .model;
  ASSERT_EQ(again.graph.nodes().size(), 1u);
  EXPECT_EQ(again.graph.node(0).inputs.size(), 3u);
  EXPECT_EQ(result(again, "float16"), result(model, "float16"));
}

}  // namespace
}  // namespace halfscope
