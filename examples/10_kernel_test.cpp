// SPDX-License-Identifier: MIT
// Unit tests of a kernel's precision with GoogleTest and the add-on halfscope::gtest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "halfscope/core/numeric/formats/rng.h"
#include "halfscope/testing/gtest.h"

namespace {

using namespace halfscope::testing;
using Sum = halfscope::Float<halfscope::kFp32>;

/// The kernel under test: the product of a (m x k) and b (k x n), added in `Sum`.
template <class T>
std::vector<T> multiply(const std::vector<T>& a, const std::vector<T>& b, const ProductShape& s) {
  std::vector<T> out;
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      Sum sum{};
      for (int64_t p = 0; p < s.k; ++p) {
        sum += Sum(a[static_cast<size_t>(i * s.k + p)]) * Sum(b[static_cast<size_t>(p * s.n + j)]);
      }
      out.push_back(T(sum));
    }
  }
  return out;
}

template <class T>
std::vector<T> random_numbers(int64_t count, uint64_t seed) {
  std::vector<T> numbers;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t word = halfscope::random_word(seed, static_cast<uint64_t>(i));
    numbers.push_back(T(static_cast<double>(word >> 40) * 0x1p-23 - 1));  // -1 to 1
  }
  return numbers;
}

template <class T>
class KernelTest : public ::testing::Test {
 protected:
  const ProductShape shape_{.m = 4, .n = 8, .k = 64};
  const std::vector<T> a_ = random_numbers<T>(4 * 64, 1), b_ = random_numbers<T>(64 * 8, 2);
};
TYPED_TEST_SUITE(KernelTest, NarrowFormats, FormatNames);

TYPED_TEST(KernelTest, IsWithinTheBoundOfItsAccumulation) {
  const std::vector<TypeParam> out = multiply(this->a_, this->b_, this->shape_);
  ExpectWithinAccumulationBound(out, this->a_, this->b_, this->shape_, TypeParam::kFormat, "fp32");
}

TYPED_TEST(KernelTest, DoesNotOverflow) {
  EXPECT_NO_OVERFLOW(TypeParam::kFormat,
                     [&] { return multiply(this->a_, this->b_, this->shape_); });
}

/// Another kernel: squares in fp32, stored in fp16.
std::vector<halfscope::half> squares(const std::vector<halfscope::half>& x) {
  std::vector<halfscope::half> y;
  for (const halfscope::half each : x) y.push_back(halfscope::half(Sum(each) * Sum(each)));
  return y;
}

const std::vector<halfscope::half> x{halfscope::half(0.5), halfscope::half(3),
                                     halfscope::half(250)};

TEST(Squares, AreWithinOneUlp) {
  const std::vector<double> exact{0.25, 9, 62500};
  EXPECT_THAT(squares(x), UlpNear(exact, 1, fp16));
}

TEST(Squares, DoNotOverflow) {
  EXPECT_NO_OVERFLOW(fp16, [] { return squares(x); });
}

TEST(Kernel, IsNearTheReference) {
  const std::vector<halfscope::half> a(8, halfscope::half(0.1)), b(8, halfscope::half(3));
  const std::vector<double> reference{8 * 0.0999755859375 * 3};  // 0.1 in fp16 is 0.09997...
  EXPECT_THAT(multiply(a, b, {.m = 1, .n = 1, .k = 8}), UlpNear(reference, 1, fp16));
}

}  // namespace
