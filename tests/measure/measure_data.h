// SPDX-License-Identifier: MIT
// Inputs that kernels get wrong, and comparison bit for bit, NaN payloads and signs of zero
// included.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/numeric/formats/float_format.h"
#include "core/numeric/statistics/tensor_stats.h"
#include "emulation/isa.h"

namespace halfscope::testing {

/// Puts the instruction set back that was active before.
class IsaGuard {
 public:
  IsaGuard() : before_(active_isa()) {}
  ~IsaGuard() { set_active_isa(before_); }
  IsaGuard(const IsaGuard&) = delete;
  IsaGuard& operator=(const IsaGuard&) = delete;

 private:
  Isa before_;
};

enum class Data {
  normal,      ///< N(0,1)
  wide,        ///< N(0,1) * 2^U(-40,40)
  patterns,    ///< random bits
  boundaries,  ///< values of the format, points half way, their neighbours
  specials,    ///< only infinities, NaNs, zeros, fp32 subnormals, extremes
  sparse,      ///< zeros with a few values, like after a ReLU
  one_bad,     ///< N(0,1) with one non-finite value
  subnormals,  ///< fp32 subnormals, zeros and normal values
  constant,    ///< one value, in one bin
};

inline constexpr Data kAllData[] = {Data::normal,     Data::wide,       Data::patterns,
                                    Data::boundaries, Data::specials,   Data::sparse,
                                    Data::one_bad,    Data::subnormals, Data::constant};

inline std::vector<float> make_data(Data data, int64_t n, const FloatFormat& format) {
  std::mt19937 generator(static_cast<uint32_t>(n) * 16 + static_cast<uint32_t>(data));
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> exponent(-40.0f, 40.0f);
  const auto bits = [&generator] { return static_cast<uint32_t>(generator()); };
  const uint32_t special_bits[] = {0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000,
                                   0xffc00001, 0x7f800001, 0xff801000, 0x7fffffff, 0x00000001,
                                   0x80000001, 0x007fffff, 0x00800000, 0x7f7fffff, 0xff7fffff};
  std::vector<float> values(static_cast<size_t>(n));
  for (float& x : values) {
    switch (data) {
      case Data::normal:
      case Data::one_bad:
        x = normal(generator);
        break;
      case Data::wide:
        x = normal(generator) * std::exp2(exponent(generator));
        break;
      case Data::patterns:
        x = std::bit_cast<float>(bits());
        break;
      case Data::boundaries: {
        const int e = static_cast<int>(bits() % 300) - 152;
        const int clamped = std::clamp(e, format.min_exponent() - format.mantissa_bits - 2,
                                       format.max_exponent() + 1);
        const double half_steps = std::ldexp(1.0, format.mantissa_bits + 1);
        const double significand = 1.0 + static_cast<double>(bits() >> 7) / half_steps;
        const double rounded = std::floor(significand * half_steps) / half_steps;
        x = static_cast<float>(std::ldexp(std::fmod(rounded, 2.0), clamped));
        const uint32_t step = bits() % 3;
        if (step != 0) x = std::nextafter(x, step == 1 ? 0.0f : INFINITY);
        if (bits() % 2 == 0) x = -x;
        break;
      }
      case Data::specials:
        x = std::bit_cast<float>(special_bits[bits() % 15]);
        break;
      case Data::sparse:
        x = bits() % 16 == 0 ? normal(generator) * 0x1p-20f : 0.0f;
        break;
      case Data::subnormals:
        x = std::bit_cast<float>(bits() & (bits() % 2 == 0 ? 0x807fffffu : 0x81ffffffu));
        if (bits() % 4 == 0) x = 0.0f;
        break;
      case Data::constant:
        x = 0x1.8p-15f;
        break;
    }
  }
  if (data == Data::one_bad && n > 0) {
    values[static_cast<size_t>(n / 2)] = std::bit_cast<float>(special_bits[2 + n % 6]);
  }
  return values;
}

/// The first position where the bits differ, or -1.
inline int64_t first_difference(std::span<const float> a, std::span<const float> b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) {
      return static_cast<int64_t>(i);
    }
  }
  return -1;
}

inline void expect_same_stats(const TensorStats& got, const TensorStats& want) {
  EXPECT_EQ(got.n, want.n);
  EXPECT_EQ(got.zero, want.zero);
  EXPECT_EQ(got.pos_inf, want.pos_inf);
  EXPECT_EQ(got.neg_inf, want.neg_inf);
  EXPECT_EQ(got.nan, want.nan);
  EXPECT_EQ(got.overflow, want.overflow);
  EXPECT_EQ(got.underflow, want.underflow);
  EXPECT_EQ(got.subnormal, want.subnormal);
  EXPECT_EQ(got.max_abs, want.max_abs);
  EXPECT_EQ(got.min_abs, want.min_abs);
  EXPECT_EQ(std::bit_cast<uint64_t>(got.sum), std::bit_cast<uint64_t>(want.sum));
  EXPECT_EQ(std::bit_cast<uint64_t>(got.sum_sq), std::bit_cast<uint64_t>(want.sum_sq));
  EXPECT_EQ(got, want);
}

}  // namespace halfscope::testing
