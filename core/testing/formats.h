// SPDX-License-Identifier: MIT
// Formats by their names, and as types for typed tests.
//   template <class T> class KernelTest : public ::testing::Test {};
//   TYPED_TEST_SUITE(KernelTest, halfscope::testing::NarrowFormats,
//   halfscope::testing::FormatNames); TYPED_TEST(KernelTest, Adds) { TypeParam sum{}; ...
//   UlpNear(reference, 1, TypeParam::kFormat) }
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>

#include "core/numeric/formats/float_format.h"
#include "core/numeric/types/float_types.h"

namespace halfscope::testing {

inline constexpr FloatFormat fp32 = kFp32, tf32 = kTf32, bf16 = kBf16, fp16 = kFp16;
inline constexpr FloatFormat e4m3fn = kE4m3fn, e5m2 = kE5m2;
inline constexpr FloatFormat e4m3fnuz = kE4m3fnuz, e5m2fnuz = kE5m2fnuz;

/// The formats of 8 and 16 bits in which kernels compute or store, as C++ types. `T::kFormat` is
/// the format.
using NarrowFormats =
    ::testing::Types<half, bfloat16, float8_e4m3, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz>;

/// Names the instances of a typed test after their formats: "fp16", "e4m3fn".
struct FormatNames {
  template <class T>
  static std::string GetName(int) {
    std::string name = format_name(T::kFormat);
    std::replace_if(
        name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
    return name;
  }
};

}  // namespace halfscope::testing
