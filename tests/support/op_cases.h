// SPDX-License-Identifier: MIT
// Operators with operands and attributes that tests run: their gradients against finite
// differences, backends against each other. Operands are multiples of 2^-3, all different.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/function_cases.h"
#include "tests/support/op_harness.h"
#include "tests/support/product_cases.h"
#include "tests/support/structure_cases.h"
#include "tests/support/sum_cases.h"

namespace halfscope::test {

using Ints = std::vector<int64_t>;

inline Operand real(const Shape& shape, float unit = 0.125f) { return {distinct(shape, unit)}; }

/// Between 0.5 and 2.5: for Log, Sqrt and divisors.
inline Operand positive(const Shape& shape) {
  Tensor tensor = distinct(shape);
  for (float& x : tensor.data) x = 1.5f + std::remainder(x, 2.0f);
  return {tensor};
}

inline Operand labels(std::vector<int32_t> list) { return {Tensor{}, std::move(list)}; }

inline Attributes conv(const Ints& strides, const Ints& pads, const Ints& dilations) {
  return {{"strides", strides}, {"pads", pads}, {"dilations", dilations}};
}

inline Attributes pool(const Ints& kernel, const Ints& strides, const Ints& pads) {
  return {{"kernel_shape", kernel}, {"strides", strides}, {"pads", pads}};
}

inline Attributes reduce(const Ints& axes, int64_t keep) {
  return {{"axes", axes}, {"keepdims", keep}};
}

/// Returns every operator with a gradient, in the variants that its rules distinguish.
inline std::vector<OpCase> gradient_cases() {
  std::vector<OpCase> list;
  const std::vector<std::pair<Shape, Shape>> broadcasts{
      {{2, 3}, {2, 3}}, {{2, 3}, {3}},       {{2, 3}, {2, 1}},
      {{3}, {2, 3}},    {{}, {2, 2}},        {{2, 2}, {}},
      {{2, 1}, {1, 3}}, {{4, 1, 3}, {2, 1}}, {{2, 1, 3, 1}, {2, 2, 3, 2}},
      {{1}, {}},        {{1, 1}, {3}}};
  for (const auto& [a, b] : broadcasts) {
    for (const char* op : {"Add", "Sub", "Mul"}) list.push_back({"", op, {real(a), real(b)}});
    list.push_back({"", "Div", {real(a), positive(b)}});
  }
  for (const Shape& shape : {Shape{2, 3}, Shape{}, Shape{1, 2, 2, 2}}) {
    for (const char* op : {"Neg", "Exp", "Relu", "Identity"})
      list.push_back({"", op, {real(shape)}});
    for (const char* op : {"Log", "Sqrt"}) list.push_back({"", op, {positive(shape)}});
    list.push_back({"", "Dropout", {real(shape)}, {{"ratio", 0.4}, {"training_mode", int64_t{1}}}});
  }
  for (int64_t ta : {0, 1}) {
    for (int64_t tb : {0, 1}) {
      for (int bias : {0, 1}) {
        OpCase gemm{"",
                    "Gemm",
                    {real(ta ? Shape{4, 3} : Shape{3, 4}), real(tb ? Shape{5, 4} : Shape{4, 5})},
                    {{"transA", ta}, {"transB", tb}}};
        if (bias) gemm.operands.push_back(real({5}));
        list.push_back(gemm);
      }
    }
  }
  list.push_back({"", "Gemm", {real({1, 1}), real({1, 1}), real({1})}});

  struct ConvCase {
    Shape x, w;
    Attributes attributes;
  };
  for (const ConvCase& each :
       std::vector<ConvCase>{{{2, 2, 4, 5}, {3, 2, 3, 3}, {}},
                             {{1, 2, 5, 5}, {2, 2, 3, 3}, conv({1, 1}, {1, 1, 1, 1}, {1, 1})},
                             {{1, 1, 6, 7}, {2, 1, 3, 2}, conv({2, 3}, {0, 0, 0, 0}, {1, 1})},
                             {{1, 2, 6, 7}, {2, 2, 2, 3}, conv({1, 1}, {0, 0, 0, 0}, {2, 3})},
                             {{1, 1, 4, 5}, {1, 1, 3, 3}, conv({1, 1}, {0, 1, 2, 0}, {1, 1})},
                             {{2, 1, 7, 6}, {2, 1, 3, 2}, conv({2, 1}, {1, 0, 2, 3}, {2, 1})},
                             {{1, 3, 3, 3}, {2, 3, 1, 1}, conv({2, 2}, {0, 0, 0, 0}, {1, 1})}}) {
    for (int bias : {0, 1}) {
      OpCase op{"", "Conv", {real(each.x), real(each.w)}, each.attributes};
      if (bias) op.operands.push_back(real({each.w[0]}));
      list.push_back(op);
    }
  }
  for (const int64_t group : {1, 2}) {
    OpCase op{"",
              "ConvGradInput",
              {real({2, 4, 3, 2}), real({4, 2, 3, 2})},
              conv({2, 1}, {1, 0, 0, 1}, {1, 2})};
    op.attributes["shape"] = Ints{2, 2 * group, 6, 3};
    op.attributes["group"] = group;
    list.push_back(op);
  }
  list.push_back({"", "MaxPool", {real({2, 2, 4, 6})}, pool({2, 2}, {2, 2}, {0, 0, 0, 0})});
  list.push_back({"", "MaxPool", {real({1, 2, 5, 7})}, pool({3, 3}, {2, 2}, {0, 0, 0, 0})});
  list.push_back({"", "MaxPool", {real({1, 1, 6, 6})}, pool({2, 3}, {1, 2}, {1, 0, 0, 2})});
  list.push_back({"", "MaxPool", {real({1, 1, 7, 7})}, pool({2, 2}, {3, 3}, {0, 0, 0, 0})});
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax"}) {
    for (const Ints& axes : {Ints{}, Ints{0}, Ints{-1}, Ints{0, 2}, Ints{1, 2}}) {
      for (int64_t keep : {0, 1}) list.push_back({"", op, {real({2, 3, 4})}, reduce(axes, keep)});
    }
    list.push_back({"", op, {real({2, 3, 2, 2})}, reduce({0, 2, 3}, 0)});
  }
  for (const Shape& shape : {Shape{2, 3, 3, 2}, Shape{4, 2}, Shape{3, 1, 2}}) {
    const Shape channels{shape[1]};
    for (const int64_t training : {1, 0}) {
      list.push_back(
          {"",
           "BatchNormalization",
           {real(shape), real(channels), real(channels), real(channels), positive(channels)},
           {{"training_mode", training}, {"epsilon", 0.125}}});
    }
  }
  list.push_back({"", "GlobalAveragePool", {real({2, 3, 4, 5})}});
  list.push_back({"", "GlobalAveragePool", {real({2, 3, 5})}});
  const auto slice = [](const Ints& starts, const Ints& ends, const Ints& axes, const Ints& steps) {
    return Attributes{{"starts", starts}, {"ends", ends}, {"axes", axes}, {"steps", steps}};
  };
  list.push_back({"", "Slice", {real({2, 3, 5, 4})}, slice({0, 0}, {5, 4}, {2, 3}, {2, 2})});
  list.push_back({"", "Slice", {real({4, 5})}, slice({-3}, {99}, {-1}, {1})});
  list.push_back({"", "Slice", {real({4, 5})}, slice({1, 0}, {2, 5}, {0, 1}, {1, 3})});
  list.push_back({"", "Pad", {real({2, 3, 2})}, {{"pads", Ints{0, 1, 0, 2, 0, 1}}}});
  for (int64_t axis : {0, 1, 2, 3, -1})
    list.push_back({"", "Flatten", {real({2, 3, 2})}, {{"axis", axis}}});
  for (const Ints& shape : {Ints{6, 2}, Ints{3, -1}, Ints{0, -1}, Ints{2, 0, 2}, Ints{12}}) {
    list.push_back({"", "Reshape", {real({2, 3, 2})}, {{"shape", shape}}});
  }
  for (const Ints& shape : {Ints{2, 3, 4}, Ints{5, 2, 3, 4}}) {
    list.push_back({"", "Expand", {real({3, 1})}, {{"shape", shape}}});
  }
  list.push_back({"", "Expand", {real({})}, {{"shape", Ints{2, 2}}}});
  list.push_back(
      {"", "GatherElements", {real({4, 3}), labels({2, 0, -1, 1})}, {{"labels", int64_t{1}}}});
  list.push_back({"", "SoftmaxCrossEntropyLoss", {real({4, 3}), labels({2, 0, 1, 1})}});
  list.push_back({"", "SoftmaxCrossEntropyLoss", {real({3, 5}), labels({4, -1, 0})}});
  list.push_back({"",
                  "SoftmaxCrossEntropyLoss",
                  {real({4, 3}), labels({2, 0, 1, 1})},
                  {{"ignore_index", int64_t{1}}}});
  list.push_back({"", "SoftmaxCrossEntropyLoss", {real({1, 1}), labels({0})}});
  add_function_cases(list);
  add_normalization_cases(list);
  for (OpCase& each : list) each.name = "node";
  for (const OpCase& each : structure_cases()) list.push_back(each);
  for (const OpCase& each : product_cases()) list.push_back(each);
  for (const OpCase& each : sum_cases()) list.push_back(each);
  return list;
}

inline std::string describe(const OpCase& op) {
  std::string text = op.op;
  for (const Operand& operand : op.operands)
    text += operand.labels ? " indices" : " " + to_string(operand.real.shape);
  for (const auto& [name, value] : op.attributes) {
    text += " " + name;
    if (const auto* list = std::get_if<Ints>(&value)) text += to_string(*list);
    if (const auto* number = std::get_if<int64_t>(&value)) text += "=" + std::to_string(*number);
    if (const auto* number = std::get_if<double>(&value)) text += "=" + std::to_string(*number);
  }
  return text;
}

}  // namespace halfscope::test
