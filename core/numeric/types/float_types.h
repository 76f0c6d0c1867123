// SPDX-License-Identifier: MIT
// The formats of machine learning as C++ types, for kernels and their tests: half, bfloat16, ...
// with literals (1.5_h), numeric_limits, hash, text and FloatEventScope.
//   half sum{};
//   FloatEventScope scope;
//   for (size_t i = 0; i < n; ++i) sum += a[i] * b[i];
//   EXPECT_EQ(scope.counts().overflows, 0);
// Each header can be used alone: float_value.h (the class), float_limits.h, float_text.h (strings
// and streams), float_events.h (the scope), eigen.h (matrices of them; only if Eigen is installed).
#pragma once

#include <bit>
#include <cstdint>

#include "core/numeric/formats/float_format.h"
#include "core/numeric/types/float_events.h"
#include "core/numeric/types/float_limits.h"
#include "core/numeric/types/float_text.h"
#include "core/numeric/types/float_value.h"

namespace halfscope {

using half = Float<kFp16>;
using bfloat16 = Float<kBf16>;
using tfloat32 = Float<kTf32>;
using float8_e4m3 = Float<kE4m3fn>;
using float8_e5m2 = Float<kE5m2>;
using float8_e4m3fnuz = Float<kE4m3fnuz>;
using float8_e5m2fnuz = Float<kE5m2fnuz>;
using float8_e4m3b11fnuz = Float<kE4m3b11fnuz>;
using float6_e3m2 = Float<kE3m2>;
using float6_e2m3 = Float<kE2m3>;
using float4_e2m1 = Float<kE2m1>;

namespace detail {

/// Returns a non-negative long double as a double rounded to odd, so that the rounding from there
/// is the only one (53 bits are two more than any format has).
consteval double literal_to_odd(long double x) {
  const double nearest = static_cast<double>(x);
  if (static_cast<long double>(nearest) == x) return nearest;
  const uint64_t above = static_cast<long double>(nearest) > x ? 1 : 0;
  return std::bit_cast<double>((std::bit_cast<uint64_t>(nearest) - above) | 1);
}

}  // namespace detail

/// 1.5_h, 2_bf16, 0.5_e4m3, 0.5_e5m2. Rounded while compiling, so no scope counts them. The
/// compiler reads the digits as a long double first.
inline namespace float_literals {

consteval half operator""_h(long double x) { return half(detail::literal_to_odd(x)); }
consteval half operator""_h(unsigned long long x) { return half(x); }
consteval bfloat16 operator""_bf16(long double x) { return bfloat16(detail::literal_to_odd(x)); }
consteval bfloat16 operator""_bf16(unsigned long long x) { return bfloat16(x); }
consteval float8_e4m3 operator""_e4m3(long double x) {
  return float8_e4m3(detail::literal_to_odd(x));
}
consteval float8_e4m3 operator""_e4m3(unsigned long long x) { return float8_e4m3(x); }
consteval float8_e5m2 operator""_e5m2(long double x) {
  return float8_e5m2(detail::literal_to_odd(x));
}
consteval float8_e5m2 operator""_e5m2(unsigned long long x) { return float8_e5m2(x); }

}  // namespace float_literals
}  // namespace halfscope
