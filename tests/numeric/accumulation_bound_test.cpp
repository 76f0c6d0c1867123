// SPDX-License-Identifier: MIT
// The bounds of accumulations: no sum of the reference exceeds its bound, the bounds have the
// numbers of the publications, and sums in fewer bits exceed the bounds of better ones. The exact
// sums are computed in long double (64 bits).
#include "core/numeric/sums/accumulation_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "core/numeric/formats/round.h"
#include "core/numeric/sums/accumulate.h"

namespace halfscope {
namespace {

long double exact_sum(const std::vector<float>& a, const std::vector<float>& b) {
  long double sum = 0.0L;
  for (size_t k = 0; k < a.size(); ++k) {
    sum += static_cast<long double>(a[k]) * static_cast<long double>(b[k]);
  }
  return sum;
}

double distance(const SumSpec& spec, const std::vector<float>& a, const std::vector<float>& b) {
  const float sum = sum_of_products(spec, a, b);
  const double stored = static_cast<double>(round_to_format(sum, spec.write).value);
  return static_cast<double>(std::fabs(static_cast<long double>(stored) - exact_sum(a, b)));
}

/// Operands that are hard to add: of one sign, of both, ascending, with subnormals, cancelling.
enum class Data { positive, mixed, ascending, tiny, cancelling };

std::vector<float> operand(Data data, size_t n, std::mt19937& random, const FloatFormat& format) {
  std::vector<float> x(n);
  for (size_t k = 0; k < n; ++k) {
    const double unit = static_cast<double>(random()) * 0x1p-32;
    double value = 2 * unit - 1;
    if (data == Data::positive) value = 1 + unit;
    if (data == Data::ascending) value = unit * static_cast<double>(k + 1) / static_cast<double>(n);
    if (data == Data::tiny) value *= format.min_normal() * 4;
    x[k] = static_cast<float>(round_to_format(value, format).value);
  }
  if (data == Data::cancelling) {
    for (size_t k = n / 2; k < n; ++k) x[k] = -x[k - n / 2];
  }
  return x;
}

/// The accumulations of the list, and some with options.
std::vector<std::string> ways() {
  std::vector<std::string> names(accumulation_names().begin(), accumulation_names().end());
  for (const char* more :
       {"format:promote=32", "format:rounding=toward-zero", "format:rounding=stochastic",
        "format-mul-add:rounding=up", "fp32:split-k=4", "kahan:split-k=3", "fp64:promote=16",
        "tensor-core:h100,acc=fp16", "tensor-core:h100,promote=64", "tensor-core:v100,acc=fp16"}) {
    names.emplace_back(more);
  }
  return names;
}

TEST(AccumulationBound, NoSumExceedsIt) {
  std::mt19937 random(7);
  int checked = 0;
  double nearest = 0.0;
  for (const std::string& way : ways()) {
    for (const FloatFormat& format : {kFp16, kBf16, kE4m3fn, kE5m2}) {
      for (const size_t n : {size_t{1}, size_t{2}, size_t{7}, size_t{33}, size_t{200}}) {
        for (const Data data :
             {Data::positive, Data::mixed, Data::ascending, Data::tiny, Data::cancelling}) {
          const SumSpec spec{.accumulation = parse_accumulation(way).value(),
                             .write = format.bits() == 8 ? kBf16 : format,
                             .read = format,
                             .key = random()};
          std::vector<float> a = operand(data, n, random, format);
          std::vector<float> b =
              operand(data == Data::cancelling ? Data::positive : data, n, random, format);
          if (data == Data::cancelling) {
            for (size_t k = n / 2; k < n && n > 1; ++k) b[k] = b[k - n / 2];
          }
          const AccumulationBound bound = accumulation_bound(spec, a, b);
          const double error = distance(spec, a, b);
          ASSERT_LE(error, bound.error) << way << " " << format_name(format) << " n " << n
                                        << " data " << static_cast<int>(data);
          if (bound.error < INFINITY) nearest = std::max(nearest, error / bound.error);
          ++checked;
        }
      }
    }
  }
  EXPECT_GT(checked, 2000);
  EXPECT_GT(nearest, 0.5);  // some sums come close: the bounds are not empty
}

TEST(AccumulationBound, ProbableBoundsHold) {
  std::mt19937 random(8);
  for (const char* way :
       {"fp32", "format", "format-mul-add", "pairwise", "format:rounding=stochastic"}) {
    for (int trial = 0; trial < 200; ++trial) {
      const SumSpec spec{.accumulation = parse_accumulation(way).value(),
                         .write = kBf16,
                         .read = kBf16,
                         .key = random()};
      const std::vector<float> a = operand(Data::mixed, 500, random, kBf16);
      const std::vector<float> b = operand(Data::mixed, 500, random, kBf16);
      const AccumulationBound probable = accumulation_bound(spec, a, b, 8.0);
      EXPECT_LE(distance(spec, a, b), probable.error) << way;
      EXPECT_LE(probable.error, accumulation_bound(spec, a, b).error);
    }
  }
}

/// Higham 2002: gamma_n = n u / (1 - n u), and the depth of a tree instead of n.
TEST(AccumulationBound, HasTheNumbersOfTheTheory) {
  const std::vector<float> ones(64, 1.0f);
  const auto share = [&](const char* way, const FloatFormat& write, double lambda = 0.0) {
    const SumSpec spec{
        .accumulation = parse_accumulation(way).value(), .write = write, .read = kFp16};
    return accumulation_bound(spec, ones, ones, lambda).share;
  };
  const auto gamma = [](double r, double u) { return r * u / (1 - r * u); };
  EXPECT_DOUBLE_EQ(share("fp32", kFp16), gamma(64, 0x1p-24));
  EXPECT_DOUBLE_EQ(share("format", kFp16), gamma(64, 0x1p-11));
  EXPECT_DOUBLE_EQ(share("format", kBf16), gamma(64, 0x1p-8));
  EXPECT_DOUBLE_EQ(share("format:rounding=toward-zero", kBf16), gamma(64, 0x1p-7));
  EXPECT_DOUBLE_EQ(share("pairwise", kFp16), gamma(7, 0x1p-24));
  EXPECT_DOUBLE_EQ(share("interleaved16", kFp16), gamma(8, 0x1p-24));
  EXPECT_DOUBLE_EQ(share("fp64", kFp16), gamma(64, 0x1p-53));
  // Hopper: 4 blocks of 16 products, cut at 2^-25, and truncated to fp32.
  const double block = 17 * 0x1p-25;
  EXPECT_DOUBLE_EQ(share("tensor-core:h100", kFp16), gamma(4, block + 0x1p-23 + block * 0x1p-23));
  // Higham and Mary 2019: lambda sqrt(n) u.
  EXPECT_DOUBLE_EQ(share("format", kBf16, 1.0),
                   std::expm1(8 * 0x1p-8 + 64 * 0x1p-16 / (1 - 0x1p-8)));
  const std::vector<float> many(256, 1.0f);
  const SumSpec bf16{.accumulation = Accumulation::format, .write = kBf16, .read = kBf16};
  EXPECT_EQ(accumulation_bound(bf16, many, many).share, INFINITY);
  EXPECT_LT(accumulation_bound(bf16, many, many, 4.0).share, 1.0);
}

TEST(AccumulationBound, SumsInFewerBitsExceedIt) {
  std::mt19937 random(9);
  int beyond = 0;
  for (int trial = 0; trial < 100; ++trial) {
    const std::vector<float> a = operand(Data::positive, 100, random, kFp16);
    const std::vector<float> b = operand(Data::positive, 100, random, kFp16);
    SumSpec spec{.accumulation = Accumulation::fp32, .write = kFp16, .read = kFp16};
    const double bound = accumulation_bound(spec, a, b).error;
    spec.accumulation = Accumulation::format;
    beyond += distance(spec, a, b) > bound ? 1 : 0;
  }
  EXPECT_GT(beyond, 50);
}

}  // namespace
}  // namespace halfscope
