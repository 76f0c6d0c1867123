// SPDX-License-Identifier: MIT
// Cases of functions of one element, softmax, normalizations and losses; part of gradient_cases().
// No operand is on a corner, or within 2^-4 of one.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tests/support/op_harness.h"

namespace halfscope::test {

/// distinct(shape, unit) + offset.
inline Operand moved(const Shape& shape, float unit, float offset) {
  Tensor tensor = distinct(shape, unit);
  for (float& x : tensor.data) x += offset;
  return {tensor};
}

/// Operators that let no gradient through: they are flat where they have a derivative.
inline const std::set<std::string>& flat_operators() {
  static const std::set<std::string> names{"Ceil", "Floor", "Round", "Sign"};
  return names;
}

inline void add_function_cases(std::vector<OpCase>& list) {
  const Operand wide = moved({2, 5}, 0.6875f, 0.0f);  // up to 3.4375 on both sides
  for (const char* op : {"Abs", "Ceil", "Cos", "Elu", "Erf", "Floor", "Gelu", "HardSigmoid",
                         "HardSwish", "LeakyRelu", "LogSigmoid", "Mish", "Round", "Sigmoid", "Sign",
                         "Sin", "Softplus", "Swish", "Tanh"}) {
    list.push_back({"", op, {wide}});
    list.push_back({"", op, {moved({}, 0.6875f, 0.0f)}});
  }
  for (const char* op : {"Asinh", "Atan"}) list.push_back({"", op, {wide}});
  for (const char* op : {"Acos", "Asin", "Atanh"}) {
    list.push_back({"", op, {moved({2, 5}, 0.046875f, 0.0f)}});
  }
  list.push_back({"", "Acosh", {moved({2, 5}, 0.6875f, 5.0f)}});
  list.push_back({"", "Reciprocal", {moved({2, 3}, 0.125f, 1.5f)}});
  list.push_back({"", "Elu", {wide}, {{"alpha", 0.5}}});
  list.push_back({"", "LeakyRelu", {wide}, {{"alpha", 0.25}}});
  list.push_back({"", "HardSigmoid", {wide}, {{"alpha", 0.25}, {"beta", 0.375}}});
  list.push_back({"", "Swish", {wide}, {{"alpha", 1.5}}});
  list.push_back({"", "Gelu", {wide}, {{"tanh", int64_t{1}}}});
  list.push_back({"", "Clip", {wide}, {{"min", -1.0}, {"max", 1.7}}});
  list.push_back({"", "Clip", {wide}, {{"min", -1.0}}});
  list.push_back({"", "Clip", {wide}, {{"max", 0.9}}});
  list.push_back({"", "Clip", {wide}});
  const std::vector<std::pair<Shape, Shape>> shapes{
      {{2, 3}, {2, 3}}, {{2, 3}, {}}, {{}, {3}}, {{2, 1}, {1, 3}}, {{3}, {2, 2, 1}}};
  for (const auto& [a, b] : shapes) {
    for (const char* op : {"Max", "Min"}) {
      list.push_back({"", op, {moved(a, 0.125f, 0.0f), moved(b, 0.125f, 0.0625f)}});
    }
    list.push_back({"", "Pow", {moved(a, 0.125f, 2.0f), moved(b, 0.25f, 0.5f)}});
  }
  for (const Shape& slope : {Shape{2, 5}, Shape{5}, Shape{2, 1}, Shape{}}) {
    list.push_back({"", "PRelu", {wide, moved(slope, 0.125f, 0.0f)}});
  }
}

inline void add_normalization_cases(std::vector<OpCase>& list) {
  const auto real = [](const Shape& shape) { return moved(shape, 0.125f, 0.0f); };
  for (const Shape& shape : {Shape{3, 4}, Shape{}, Shape{5}}) {
    list.push_back({"", "MeanSquaredError", {real(shape), moved(shape, 0.25f, 0.0625f)}});
  }
  for (const char* op : {"Softmax", "LogSoftmax"}) {
    for (int64_t axis : {0, 1, -1}) list.push_back({"", op, {real({2, 3, 4})}, {{"axis", axis}}});
    list.push_back({"", op, {real({3, 5})}});
    list.push_back({"", op, {real({1, 1})}});
  }
  // One line of -inf alone, and one with some.
  Operand masked = real({3, 4});
  for (size_t i : {1, 3, 8, 9, 10, 11}) masked.real.data[i] = -HUGE_VALF;
  list.push_back({"", "Softmax", {masked}, {{"zero_masked", int64_t{1}}}});
  struct Affine {
    const char* op;
    Shape x, parameter;
    Attributes attributes;
  };
  const auto axis = [](int64_t value) { return Attributes{{"axis", value}}; };
  const auto groups = [](int64_t value) { return Attributes{{"num_groups", value}}; };
  for (Affine each : std::vector<Affine>{{"LayerNormalization", {3, 5}, {5}, {}},
                                         {"LayerNormalization", {2, 3, 4}, {3, 4}, axis(1)},
                                         {"LayerNormalization", {2, 3}, {2, 3}, axis(-2)},
                                         {"RMSNormalization", {3, 5}, {5}, {}},
                                         {"RMSNormalization", {2, 3, 2}, {3, 2}, axis(1)},
                                         {"GroupNormalization", {2, 4, 3}, {4}, groups(2)},
                                         {"GroupNormalization", {2, 3, 2, 2}, {3}, groups(1)},
                                         {"GroupNormalization", {3, 4}, {4}, groups(2)},
                                         {"InstanceNormalization", {2, 3, 4}, {3}, {}},
                                         {"InstanceNormalization", {2, 2, 2, 3}, {2}, {}}}) {
    each.attributes["epsilon"] = 0.125;
    OpCase op{"", each.op, {real(each.x), real(each.parameter)}, each.attributes};
    const std::string name = each.op;
    if (name == "LayerNormalization" || name == "RMSNormalization") list.push_back(op);
    if (name == "RMSNormalization") continue;
    op.operands.push_back(moved(each.parameter, 0.25f, 0.0f));
    list.push_back(op);
  }
}

}  // namespace halfscope::test
