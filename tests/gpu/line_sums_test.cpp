// SPDX-License-Identifier: MIT
// Fused operators and sums whose lines are shared among threads (gpu/bodies/team_sums.h): lengths
// around the numbers of partial sums, threads and terms of a piece, lines side by side in memory,
// and special values. Same bits as the emulator, whatever the order of the threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/gpu/comparisons.h"
#include "tests/support/op_cases.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: operators and operands of these tests

class LineSums : public OnCandidate {
 protected:
  static void run(OpLockstep& program) {
    (*program).run(Entry::grad, true);
    (*program).run(Entry::grad, false);
  }
  static std::vector<Variant> variants() {
    std::vector<Variant> list;
    for (const char* how : {"fp32", "interleaved16"}) {
      for (const FloatFormat& format : {kFp32, kFp16}) {
        list.push_back({format, parse_accumulation(how).value()});
      }
    }
    return list;
  }
  static void compare(const std::string& what, const std::vector<OpCase>& cases,
                      const std::vector<Variant>& in = variants()) {
    Comparisons comparisons(candidate(), what);
    for (const Variant& variant : in) {
      for (const OpCase& op : cases) comparisons.add(op, variant, run);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Gpu, LineSums,
                         testing::Values(Candidate::host, Candidate::shuffled, Candidate::cuda),
                         candidate_name);

constexpr int64_t kSizes[] = {1, 10, 15, 16, 17, 127, 129, 255, 1000, 2048, 2049, 50257};

/// Noise times 4, and in some lines a NaN, infinities, or -infinity alone.
Operand special_lines(const Shape& shape, int64_t size, int64_t stride, uint64_t seed) {
  Operand operand = noisy(shape, seed);
  std::vector<float>& data = operand.real.data;
  for (float& x : data) x *= 4.0f;
  const int64_t lines = element_count(shape) / size;
  const auto element = [&](int64_t line, int64_t k) -> float& {
    return data[static_cast<size_t>(line / stride * size * stride + line % stride + k * stride)];
  };
  for (int64_t line = 0; line < lines; ++line) {
    const int64_t at = (line * 7 + size / 2) % size;
    if (line % 6 == 1) element(line, at) = NAN;
    if (line % 6 == 2) element(line, at) = INFINITY;
    if (line % 6 == 3) element(line, at) = -INFINITY;
    if (line % 6 == 4) {
      for (int64_t k = 0; k < size; ++k) element(line, k) = -INFINITY;
    }
  }
  return operand;
}

TEST_P(LineSums, SoftmaxOfLinesOfAnyLength) {
  std::vector<OpCase> cases;
  for (const int64_t size : kSizes) {
    const int64_t rows = size > 10000 ? 5 : size > 500 ? 7 : 37;
    for (const char* op : {"Softmax", "LogSoftmax"}) {
      const Operand x = special_lines({rows, size}, size, 1, static_cast<uint64_t>(size));
      cases.push_back({std::to_string(size), op, {x}});
      if (op == std::string("Softmax")) {
        cases.push_back({std::to_string(size), op, {x}, {{"zero_masked", int64_t{1}}}});
      }
    }
  }
  compare("lines", cases);
}

TEST_P(LineSums, SoftmaxOfLinesSideBySide) {
  std::vector<OpCase> cases;
  for (const int64_t stride : {2, 3, 5, 8, 40}) {
    for (const int64_t size : {1, 10, 16, 17, 300, 1100}) {
      const Shape shape{3, size, stride};
      const Operand x = special_lines(shape, size, stride, static_cast<uint64_t>(stride + size));
      const std::string name = std::to_string(size) + " x " + std::to_string(stride);
      for (const char* op : {"Softmax", "LogSoftmax"}) {
        cases.push_back({name, op, {x}, {{"axis", int64_t{1}}}});
      }
    }
  }
  cases.push_back({"many", "Softmax", {noisy({1, 20, 4100}, 5)}, {{"axis", int64_t{1}}}});
  compare("side by side", cases);
}

TEST_P(LineSums, LossesOfAnyNumberOfClasses) {
  std::vector<OpCase> cases;
  for (const int64_t classes : kSizes) {
    const int64_t rows = classes > 10000 ? 7 : 40;
    std::vector<int32_t> list;
    for (int64_t row = 0; row < rows; ++row) {
      list.push_back(row % 5 == 3 ? -1 : static_cast<int32_t>(row * 1237 % classes));
    }
    const Operand finite = noisy({rows, classes}, static_cast<uint64_t>(classes));
    const Operand special = special_lines({rows, classes}, classes, 1, 3);
    const Attributes ignoring{{"ignore_index", int64_t{list[1]}}};
    const std::string name = std::to_string(classes);
    for (const Operand& x : {finite, special}) {
      cases.push_back({name, "SoftmaxCrossEntropyLoss", {x, labels(list)}});
      cases.push_back({name, "SoftmaxCrossEntropyLoss", {x, labels(list)}, ignoring});
    }
  }
  compare("classes", cases);
}

// The mean over rows: pieces of 4096, with and without rows that do not count.
TEST_P(LineSums, MeansOfManyLosses) {
  std::vector<OpCase> cases;
  for (const int32_t rows : {1, 15, 16, 17, 255, 4096, 4097, 9000}) {
    for (const int32_t left_out : {0, 3, 7}) {
      std::vector<int32_t> list;
      for (int32_t row = 0; row < rows; ++row) {
        list.push_back(left_out > 0 && (row * row + row / 100) % left_out == 1 ? -1 : row % 3);
      }
      cases.push_back({std::to_string(rows),
                       "SoftmaxCrossEntropyLoss",
                       {noisy({rows, 3}, static_cast<uint64_t>(rows)), labels(list)}});
    }
  }
  cases.push_back({"none", "SoftmaxCrossEntropyLoss", {noisy({3, 4}, 1), labels({-1, -1, -1})}});
  compare("rows", cases);
}

/// Returns the accuracy that the candidate and the emulator compute, as one program.
TEST_P(LineSums, AccuracyFindsTheFirstLargest) {
  for (const int64_t classes : kSizes) {
    constexpr int32_t kRows = 41;
    Operand x = special_lines({kRows, classes}, classes, 1, 11);
    std::vector<int32_t> list;
    for (int32_t row = 0; row < kRows; ++row) {
      float* const first = x.real.data.data() + row * classes;
      float* const best = std::max_element(first, first + classes);
      int64_t label = best - first;
      // Ties, before and after the label; rows without a label.
      if (row % 7 == 5) first[(label + 1) % classes] = *best;
      if (row % 9 == 7) first[(label + classes - 1) % classes] = *best;
      if (row % 5 == 2) label = (label + 1) % classes;
      list.push_back(row % 8 == 7 ? -1 : static_cast<int32_t>(label));
    }
    Executable executable;
    Graph& graph = executable.graph;
    const ValueId values = graph.add_variable("x", x.real.shape, {});
    const ValueId wanted = graph.add_input("labels", {kRows}, ElementType::index);
    graph.add("Accuracy", "share", {values, wanted});
    for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
      executable.entries[static_cast<size_t>(Entry::grad)].push_back(id);
    }
    Lockstep lockstep(executable, candidate());
    lockstep.write(values, std::span<const float>(x.real.data));
    lockstep.write(wanted, std::span<const int32_t>(list));
    lockstep.run(Entry::grad, false);
  }
}

TEST_P(LineSums, ParametersOfNormalizations) {
  struct Affine {
    const char* op;
    Shape x, parameter;
    Attributes attributes;
  };
  const auto groups = [](int64_t value) { return Attributes{{"num_groups", value}}; };
  std::vector<OpCase> cases;
  for (const Affine& each :
       std::vector<Affine>{{"LayerNormalization", {300, 40}, {40}, {}},
                           {"LayerNormalization", {37, 768}, {768}, {}},
                           {"LayerNormalization", {2100, 3}, {3}, {}},
                           {"LayerNormalization", {300, 1}, {1}, {}},
                           {"LayerNormalization", {18, 5000}, {5000}, {}},
                           {"LayerNormalization", {40, 6, 7}, {6, 7}, {{"axis", int64_t{1}}}},
                           {"LayerNormalization", {160, 8}, {8}, {}},
                           {"RMSNormalization", {300, 19}, {19}, {}},
                           {"RMSNormalization", {481, 24}, {24}, {}},
                           {"GroupNormalization", {400, 16, 1}, {16}, groups(4)},
                           {"GroupNormalization", {9, 6, 50}, {6}, groups(3)},
                           {"GroupNormalization", {3, 4, 1100}, {4}, groups(2)},
                           {"InstanceNormalization", {5, 3, 17, 3}, {3}, {}}}) {
    OpCase op{"", each.op, {noisy(each.x, 1), noisy(each.parameter, 2)}, each.attributes};
    if (each.op != std::string("RMSNormalization")) op.operands.push_back(noisy(each.parameter, 3));
    cases.push_back(op);
  }
  compare("parameters", cases);
}

TEST_P(LineSums, SquaredErrors) {
  std::vector<OpCase> cases;
  for (const int64_t n : {1, 17, 4096, 4097, 70001}) {
    cases.push_back({std::to_string(n), "MeanSquaredError", {noisy({n}, 1), noisy({n}, 2)}});
  }
  std::vector<Variant> in = variants();
  in.push_back({kFp16, Accumulation::kahan});
  compare("errors", cases, in);
}

// Pieces of 256 rows, columns in multiples of eight and others.
TEST_P(LineSums, ColumnsInOneChainEach) {
  std::vector<OpCase> cases;
  for (const char* op : {"ReduceSum", "ReduceMean"}) {
    for (const int64_t rows : {128, 255, 256, 257, 515, 1030}) {
      for (const int64_t columns : {8, 24, 30}) {
        const Operand x = noisy({rows, columns}, static_cast<uint64_t>(rows + columns));
        cases.push_back({std::to_string(rows), op, {x}, reduce({0}, 0)});
      }
    }
    cases.push_back({"batch", op, {noisy({9, 50, 16}, 8)}, reduce({0, 1}, 0)});
  }
  compare("columns", cases, {{kFp32, Accumulation::fp32}, {kFp16, Accumulation::fp32}});
}

TEST_P(LineSums, ReductionsUnderInterleaved16) {
  std::vector<OpCase> cases;
  for (const char* op : {"ReduceSum", "ReduceMean"}) {
    cases.push_back({"columns", op, {noisy({300, 70}, 1)}, reduce({0}, 0)});
    cases.push_back({"rows", op, {noisy({70, 300}, 2)}, reduce({1}, 1)});
    cases.push_back({"middle", op, {noisy({5, 1000, 20}, 3)}, reduce({1}, 0)});
    cases.push_back({"outside", op, {noisy({37, 5, 41}, 4)}, reduce({0, 2}, 0)});
    cases.push_back({"all", op, {noisy({50257}, 5)}, reduce({0}, 0)});
    cases.push_back({"many columns", op, {noisy({33, 4100}, 6)}, reduce({0}, 0)});
    cases.push_back({"short", op, {noisy({500, 3}, 7)}, reduce({1}, 0)});
  }
  cases.push_back({"average", "GlobalAveragePool", {noisy({2, 3, 12, 13}, 14)}});
  compare("reductions", cases);
}

}  // namespace
}  // namespace halfscope
