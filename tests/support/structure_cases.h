// SPDX-License-Identifier: MIT
// Operators that move, pick and choose, as cases for the tests of op_cases.h.
#pragma once

#include <vector>

#include "tests/support/op_harness.h"

namespace halfscope::test {

inline Operand indices(const Shape& shape, std::vector<int32_t> list) {
  return {Tensor{}, std::move(list), shape};
}

/// With gradients.
inline std::vector<OpCase> structure_cases() {
  using Ints = std::vector<int64_t>;
  const auto real = [](const Shape& shape) { return Operand{distinct(shape)}; };
  std::vector<OpCase> list;
  list.push_back({"", "Transpose", {real({2, 3})}});
  list.push_back({"", "Transpose", {real({2, 3, 4})}, {{"perm", Ints{1, 2, 0}}}});
  list.push_back({"", "Transpose", {real({2, 1, 3, 2})}, {{"perm", Ints{0, 2, 1, 3}}}});
  list.push_back({"", "Transpose", {real({})}});
  list.push_back({"", "Concat", {real({2, 3})}, {{"axis", int64_t{0}}}});
  list.push_back(
      {"", "Concat", {real({2, 1, 2}), real({2, 3, 2}), real({2, 2, 2})}, {{"axis", int64_t{1}}}});
  list.push_back(
      {"", "Concat", {real({2, 2}), real({2, 0}), real({2, 3})}, {{"axis", int64_t{-1}}}});
  list.push_back({"", "Split", {real({5, 3})}, {{"split", Ints{2, 1, 2}}}});
  list.push_back(
      {"", "Split", {real({2, 4, 2})}, {{"axis", int64_t{-2}}, {"split", Ints{1, 3, 0}}}});
  list.push_back({"", "Gather", {real({4, 3}), indices({5}, {2, -1, 0, 2, 2})}});
  list.push_back(
      {"", "Gather", {real({2, 3, 2}), indices({2, 2}, {1, -3, 1, 2})}, {{"axis", int64_t{1}}}});
  list.push_back({"", "Gather", {real({2, 3}), indices({}, {-1})}, {{"axis", int64_t{-1}}}});
  list.push_back({"", "GatherElements", {real({3, 3}), indices({2, 3}, {0, -1, 2, 2, 2, 2})}});
  list.push_back({"scattered rows",
                  "GatherGrad",
                  {real({4, 2}), indices({4}, {0, -1, 2, 0})},
                  {{"shape", Shape{3, 2}}}});
  list.push_back({"scattered elements",
                  "GatherElementsGrad",
                  {real({2, 3}), indices({2, 3}, {0, -1, 2, 2, 2, 2})},
                  {{"shape", Shape{3, 3}}}});
  list.push_back({"",
                  "GatherElements",
                  {real({2, 3, 2}), indices({2, 4, 1}, {0, 2, 0, -1, 1, 1, 1, 0})},
                  {{"axis", int64_t{1}}}});
  list.push_back({"", "Where", {indices({2, 3}, {1, 0, 0, 7, -1, 0}), real({2, 3}), real({2, 3})}});
  list.push_back({"", "Where", {indices({3}, {1, 0, 1}), real({2, 1}), real({})}});
  list.push_back({"", "Where", {indices({2, 1}, {0, 1}), real({3}), real({2, 3})}});
  const auto slice = [](const Ints& starts, const Ints& ends, const Ints& axes, const Ints& steps) {
    return Attributes{{"starts", starts}, {"ends", ends}, {"axes", axes}, {"steps", steps}};
  };
  list.push_back({"", "Slice", {real({4, 5})}, slice({-1, 3}, {INT64_MIN, 0}, {0, 1}, {-1, -2})});
  list.push_back({"", "Slice", {real({2, 5})}, slice({99}, {-4}, {1}, {-3})});
  list.push_back({"", "Pad", {real({3, 4})}, {{"pads", Ints{1, -1, -2, 2}}, {"value", 0.3}}});
  list.push_back({"", "Pad", {real({2, 4})}, {{"pads", Ints{0, -2, 0, -1}}}});
  for (OpCase& each : list) each.name = "node";
  return list;
}

/// Operators that have indices for operands, and indices or the same numbers as reals for results.
inline std::vector<OpCase> index_operand_cases() {
  using Ints = std::vector<int64_t>;
  const Operand six = indices({2, 3}, {4, -1, 0, 7, INT32_MAX, INT32_MIN});
  const Operand twelve = indices({2, 3, 2}, {5, 3, 8, -2, 8, 1, 0, 0, -7, 9, 2, 4});
  std::vector<OpCase> list;
  for (const char* op :
       {"Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "BitwiseAnd", "BitwiseOr", "BitwiseXor"}) {
    list.push_back({"", op, {six, indices({2, 3}, {3, 5, -2, -3, 2, -1})}});
    list.push_back({"", op, {indices({2, 1}, {-7, 8}), indices({3}, {2, 0, -3})}});
  }
  for (const char* op : {"Neg", "Abs", "Identity", "Flatten", "IndexToReal"})
    list.push_back({"", op, {six}});
  list.push_back({"", "RealToIndex", {Operand{Tensor{{6}, {1.9f, -1.9f, 0, 4e9f, -4e9f, 7}}}}});
  for (const char* op : {"ReduceSum", "ReduceMax", "ReduceMin"}) {
    list.push_back({"", op, {twelve}, {{"axes", Ints{0, 2}}, {"keepdims", int64_t{0}}}});
    list.push_back({"", op, {twelve}, {{"axes", Ints{1}}}});
    list.push_back({"", op, {six}, {{"keepdims", int64_t{0}}}});
  }
  for (const int64_t way : {0, 1, 2, 3}) {
    list.push_back({"",
                    "CumSum",
                    {twelve},
                    {{"axis", int64_t{1}}, {"exclusive", way & 1}, {"reverse", way >> 1}}});
  }
  list.push_back({"", "ArgMax", {twelve}, {{"axis", int64_t{1}}}});
  list.push_back(
      {"", "ArgMax", {twelve}, {{"axis", int64_t{1}}, {"select_last_index", int64_t{1}}}});
  list.push_back({"", "ArgSort", {twelve}, {{"axis", int64_t{0}}}});
  list.push_back({"", "ArgSort", {indices({2, 4}, {3, 1, 3, -2, 0, 5, 5, 0})}});
  list.push_back({"", "Transpose", {twelve}, {{"perm", Ints{2, 0, 1}}}});
  list.push_back({"", "Reshape", {twelve}, {{"shape", Ints{4, 3}}}});
  list.push_back({"", "Expand", {indices({2, 1}, {3, -4})}, {{"shape", Ints{2, 2, 3}}}});
  list.push_back({"", "Concat", {six, indices({2, 1}, {8, 9})}, {{"axis", int64_t{1}}}});
  list.push_back({"", "Split", {twelve}, {{"axis", int64_t{1}}, {"split", Ints{2, 1}}}});
  list.push_back({"",
                  "Slice",
                  {twelve},
                  {{"starts", Ints{-1, 0}},
                   {"ends", Ints{-4, 1}},
                   {"axes", Ints{1, 2}},
                   {"steps", Ints{-1, 1}}}});
  list.push_back({"", "Pad", {six}, {{"pads", Ints{1, -1, 0, 2}}, {"value", -3.0}}});
  list.push_back({"", "Gather", {six, indices({4}, {1, 0, -1, 1})}});
  list.push_back({"", "GatherElements", {six, indices({1, 3}, {1, 0, -1})}});
  list.push_back({"", "Where", {indices({3}, {1, 0, 5}), six, indices({2, 1}, {-9, 6})}});
  for (OpCase& each : list) each.name = "node";
  return list;
}

/// Operators whose results are indices.
inline std::vector<OpCase> index_result_cases() {
  const auto near = [](const Shape& shape, float shift) {  // with equal elements
    Operand operand{distinct(shape, 0.5f)};
    for (float& x : operand.real.data) x = static_cast<float>(static_cast<int>(x + shift));
    return operand;
  };
  std::vector<OpCase> list;
  for (const char* op : {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"}) {
    list.push_back({"node", op, {near({2, 3}, 0.0f), near({2, 3}, 0.5f)}});
    list.push_back({"node", op, {near({2, 1, 3}, 0.0f), near({4, 1}, 0.0f)}});
    list.push_back({"node", op, {indices({2, 2}, {1, 2, 3, -4}), indices({2}, {1, -4})}});
  }
  for (const char* op : {"And", "Or"}) {
    list.push_back({"node", op, {indices({2, 2}, {0, 1, 0, -2}), indices({2}, {0, 5})}});
  }
  list.push_back({"node", "Not", {indices({2, 2}, {0, 1, 0, -2})}});
  for (OpCase& each : index_operand_cases()) list.push_back(std::move(each));
  for (const int64_t last : {0, 1}) {
    for (const int64_t axis : {0, 1, -1}) {
      list.push_back({"node",
                      "ArgMax",
                      {near({3, 4, 2}, 0.0f)},
                      {{"axis", axis}, {"keepdims", last}, {"select_last_index", last}}});
      list.push_back(
          {"node", "ArgSort", {near({3, 4, 2}, 0.0f)}, {{"axis", axis}, {"count", last + 1}}});
    }
  }
  return list;
}

}  // namespace halfscope::test
