// SPDX-License-Identifier: MIT
// EXPECT_NO_OVERFLOW fails for each overflow that it promises to see, and where it sees nothing.
#include "core/testing/no_overflow.h"

#include <gtest/gtest-spi.h>

#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "core/testing/formats.h"

namespace halfscope::testing {
namespace {

template <class Sum, class T>
Sum dot(const std::vector<T>& a, const std::vector<T>& b) {
  Sum sum{};
  for (size_t i = 0; i < a.size(); ++i) sum += Sum(a[i]) * Sum(b[i]);
  return sum;
}

TEST(NoOverflow, InsideOfASum) {
  const std::vector<half> a(64, half(32)), b(64, half(31)), c(65, half(32));
  half sum{};
  // 64 * 32 * 31 = 63488 fits; 65 * 32 * 32 = 66560 does not.
  EXPECT_NO_OVERFLOW(fp16, [&] { sum = dot<half>(a, b); });
  EXPECT_NONFATAL_FAILURE(EXPECT_NO_OVERFLOW(fp16, [&] { sum = dot<half>(c, c); }),
                          "add(64512, 1024)");
  // The sum itself stays small, only the way there does not.
  EXPECT_NONFATAL_FAILURE(EXPECT_NO_OVERFLOW(fp16,
                                             [&] {
                                               const half big(60000);
                                               const half twice = big + big;
                                               return isinf(twice) ? 0.0 : 1.0;
                                             }),
                          "overflow; the first is operation 1: add(60000, 60000)");
}

TEST(NoOverflow, OnlyTheFormatThatWasAskedFor) {
  const std::vector<half> c(65, half(32));
  // The sum is in fp32, the conversion of the result to fp16 overflows.
  EXPECT_NO_OVERFLOW(fp32, [&] { return dot<Float<kFp32>>(c, c); });
  EXPECT_NONFATAL_FAILURE(EXPECT_NO_OVERFLOW(fp16,
                                             [&] {
                                               const half sum(dot<Float<kFp32>>(c, c));
                                               (void)sum;
                                             }),
                          "convert(66560)");
  // Saturation is an overflow.
  EXPECT_NONFATAL_FAILURE(
      EXPECT_NO_OVERFLOW(e4m3fn,
                         [&] {
                           const Float<FloatFormat{4, 3, 7, Encoding::finite_nan, true}> x(1000);
                           (void)x;
                         }),
      "convert(1000)");
}

TEST(NoOverflow, NumbersThatAKernelReturns) {
  std::vector<float> out(8, 1.0f);
  EXPECT_NO_OVERFLOW(fp16, [&]() -> const std::vector<float>& { return out; });
  EXPECT_NO_OVERFLOW(fp16, [] { return 65519.0; });  // rounds to 65504
  EXPECT_NONFATAL_FAILURE(EXPECT_NO_OVERFLOW(fp16, [] { return 65520.0; }),
                          "65520 (rounds to 0x7c00)");
  out[5] = 70000.0f;
  EXPECT_NONFATAL_FAILURE(
      EXPECT_NO_OVERFLOW(fp16,
                         [&] {
                           return Tensor{{2, 4}, out};
                         }),
      "1 of 8 returned numbers overflow fp16; the first is element 5 at [1,1]: 70000");
  EXPECT_NO_OVERFLOW(bf16, [&] { return out; });
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    EXPECT_NONFATAL_FAILURE(EXPECT_NO_OVERFLOW(bf16, [&] { return bad; }),
                            "returned numbers overflow");
  }
}

TEST(NoOverflow, DoesNotPassWithoutLooking) {
  float sum = 0.0f;
  EXPECT_NONFATAL_FAILURE(EXPECT_NO_OVERFLOW(fp16, [&] { sum += 1.0f; }), "nothing was seen");
  EXPECT_NONFATAL_FAILURE(EXPECT_NO_OVERFLOW(fp16, [] { return std::vector<float>(); }),
                          "nothing was seen");
  EXPECT_NONFATAL_FAILURE(EXPECT_NO_OVERFLOW(bf16, [] { (void)(half(1) + half(1)); }),
                          "nothing was seen");
  // Another thread is not seen, and the failure says on which thread it looked.
  EXPECT_NONFATAL_FAILURE(
      EXPECT_NO_OVERFLOW(fp16,
                         [] { std::thread([] { (void)(half(60000) + half(60000)); }).join(); }),
      "on this thread");
}

}  // namespace
}  // namespace halfscope::testing
