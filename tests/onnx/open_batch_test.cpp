// SPDX-License-Identifier: MIT
// Files that are written for any number of samples; ONNX Runtime runs such in
// tests/oracle/onnx_exchange.py.
#include "core/onnx/open_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/onnx/export.h"
#include "core/policy/policy.h"
#include "tests/onnx/network_support.h"

namespace halfscope {
namespace {

using test::FileBuilder;
using testing::HasSubstr;

/// x [?, SAMPLE...] and y.
FileBuilder open_file(const std::vector<int64_t>& sample) {
  FileBuilder file;
  std::vector<int64_t> shape{-1};
  shape.insert(shape.end(), sample.begin(), sample.end());
  file.input("x", shape).output("y");
  return file;
}

std::string written(const FileBuilder& file, int64_t batch) {
  const Model model = file.import({.batch = batch}).model;
  return onnx_bytes(model, model.initial);
}

OpenedBatch opened(const FileBuilder& file) {
  return open_batch({written(file, 2), 2, written(file, 5), 5}, "rows", "net.onnx");
}

/// For three samples, the opened file must give the same results as the original.
void expect_the_same(const FileBuilder& file, const OpenedBatch& result, const Shape& shape) {
  ASSERT_EQ(result.obstacle, "");
  const OnnxImport again =
      parse_onnx({reinterpret_cast<const uint8_t*>(result.bytes.data()), result.bytes.size()},
                 "again.onnx", ".", {.batch = 3});
  EXPECT_EQ(again.open_batch, "rows");
  std::vector<Tensor> x{{shape, {}}};
  for (int64_t i = 0; i < element_count(shape); ++i)
    x[0].data.push_back(static_cast<float>(i % 7) - 2.5f);
  const Plan plan = preset_plan("float32").value();
  const Tensor expected = test::run(test::start(file.import({.batch = 3}).model, plan), x).at(0);
  const Tensor actual = test::run(test::start(again.model, plan), x).at(0);
  EXPECT_EQ(actual.shape, expected.shape);
  EXPECT_EQ(actual.data, expected.data);
}

TEST(OpenBatch, TheImporterTellsWhetherItIs) {
  FileBuilder file = open_file({3});
  file.node("Relu", {"x"}, {"y"});
  EXPECT_EQ(file.import().open_batch, "batch");
  auto& shape = *file.graph().mutable_input(0)->mutable_type()->mutable_tensor_type();
  shape.mutable_shape()->mutable_dim(0)->set_dim_param("N");
  EXPECT_EQ(file.import().open_batch, "N");
  shape.mutable_shape()->mutable_dim(0)->set_dim_value(1);
  EXPECT_EQ(file.import({.batch = 4}).open_batch, "");
}

TEST(OpenBatch, ReshapesKeepWhatIsLeft) {
  FileBuilder file = open_file({2, 3});
  file.integers("line", {2}, {-1, 3}).integers("back", {3}, {-1, 2, 3});
  file.node("Reshape", {"x", "line"}, {"l"}, "line");
  file.node("Softmax", {"l"}, {"s"}, "softmax");
  file.node("Reshape", {"s", "back"}, {"y"}, "back");
  const OpenedBatch result = opened(file);
  expect_the_same(file, result, {3, 2, 3});
  ::onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(result.bytes));
  EXPECT_EQ(model.graph().node_size(), 3);
  for (const auto* info : {&model.graph().input(0), &model.graph().output(0)})
    EXPECT_EQ(info->type().tensor_type().shape().dim(0).dim_param(), "rows");
}

TEST(OpenBatch, ExpansionsAskForIt) {
  FileBuilder file = open_file({2});
  file.node("Shape", {"x"}, {"s"});
  file.floats("w", {1, 2}, {1, 2}).node("Expand", {"w", "s"}, {"wide"}, "wide");
  file.node("Mul", {"x", "wide"}, {"y"}, "product");
  expect_the_same(file, opened(file), {3, 2});
}

TEST(OpenBatch, RowsThatAreAlikeBecomeOne) {
  FileBuilder file = open_file({2});
  file.node("Shape", {"x"}, {"s"});
  file.node("ConstantOfShape", {"s"}, {"zeros"});
  test::set_int(file.node("Concat", {"x", "zeros"}, {"y"}, "join"), "axis", 1);
  expect_the_same(file, opened(file), {3, 2});
}

TEST(OpenBatch, WhatComputesWithItIsNamed) {
  FileBuilder file = open_file({2});
  file.node("Shape", {"x"}, {"s"});
  test::set_int(file.node("Cast", {"s"}, {"f"}), "to", 1);
  file.node("Mul", {"x", "f"}, {"y"}, "scale");
  const OpenedBatch result = opened(file);
  EXPECT_EQ(result.bytes, "");
  EXPECT_THAT(result.obstacle, HasSubstr("scale (Mul) computes with it"));
}

TEST(OpenBatch, RowsOfTheirOwnAreNamed) {
  FileBuilder file = open_file({2});
  file.integers("zero", {}, {0}).integers("one", {}, {1}).integers("first", {1}, {0});
  file.integers("column", {2}, {-1, 1});
  file.node("Shape", {"x"}, {"s"});
  file.node("Gather", {"s", "zero"}, {"n"});
  file.node("Range", {"zero", "n", "one"}, {"i"});
  test::set_int(file.node("Cast", {"i"}, {"f"}), "to", 1);
  file.node("Reshape", {"f", "column"}, {"c"});
  file.node("Add", {"x", "c"}, {"y"}, "number");
  EXPECT_THAT(opened(file).obstacle,
              HasSubstr("number (Add) has different numbers for each sample"));
}

TEST(OpenBatch, OtherNodesForOtherNumbersAreNamed) {
  FileBuilder file = open_file({2});
  FileBuilder other = open_file({2});
  file.node("Relu", {"x"}, {"y"}, "relu");
  other.node("Tanh", {"x"}, {"y"}, "relu");
  const std::string two = written(file, 2), five = written(other, 5);
  EXPECT_THAT(open_batch({two, 2, five, 5}, "rows", "net.onnx").obstacle,
              HasSubstr("relu (Relu) depends on it"));
}

TEST(OpenBatch, SumsOverSamplesGoBackToAllOfThem) {
  FileBuilder sums = open_file({2});
  sums.node("Shape", {"x"}, {"s"});
  sums.node("ReduceSum", {"x"}, {"t"}, "sum");
  sums.node("Expand", {"t", "s"}, {"y"}, "spread");
  expect_the_same(sums, opened(sums), {3, 2});
}

}  // namespace
}  // namespace halfscope
