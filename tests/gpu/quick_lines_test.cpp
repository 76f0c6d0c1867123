// SPDX-License-Identifier: MIT
// Results that gpu/bodies/quick_lines.h computes with a bound on their error: what it decides is
// what rounding decides, and lines with a result in doubt get the emulator's bits as well.
#include "gpu/bodies/quick_lines.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "core/numeric/statistics/ulp.h"
#include "gpu/engine/executor.h"
#include "tests/gpu/comparisons.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: operators and operands of these tests
using gpu::Decision;
using gpu::Storage;

Decision decision_of(const FloatFormat& format) {
  const Storage storage = gpu::storage_for(format);
  return {{nullptr, storage, format}};
}
float rounded(double x, const FloatFormat& format) {
  return round_to_format(delivered<float>(x, format), format).value;
}
/// Returns the number halfway between two fp16 neighbours of x.
double midpoint(double x) {
  const float below = rounded(x, kFp16);
  const double ulp = ulp_size(x, kFp16);
  return static_cast<double>(below) + 0.5 * ulp;
}

TEST(QuickLines, DecidesOnlyWhatIsCertain) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> exponent(-60.0, 20.0), part(-1.0, 1.0);
  for (const FloatFormat& format : {kFp16, kBf16, kTf32, kE4m3fn, kE5m2, kFp32}) {
    const Decision decision = decision_of(format);
    int64_t decided = 0;
    for (int i = 0; i < 100'000; ++i) {
      double value = std::copysign(std::exp2(exponent(random)), part(random));
      if (i % 4 == 0 && format == kFp16) value = midpoint(value) * (1.0 + part(random) * 0x1p-36);
      const double error = i % 7 == 0 ? 0.0 : std::fabs(value) * std::exp2(-20.0 - i % 25);
      float result = 0.0f;
      const double share = error / std::fabs(value);
      const bool relative = i % 3 == 0 && share < 0x1p-30;
      if (!(relative ? decision.round_share(value, share, result)
                     : decision.round(value, error, result))) {
        continue;
      }
      ++decided;
      for (const double end : {value - error, value, value + error, value + part(random) * error}) {
        const float expected = rounded(end, format);
        ASSERT_TRUE(same_bits(static_cast<double>(result), static_cast<double>(expected)))
            << exact_text(value) << " within " << exact_text(error) << " in "
            << format_name(format);
      }
    }
    EXPECT_GT(decided, 50'000) << format_name(format);
  }
}

TEST(QuickLines, LeavesInDoubtWhatIsNotANumber) {
  const double inf = INFINITY, nan = std::nan("");
  const std::pair<double, double> cases[] = {{nan, 0.0}, {1.0, nan}, {1.0, inf}, {0.0, 1.0}};
  for (const auto& [value, error] : cases) {
    float result = 0.0f;
    EXPECT_FALSE(decision_of(kFp16).round(value, error, result)) << value << " " << error;
  }
}

