// SPDX-License-Identifier: MIT
// ExpectWithinAccumulationBound passes for kernels that add as they say, and fails for faults:
// fewer bits in the accumulator, a lost term, a wrong element, overflow, operands of another
// format.
#include <gtest/gtest-spi.h>

#include <cmath>
#include <random>
#include <vector>

#include "core/numeric/sums/accumulate.h"
#include "core/testing/accumulation_bound.h"
#include "core/testing/formats.h"

namespace halfscope::testing {
namespace {

constexpr ProductShape kShape{.m = 3, .n = 4, .k = 96};

std::vector<float> random_values(int64_t count, uint32_t seed, const FloatFormat& format,
                                 double low = -1.0, double high = 1.0) {
  std::mt19937 random(seed);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const double unit = static_cast<double>(random()) * 0x1p-32;
    values.push_back(static_cast<float>(round_to_format(low + (high - low) * unit, format).value));
  }
  return values;
}

/// A kernel: sums in `Sum`, in an order of its own, and rounds the result to `write`.
template <class Sum>
std::vector<float> product(const std::vector<float>& a, const std::vector<float>& b,
                           const ProductShape& shape, const FloatFormat& write) {
  std::vector<float> out;
  for (int64_t i = 0; i < shape.m; ++i) {
    for (int64_t j = 0; j < shape.n; ++j) {
      Sum sum{};
      for (int64_t p = shape.k - 1; p >= 0; --p) {  // descending
        sum += Sum(a[static_cast<size_t>(i * shape.k + p)]) *
               Sum(b[static_cast<size_t>(p * shape.n + j)]);
      }
      out.push_back(static_cast<float>(round_to_format(static_cast<double>(sum), write).value));
    }
  }
  return out;
}

TEST(AccumulationBound, HonestKernelsPass) {
  const std::vector<float> a = random_values(kShape.m * kShape.k, 1, kFp16);
  const std::vector<float> b = random_values(kShape.k * kShape.n, 2, kFp16);
  ExpectWithinAccumulationBound(product<float>(a, b, kShape, kFp16), a, b, kShape, fp16, "fp32");
  ExpectWithinAccumulationBound(product<double>(a, b, kShape, kFp16), a, b, kShape, fp16, "fp64");
  ExpectWithinAccumulationBound(product<half>(a, b, kShape, kFp16), a, b, kShape, fp16,
                                "format-mul-add");
  ExpectWithinAccumulationBound(product<half>(a, b, kShape, kFp16), a, b, kShape, fp16,
                                "format-mul-add", kProbable);
  // Unrounded results, of another type.
  const std::vector<float> in_fp32 = product<float>(a, b, kShape, kFp32);
  const std::vector<double> wide(in_fp32.begin(), in_fp32.end());
  ExpectWithinAccumulationBound(
      wide, a, b, kShape, {.accumulation = Accumulation::fp32, .write = kFp32, .read = kFp16});
}

TEST(AccumulationBound, FewerBitsFail) {
  const std::vector<float> a = random_values(kShape.m * kShape.k, 1, kFp16, 0.0);
  const std::vector<float> b = random_values(kShape.k * kShape.n, 2, kFp16, 0.0);
  const std::vector<float> in_half = product<half>(a, b, kShape, kFp16);
  ExpectWithinAccumulationBound(in_half, a, b, kShape, fp16, "format-mul-add");
  EXPECT_NONFATAL_FAILURE(ExpectWithinAccumulationBound(in_half, a, b, kShape, fp16, "fp32"),
                          "elements are outside the bound of fp32 sums of 96 terms in fp16");
  const std::vector<float> in_single = product<float>(a, b, kShape, kFp32);
  const SumSpec doubles{.accumulation = Accumulation::fp64, .write = kFp32, .read = kFp16};
  EXPECT_NONFATAL_FAILURE(ExpectWithinAccumulationBound(in_single, a, b, kShape, doubles),
                          "outside the bound of fp64");
}

TEST(AccumulationBound, WrongElementsFail) {
  const std::vector<float> a = random_values(kShape.m * kShape.k, 1, kFp16, 0.5);
  const std::vector<float> b = random_values(kShape.k * kShape.n, 2, kFp16, 0.5);
  std::vector<float> out = product<float>(a, b, kShape, kFp32);
  const SumSpec spec{.accumulation = Accumulation::fp32, .write = kFp32, .read = kFp16};
  ExpectWithinAccumulationBound(out, a, b, kShape, spec);
  std::vector<float> lost = out;
  lost[6] -= a[static_cast<size_t>(1 * kShape.k + 5)] * b[static_cast<size_t>(5 * kShape.n + 2)];
  EXPECT_NONFATAL_FAILURE(ExpectWithinAccumulationBound(lost, a, b, kShape, spec),
                          "1 of 12 elements are outside the bound");
  EXPECT_NONFATAL_FAILURE(ExpectWithinAccumulationBound(lost, a, b, kShape, spec),
                          "element 6 at [1,2]");
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> broken = out;
    broken[11] = bad;
    EXPECT_NONFATAL_FAILURE(ExpectWithinAccumulationBound(broken, a, b, kShape, spec), "at [2,3]");
  }
}

