// SPDX-License-Identifier: MIT
// Every one of the 2^32 pairs of fp16 values: add and mul to nearest even. The expected value comes
// from one fp32 operation, which has enough digits (24 >= 2 * 11 + 2) to be rounded again, and
// Eigen's conversion, which is the processor's if the compiler may use that.
#include <gtest/gtest.h>

#include <Eigen/Core>
#include <bit>
#include <cmath>
#include <vector>

#include "core/numeric/formats/arithmetic.h"
#include "core/numeric/formats/codes.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace halfscope {
namespace {

using Row = void (*)(const float* in, float* out, int64_t n);

void through_half(const float* in, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(static_cast<Eigen::half>(in[i]));
}

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) void through_half_f16c(const float* in, float* out, int64_t n) {
  for (int64_t i = 0; i < n; i += 8) {
    const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(half));
  }
}
#endif

Row conversion() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("f16c")) return through_half_f16c;
#endif
  return through_half;
}

template <class Ours, class Wide>
int64_t differences(Ours ours, Wide wide) {
  constexpr int64_t kCodes = 0x10000;
  const Row convert_row = conversion();
  std::vector<float> values;
  for (uint32_t code = 0; code < kCodes; ++code) values.push_back(decode(code, kFp16));
  int64_t count = 0;
#pragma omp parallel for schedule(dynamic) reduction(+ : count)
  for (int64_t i = 0; i < kCodes; ++i) {
    const float a = values[static_cast<size_t>(i)];
    std::vector<float> row(kCodes);
    for (size_t j = 0; j < kCodes; ++j) row[j] = wide(a, values[j]);
    convert_row(row.data(), row.data(), kCodes);
    for (size_t j = 0; j < kCodes; ++j) {
      const float got = ours(a, values[j]);
      const bool same = std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(row[j]) ||
                        (std::isnan(got) && std::isnan(row[j]));
      count += !same;
    }
  }
  return count;
}

TEST(PairSweepTest, AddInHalf) {
  EXPECT_EQ(differences([](float a, float b) { return add(a, b, kFp16).value; },
                        [](float a, float b) { return a + b; }),
            0);
}

TEST(PairSweepTest, MulInHalf) {
  EXPECT_EQ(differences([](float a, float b) { return mul(a, b, kFp16).value; },
                        [](float a, float b) { return a * b; }),
            0);
}

}  // namespace
}  // namespace halfscope
