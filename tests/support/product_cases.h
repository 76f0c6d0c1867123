// SPDX-License-Identifier: MIT
// Products that broadcast, come in batches or are scaled, as cases for the tests of op_cases.h.
#pragma once

#include <vector>

#include "tests/support/op_harness.h"

namespace halfscope::test {

inline std::vector<OpCase> product_cases() {
  using Ints = std::vector<int64_t>;
  const auto real = [](const Shape& shape) { return Operand{distinct(shape)}; };
  std::vector<OpCase> list;
  const std::vector<std::pair<Shape, Shape>> operands{
      {{2, 3}, {3, 4}},       {{2, 3, 4}, {4, 2}},     {{2, 2, 3}, {2, 3, 2}},
      {{3}, {3}},             {{3}, {3, 2}},           {{2, 3}, {3}},
      {{2, 2, 3}, {3}},       {{3}, {2, 3, 2}},        {{2, 1, 2, 3}, {3, 3, 2}},
      {{2, 3}, {2, 1, 3, 2}}, {{2, 1, 1, 3}, {1, 3, 2}}};
  for (const auto& [a, b] : operands) list.push_back({"", "MatMul", {real(a), real(b)}});
  // With a bias.
  for (const Shape& a : {Shape{3}, Shape{2, 3}, Shape{2, 2, 3}})
    list.push_back({"", "MatMul", {real(a), real({3, 4}), real({4})}});
  list.push_back(
      {"", "MatMul", {real({2, 1, 3}), real({1, 3}), real({1})}, {{"transB", int64_t{1}}}});
  for (const int64_t ta : {0, 1}) {
    for (const int64_t tb : {0, 1}) {
      if (ta + tb == 0) continue;
      for (const Shape& batch : {Shape{}, Shape{2}}) {
        Shape a = ta != 0 ? Shape{3, 2} : Shape{2, 3}, b = tb != 0 ? Shape{4, 3} : Shape{3, 4};
        a.insert(a.begin(), batch.begin(), batch.end());
        list.push_back({"", "MatMul", {real(a), real(b)}, {{"transA", ta}, {"transB", tb}}});
      }
    }
  }
  for (const Shape& c : {Shape{2, 4}, Shape{2, 1}, Shape{1, 4}, Shape{4}, Shape{1}, Shape{}}) {
    for (const double factor : {1.0, 0.75}) {
      list.push_back({"",
                      "Gemm",
                      {real({3, 2}), real({3, 4}), real(c)},
                      {{"transA", int64_t{1}}, {"alpha", factor}, {"beta", 2.0 * factor - 1.0}}});
    }
  }
  list.push_back({"", "Gemm", {real({2, 3}), real({3, 2})}, {{"alpha", -1.5}}});
  struct Grouped {
    Shape x, w;
    int64_t group;
    Ints strides, pads, dilations;
  };
  for (const Grouped& each :
       std::vector<Grouped>{{{2, 4, 4, 3}, {6, 2, 2, 2}, 2, {1, 1}, {0, 0, 0, 0}, {1, 1}},
                            {{2, 3, 5, 4}, {3, 1, 3, 3}, 3, {1, 1}, {1, 1, 1, 1}, {1, 1}},
                            {{1, 2, 6, 5}, {4, 1, 3, 2}, 2, {2, 2}, {1, 0, 0, 1}, {1, 1}},
                            {{1, 2, 5, 7}, {2, 1, 2, 3}, 2, {1, 2}, {0, 2, 1, 2}, {2, 2}}}) {
    for (const int bias : {0, 1}) {
      OpCase op{"",
                "Conv",
                {real(each.x), real(each.w)},
                {{"group", each.group},
                 {"strides", each.strides},
                 {"pads", each.pads},
                 {"dilations", each.dilations}}};
      if (bias != 0) op.operands.push_back(real({each.w[0]}));
      list.push_back(op);
    }
  }
  for (OpCase& each : list) each.name = "node";
  return list;
}

}  // namespace halfscope::test