TEST(AccumulationBound, WhatItCannotCheckFails) {
  const std::vector<float> a = random_values(kShape.m * kShape.k, 1, kFp16);
  const std::vector<float> b = random_values(kShape.k * kShape.n, 2, kFp16);
  const std::vector<float> out = product<float>(a, b, kShape, kFp16);
  EXPECT_NONFATAL_FAILURE(ExpectWithinAccumulationBound(out, a, b, kShape, bf16, "fp32"),
                          "is not a value of bf16");
  EXPECT_NONFATAL_FAILURE(
      ExpectWithinAccumulationBound(out, a, b, {.m = 3, .n = 4, .k = 95}, fp16, "fp32"),
      "needs 12, 285 and 380");
  EXPECT_NONFATAL_FAILURE(ExpectWithinAccumulationBound(out, a, b, kShape, fp16, "fp33"),
                          "'fp33' is not an accumulation");
  // 300 bf16 additions can lose everything; the probable bound still says something.
  const ProductShape longer{.m = 1, .n = 1, .k = 300};
  const std::vector<float> c = random_values(300, 3, kBf16), d = random_values(300, 4, kBf16);
  const std::vector<float> zero{0.0f}, sum = product<bfloat16>(c, d, longer, kBf16);
  EXPECT_NONFATAL_FAILURE(ExpectWithinAccumulationBound(zero, c, d, longer, bf16, "format"),
                          "the worst-case bound says nothing about sums of 300 terms");
  ExpectWithinAccumulationBound(sum, c, d, longer, bf16, "format-mul-add", kProbable);
}

TEST(AccumulationBound, NonFiniteOperandsAndOverflow) {
  const ProductShape one{.m = 1, .n = 1, .k = 2};
  const std::vector<float> infinite{INFINITY, 1.0f}, ones{1.0f, 1.0f}, large{60000.0f, 60000.0f};
  ExpectWithinAccumulationBound(INFINITY, infinite, ones, one, fp16, "fp32");
  EXPECT_NONFATAL_FAILURE(ExpectWithinAccumulationBound(NAN, infinite, ones, one, fp16, "fp32"),
                          "nan");
  EXPECT_NONFATAL_FAILURE(
      ExpectWithinAccumulationBound(65504.0f, infinite, ones, one, fp16, "fp32"), "inf");
  // 120000 has to overflow; 65504 is not near it.
  ExpectWithinAccumulationBound(INFINITY, large, ones, one, fp16, "fp32");
  EXPECT_NONFATAL_FAILURE(ExpectWithinAccumulationBound(65504.0f, large, ones, one, fp16, "fp32"),
                          "120000");
  EXPECT_NONFATAL_FAILURE(ExpectWithinAccumulationBound(-INFINITY, large, ones, one, fp16, "fp32"),
                          "-inf");
}

}  // namespace
}  // namespace halfscope::testing
