// SPDX-License-Identifier: MIT
// Sums in the order of a tree that FPRev found have the bits of what they were found in; and no
// order leaves the bound of sums.
#include "core/numeric/sum_orders/summation_value.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "core/numeric/formats/round.h"
#include "core/numeric/sums/sum_bound.h"

namespace halfscope {
namespace {

using Row = std::span<const float>;
using Sum = std::function<float(Row a, Row b)>;

SummationTree tree_of(int n, const Sum& sum, const FprevValues& values = {}) {
  const RecoveredTree found = recover_summation_tree(
      n,
      [&](Row a, Row b, int64_t rows, int64_t length, std::span<float> out) {
        const size_t size = static_cast<size_t>(length);
        for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
          out[r] = sum(a.subspan(r * size, size), b.subspan(r * size, size));
        }
      },
      values);
  EXPECT_EQ(found.problem, "");
  return found.tree;
}

/// Normal numbers of very different magnitude, in a format.
std::vector<float> operands(int n, const FloatFormat& format, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-6, 3);
  std::vector<float> values;
  for (int k = 0; k < n; ++k) {
    const float x = std::ldexp(normal(random), exponent(random));
    values.push_back(round_to_format(x, format).value);
  }
  return values;
}

void expect_same_bits(const TreeSum& tree, const Sum& sum, const FloatFormat& format) {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    const int n = tree.tree().leaves;
    const std::vector<float> a = operands(n, format, random), b = operands(n, format, random);
    ASSERT_EQ(tree(a, b), sum(a, b)) << "round " << round;
  }
}

float ascending(Row a, Row b) {
  float sum = 0.0f;
  for (size_t k = 0; k < a.size(); ++k) sum = std::fma(a[k], b[k], sum);
  return sum;
}
float descending(Row a, Row b) {
  float sum = 0.0f;
  for (size_t k = a.size(); k-- > 0;) sum = std::fma(a[k], b[k], sum);
  return sum;
}

TEST(TreeSum, HasTheBitsOfChains) {
  for (const int n : {1, 2, 3, 40, 257}) {
    SCOPED_TRACE(n);
    const TreeSum up = TreeSum::of(tree_of(n, ascending), std::nullopt).value();
    expect_same_bits(up, ascending, kFp32);
    const TreeSum down = TreeSum::of(tree_of(n, descending), std::nullopt).value();
    EXPECT_TRUE(down.has_pairs());
    expect_same_bits(down.later_first(), descending, kFp32);
  }
}

TEST(TreeSum, HasTheBitsOfPartsThatAreAdded) {
  const Sum parts = [](Row a, Row b) {
    const size_t third = a.size() / 3;
    const float first = ascending(a.first(third), b.first(third));
    const float second = ascending(a.subspan(third, third), b.subspan(third, third));
    return first + (ascending(a.subspan(2 * third), b.subspan(2 * third)) + second);
  };
  expect_same_bits(TreeSum::of(tree_of(100, parts), std::nullopt).value(), parts, kFp32);
}

TEST(TreeSum, HasTheBitsOfTensorCores) {
  for (const char* arch : {"v100", "t4", "a100", "h100"}) {
    const TensorCoreProfile core = tensor_core_profile(arch, kFp16).value();
    for (const TensorCorePlan& plan :
         {TensorCorePlan{}, TensorCorePlan{.slices = 2, .tile = 32},
          TensorCorePlan{.interleave = 2, .tile = 32}, TensorCorePlan{.promote_every = 32}}) {
      for (const int n : {64, 96, 101}) {
        SCOPED_TRACE(std::string(arch) + " " + std::to_string(n));
        const Sum sum = [&](Row a, Row b) { return tensor_core_dot(core, a, b, 0.0f, plan); };
        const SummationTree tree = tree_of(n, sum, {0x1p15f, 1.0f, 0x1p-24f, 1.0f});
        expect_same_bits(TreeSum::of(tree, core).value(), sum, kFp16);
        EXPECT_FALSE(TreeSum::of(tree, std::nullopt).has_value()) << "blocks need a core";
      }
    }
  }
}

TEST(TreeSum, RefusesBlocksThatTheCoreHasNot) {
  const TensorCoreProfile h100 = tensor_core_profile("h100", kFp16).value();
  const TensorCoreProfile a100 = tensor_core_profile("a100", kFp16).value();
  const Sum sum = [&](Row a, Row b) { return tensor_core_dot(h100, a, b, 0.0f); };
  const SummationTree tree = tree_of(64, sum, {0x1p15f, 1.0f, 0x1p-24f, 1.0f});
  EXPECT_FALSE(TreeSum::of(tree, a100).has_value()) << "16 products in blocks of 8";
  // A node with two sums and a summand.
  const SummationTree odd{5, 7, {{}, {}, {}, {}, {}, {0, 1}, {2, 3}, {5, 6, 4}}};
  EXPECT_FALSE(TreeSum::of(odd, h100).has_value());
}

// The bound is valid for tensor cores of every width, for sums that grow and sums that cancel. It
// is tight enough to exclude a sum without a quarter of its terms.
TEST(SumBound, HoldsForEveryTensorCore) {
  struct Case {
    const char* arch;
    FloatFormat format;
  };
  std::mt19937 random(2);
  for (const Case& each :
       {Case{"v100", kFp16}, Case{"t4", kFp16}, Case{"a100", kFp16}, Case{"a100", kBf16},
        Case{"a100", kTf32}, Case{"h100", kFp16}, Case{"ada", kE4m3fn}, Case{"h100-wgmma", kE4m3fn},
        Case{"h100-wgmma", kE5m2}, Case{"h100", kE4m3fn}}) {
    const TensorCoreProfile core = tensor_core_profile(each.arch, each.format).value();
    for (const int n : {1, 7, 64, 1000}) {
      for (const bool positive : {false, true}) {
        double furthest = 0.0;
        for (int round = 0; round < 50; ++round) {
          std::vector<float> a = operands(n, each.format, random);
          std::vector<float> b = operands(n, each.format, random);
          double exact = 0.0, magnitudes = 0.0;
          for (size_t k = 0; k < a.size(); ++k) {
            if (positive) a[k] = std::fabs(a[k]), b[k] = std::fabs(b[k]);
            const double term = static_cast<double>(a[k]) * static_cast<double>(b[k]);
            exact += term;
            magnitudes += std::fabs(term);
          }
          const double error =
              std::fabs(static_cast<double>(tensor_core_dot(core, a, b, 0.0f)) - exact);
          const double bound = sum_error_bound(n, each.format, magnitudes);
          EXPECT_LE(error, bound) << each.arch << " " << n;
          furthest = std::max(furthest, error / bound);
        }
        EXPECT_LT(furthest, 0.9) << "room for what follows the sums";
      }
    }
    if (each.format.bits() > 8) {
      EXPECT_LT(sum_error_bound(1000, each.format, 1.0), 0.001);
    }
  }
}

}  // namespace
}  // namespace halfscope