class DoubtfulLines : public OnCandidate {
 protected:
  static void compare(const std::vector<OpCase>& cases, const FloatFormat& format) {
    Comparisons comparisons(candidate(), "doubtful");
    for (const OpCase& op : cases) {
      comparisons.add(op, {format, Accumulation::fp32}, [](OpLockstep& program) {
        (*program).run(Entry::grad, true);
        (*program).run(Entry::grad, false);
      });
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Gpu, DoubtfulLines,
                         testing::Values(Candidate::host, Candidate::shuffled, Candidate::cuda),
                         candidate_name);

/// Returns elements whose softmax, in a line of `size` that are zero otherwise, is in doubt in
/// fp32.
std::vector<float> doubtful_elements(int64_t size, size_t count) {
  const double error = gpu::error_of_shares(gpu::LineTeams::of(7, size, 1));
  std::vector<float> found;
  for (int i = 1; i < 100'000'000 && found.size() < count; ++i) {
    const float x = -1.0f - static_cast<float>(i) * 0x1p-22f;
    const double power = std::exp(static_cast<double>(x));
    float result = 0.0f;
    const double share = power / (power + static_cast<double>(size - 1));
    if (!decision_of(kFp32).round_share(share, error, result)) found.push_back(x);
  }
  return found;
}

TEST_P(DoubtfulLines, OfSoftmaxAndTheLossAreExact) {
  constexpr int64_t kSize = 40;
  const std::vector<float> found = doubtful_elements(kSize, 3);
  ASSERT_EQ(found.size(), 3u);
  Operand x = noisy({7, kSize}, 9);
  for (size_t i = 0; i < found.size(); ++i) {
    float* const row = x.real.data.data() + static_cast<int64_t>(2 * i + 1) * kSize;
    std::fill_n(row, kSize, 0.0f);
    row[5 * i + 3] = found[i];
  }
  compare({{"in doubt", "Softmax", {x}},
           {"in doubt", "SoftmaxCrossEntropyLoss", {x, labels({0, 1, 2, 3, 4, -1, 6})}}},
          kFp32);
}

// All products of a value and the rest of its gradient lie between two halves.
TEST(QuickLines, GradientsBetweenTwoHalvesAreExact) {
  constexpr int64_t kLines = 3, kSize = 64;
  std::vector<float> y(kLines * kSize, 1.5f), dy(y.size());
  for (size_t i = 0; i < dy.size(); ++i) dy[i] = (i % 2 == 0 ? 1.0f : -1.0f) * (1.0f + 0x1p-10f);
  std::vector<uint16_t> codes(y.size());
  const gpu::LineTeams teams = gpu::LineTeams::of(kLines, kSize, 1);
  const gpu::Destination to{codes.data(), Storage::fp16, kFp16};
  gpu::SoftmaxLinesGrad<float> body{.dy = dy.data(),
                                    .y = y.data(),
                                    .dx = gpu::Out<float>(nullptr, to, true),
                                    .lines = {kLines, kSize, 1},
                                    .sums = {teams, gpu::SumWay::wide},
                                    .how = {},
                                    .log = false,
                                    .write = kFp16};
  const auto run = [&](const auto& each) {
    std::fill(codes.begin(), codes.end(), uint16_t{0});
    gpu::HostExecutor(gpu::HostOrder::shuffled).blocks(each);
    return codes;
  };
  const std::vector<uint16_t> expected = run(body), got = run(gpu::QuickSoftmaxGrad{body});
  EXPECT_EQ(got, expected);
  EXPECT_EQ(expected[0], gpu::code_of_half(1.5f * (1.0f + 0x1p-10f))) << "a tie, to even";
}

// A loss near zero has bits far below the error of the quick one.
TEST_P(DoubtfulLines, LossesNearZeroAreExact) {
  Operand x = noisy({5, 64}, 4);
  for (int64_t row = 0; row < 5; ++row) x.real.data[static_cast<size_t>(row * 64 + row)] = 33.0f;
  const OpCase op{"sure", "SoftmaxCrossEntropyLoss", {x, labels({0, 1, 2, 3, 4})}};
  compare({op}, kFp16);
  compare({op}, kFp32);
}

// Masked with infinity or with large numbers; everything masked; one element that is sure.
TEST_P(DoubtfulLines, MaskedLinesAreExact) {
  std::vector<OpCase> cases;
  for (const float fill : {-INFINITY, -65504.0f, -200.0f, -30.0f}) {
    for (const int64_t size : {40, 64, 2048, 5000}) {
      Operand x = noisy({9, size}, static_cast<uint64_t>(size));
      for (int64_t row = 0; row < 9; ++row) {
        for (int64_t k = row * size / 8; k < size; ++k) {
          x.real.data[static_cast<size_t>(row * size + k)] = fill;
        }
      }
      cases.push_back({std::to_string(size), "Softmax", {x}, {{"zero_masked", int64_t{1}}}});
      cases.push_back({std::to_string(size), "Softmax", {x}});
    }
  }
  for (const FloatFormat& format : {kFp16, kBf16, kFp32}) compare(cases, format);
}

}  // namespace
}  // namespace halfscope
