// SPDX-License-Identifier: MIT
// Pools, prefix sums and extremes, as cases for the tests of op_cases.h.
#pragma once

#include <vector>

#include "tests/support/op_harness.h"

namespace halfscope::test {

inline std::vector<OpCase> sum_cases() {
  using Ints = std::vector<int64_t>;
  const auto real = [](const Shape& shape) { return Operand{distinct(shape)}; };
  std::vector<OpCase> list;
  struct Pool {
    Shape x;
    Ints kernel, strides, pads, dilations;
    int64_t ceil;
  };
  for (const Pool& each :
       std::vector<Pool>{{{2, 2, 4, 5}, {2, 2}, {2, 2}, {0, 0, 0, 0}, {1, 1}, 0},
                         {{2, 1, 5, 6}, {2, 2}, {2, 2}, {0, 0, 0, 0}, {1, 1}, 1},
                         {{1, 2, 5, 6}, {3, 2}, {2, 3}, {1, 0, 2, 1}, {1, 1}, 1},
                         {{1, 1, 7, 8}, {2, 3}, {1, 2}, {1, 2, 0, 1}, {2, 2}, 0},
                         {{1, 1, 6, 7}, {2, 2}, {3, 2}, {1, 0, 1, 3}, {2, 3}, 1}}) {
    Attributes attributes{{"kernel_shape", each.kernel},
                          {"strides", each.strides},
                          {"pads", each.pads},
                          {"dilations", each.dilations},
                          {"ceil_mode", each.ceil}};
    list.push_back({"", "MaxPool", {real(each.x)}, attributes});
    for (const int64_t padding : {0, 1}) {
      attributes["count_include_pad"] = padding;
      list.push_back({"", "AveragePool", {real(each.x)}, attributes});
    }
  }
  for (const int64_t reverse : {0, 1}) {
    for (const int64_t exclusive : {0, 1}) {
      const Attributes attributes{
          {"axis", int64_t{reverse - 1}}, {"reverse", reverse}, {"exclusive", exclusive}};
      list.push_back({"", "CumSum", {real({3, 7})}, attributes});
    }
  }
  list.push_back({"", "CumSum", {real({2, 4, 3})}, {{"axis", int64_t{1}}}});
  for (const Ints& axes : {Ints{}, Ints{1}, Ints{0, 2}}) {
    list.push_back(
        {"", "ReduceMin", {real({2, 3, 4})}, {{"axes", axes}, {"keepdims", int64_t{0}}}});
  }
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"}) {
    list.push_back({"", op, {real({2, 3})}, {{"noop_with_empty_axes", int64_t{1}}}});
  }
  for (OpCase& each : list) each.name = "node";
  return list;
}

}  // namespace halfscope::test
