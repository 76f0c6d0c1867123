// SPDX-License-Identifier: MIT
// The sums inside fused operators are 16 partial sums in double, added as a balanced tree
// (docs/semantics.md). Expected values are known by hand, or written out with plain loops.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/numeric/elementary/elementary.h"
#include "emulation/backends.h"
#include "tests/support/op_harness.h"

namespace halfscope {
namespace {

using test::Operand;
using test::OpProgram;
using Doubles = std::vector<double>;

double in_order(const Doubles& terms) {
  double sum = 0.0;
  for (const double term : terms) sum += term;
  return sum;
}

/// 16 partial sums; the tree adds those at even and at odd places, and so on.
double dealt_out(const Doubles& terms) {
  std::array<double, 16> sums{};
  for (size_t k = 0; k < terms.size(); ++k) sums[k % 16] += terms[k];
  const std::function<double(size_t, size_t)> tree = [&](size_t first, size_t step) {
    return step == 16 ? sums[first] : tree(first, 2 * step) + tree(first + step, 2 * step);
  };
  return tree(0, 1);
}

/// Reproducible numbers, spread evenly over (-2, 2).
std::vector<float> even_numbers(int64_t count, uint32_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values.push_back(static_cast<float>(seed >> 8) * 0x1p-22f - 2.0f);
  }
  return values;
}

OpProgram program_of(const Backend& backend, const std::string& op,
                     const std::vector<Operand>& operands, const Attributes& attributes,
                     std::optional<Tensor> upstream = std::nullopt) {
  const auto make = [&](Graph& graph, const std::vector<ValueId>& inputs) {
    return graph.add(op, "node", inputs, attributes).front();
  };
  return OpProgram(backend, operands, make, std::move(upstream));
}

/// 2^100, -2^100 and 1 at these places, and 0 elsewhere: their sum is 1 if the large ones meet
/// first, otherwise 0.
struct Meeting {
  size_t large, minus, one;
  float sum;
};
constexpr Meeting kMeetings[] = {
    {0, 16, 1, 1.0f},  // in one partial sum; in ascending order, 1 would be lost
    {0, 8, 1, 1.0f},   // first level of the tree
    {0, 4, 1, 1.0f},   // second level: 2^100 + 0, -2^100 + 0
    {0, 4, 8, 0.0f},   // 2^100 + 1, -2^100; in ascending order, the large ones would meet
    {1, 3, 2, 1.0f},   // third level: odd places among themselves
    {0, 1, 2, 0.0f},   // the last addition
    {0, 1, 3, 0.0f}};

std::vector<float> terms_of(const Meeting& m, size_t count) {
  std::vector<float> terms(count, 0.0f);
  terms[m.large] = 0x1p100f;
  terms[m.minus] = -0x1p100f;
  terms[m.one] = 1.0f;
  return terms;
}

TEST(FusedSums, GradientsOfSoftmaxMeetAsATree) {
  constexpr size_t kSize = 32, kAt = 20;
  for (const Meeting& m : kMeetings) {
    for (const Backend* backend : {&emulation_backend(), &float64_backend()}) {
      const Tensor upstream{{1, kSize}, terms_of(m, kSize)};
      const Operand zeros{Tensor{{1, kSize}, std::vector<float>(kSize, 0.0f)}};
      for (const char* op : {"Softmax", "LogSoftmax"}) {
        OpProgram program = program_of(*backend, op, {zeros}, {}, upstream);
        program.run();
        // Outputs are 1/32; the terms of Softmax are 1/32 of the gradients, exactly.
        const float expected = -m.sum / 32.0f / (op == std::string("Softmax") ? 32.0f : 1.0f);
        EXPECT_NEAR(program.gradient(0).value().data[kAt], expected, 1e-6f)
            << op << ' ' << m.large << ' ' << m.minus << ' ' << m.one;
      }
    }
  }
}

TEST(FusedSums, GradientsOfParametersMeetAsATree) {
  constexpr int64_t kRows = 32;
  for (const Meeting& m : kMeetings) {
    // Rows (1, -1) are already normalized. The second parameter has the gradients of the first
    // times 2.
    Tensor x{{kRows, 2}, {}}, upstream{{kRows, 2}, {}};
    for (const float term : terms_of(m, kRows)) {
      x.data.insert(x.data.end(), {1.0f, -1.0f});
      upstream.data.insert(upstream.data.end(), {term, 2.0f * term});
    }
    const Operand ones{Tensor{{2}, {1.0f, 1.0f}}};
    OpProgram program = program_of(emulation_backend(), "LayerNormalization", {{x}, ones, ones},
                                   {{"epsilon", 0.0}}, upstream);
    program.run();
    EXPECT_EQ(program.gradient(1).value().data, (std::vector<float>{m.sum, -2.0f * m.sum}));
    EXPECT_EQ(program.gradient(2).value().data, (std::vector<float>{m.sum, 2.0f * m.sum}));
  }
}

// Two channels of three elements per sample: a parameter's elements are (sample, pixel).
TEST(FusedSums, GradientsOfGroupedParametersCountAllElements) {
  constexpr int64_t kSamples = 11, kPixels = 3;
  for (const Meeting& m : kMeetings) {
    const std::vector<float> terms = terms_of(m, kSamples * kPixels);
    Tensor x{{kSamples, 2, kPixels}, even_numbers(kSamples * 2 * kPixels, 1)}, upstream = x;
    for (int64_t i = 0; i < kSamples * 2 * kPixels; ++i) {
      const int64_t channel = i / kPixels % 2, k = i / (2 * kPixels) * kPixels + i % kPixels;
      upstream.data[static_cast<size_t>(i)] = channel == 0 ? 0.0f : terms[static_cast<size_t>(k)];
    }
    const Operand ones{Tensor{{2}, {1.0f, 1.0f}}};
    OpProgram program = program_of(emulation_backend(), "GroupNormalization", {{x}, ones, ones},
                                   {{"num_groups", int64_t{1}}}, upstream);
    program.run();
    EXPECT_EQ(program.gradient(2).value().data, (std::vector<float>{0.0f, m.sum}));
  }
}

double exp_of(double x) { return elementary::exp(x); }

TEST(FusedSums, SoftmaxAddsItsPowers) {
  int differ = 0;
  for (const int64_t size : {1, 7, 8, 9, 10, 15, 16, 17, 50, 333}) {
    const std::vector<float> x = even_numbers(size, 7);
    double largest = -INFINITY;
    for (const float value : x) largest = std::fmax(largest, static_cast<double>(value));
    Doubles powers;
    for (const float value : x) powers.push_back(exp_of(static_cast<double>(value) - largest));
    // The loss of the program is one output, in double.
    Tensor first{{1, size}, std::vector<float>(static_cast<size_t>(size), 0.0f)};
    first.data[0] = 1.0f;
    OpProgram program =
        program_of(float64_backend(), "Softmax", {{Tensor{{1, size}, x}}}, {}, first);
    EXPECT_EQ(program.run(), powers[0] / dealt_out(powers)) << size;
    differ += dealt_out(powers) != in_order(powers) ? 1 : 0;
  }
  EXPECT_GT(differ, 1) << "the order shows";
}

TEST(FusedSums, LossAddsTheRowsThatCount) {
  constexpr int64_t kRows = 200, kClasses = 37;
  const std::vector<float> x = even_numbers(kRows * kClasses, 9);
  std::vector<int32_t> labels;
  Doubles losses;
  for (int64_t row = 0; row < kRows; ++row) {
    labels.push_back(row % 7 == 3 ? -1 : static_cast<int32_t>(row * row % kClasses));
    if (labels.back() < 0 || labels.back() == 4) continue;
    const auto element = [&](int64_t j) {
      return static_cast<double>(x[static_cast<size_t>(row * kClasses + j)]);
    };
    double largest = -INFINITY;
    for (int64_t j = 0; j < kClasses; ++j) largest = std::fmax(largest, element(j));
    Doubles powers;
    for (int64_t j = 0; j < kClasses; ++j) powers.push_back(exp_of(element(j) - largest));
    losses.push_back(elementary::log(dealt_out(powers)) - (element(labels.back()) - largest));
  }
  const double count = static_cast<double>(losses.size());
  OpProgram program = program_of(float64_backend(), "SoftmaxCrossEntropyLoss",
                                 {{Tensor{{kRows, kClasses}, x}}, {Tensor{}, labels}},
                                 {{"ignore_index", int64_t{4}}});
  program.run();
  EXPECT_EQ(program.scalar_output(), dealt_out(losses) / count);
  EXPECT_NE(program.scalar_output(), in_order(losses) / count) << "the order shows";
}

TEST(FusedSums, SquaredErrorsAddInChunks) {
  constexpr int64_t kCount = 90000, kChunk = 4096;
  const std::vector<float> a = even_numbers(kCount, 3), b = even_numbers(kCount, 4);
  Doubles chunks, all;
  for (int64_t begin = 0; begin < kCount; begin += kChunk) {
    Doubles squares;
    for (int64_t i = begin; i < std::min(begin + kChunk, kCount); ++i) {
      const double error = static_cast<double>(a[static_cast<size_t>(i)]) -
                           static_cast<double>(b[static_cast<size_t>(i)]);
      squares.push_back(error * error);
    }
    chunks.push_back(dealt_out(squares));
    all.insert(all.end(), squares.begin(), squares.end());
  }
  OpProgram program = program_of(float64_backend(), "MeanSquaredError",
                                 {{Tensor{{kCount}, a}}, {Tensor{{kCount}, b}}}, {});
  program.run();
  EXPECT_EQ(program.scalar_output(), dealt_out(chunks) / static_cast<double>(kCount));
  EXPECT_NE(program.scalar_output(), in_order(all) / static_cast<double>(kCount));
}

}  // namespace
}  // namespace halfscope
