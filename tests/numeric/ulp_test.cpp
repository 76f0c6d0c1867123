// SPDX-License-Identifier: MIT
// Distances and sizes in units in the last place, compared with codes counted one by one.
#include "core/numeric/statistics/ulp.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/numeric/enumerated_format.h"
#include "tests/special_values.h"

namespace halfscope {
namespace {

TEST(UlpTest, DistanceIsTheDifferenceOfCodes) {
  for (const char* name :
       {"fp16", "bf16", "e4m3fn", "e5m2", "e2m1", "int8", "int4", "tf32", "fp32", "e5m23",
        "e2m1ieee", "e4m3fnuz", "e5m0", "e5m0fn", "e8m3b147", "fp16:sat", "e3m2fn"}) {
    const FloatFormat format = parse_format(name).value();
    const testing::EnumeratedFormat oracle(format);
    int64_t last_code = 0;
    for (const int64_t code : oracle.sample_codes(4000)) {
      const float value = static_cast<float>(oracle.decode(code));
      const float last = static_cast<float>(oracle.decode(last_code));
      ASSERT_EQ(ulp_distance(value, last, format), std::abs(code - last_code)) << name << code;
      ASSERT_EQ(ulp_distance(-last, value, format), code + last_code) << name << code;
      ASSERT_EQ(ulp_distance(0.0f, value, format), code) << name << code;
      // Beyond the last code the steps continue, as with an unbounded exponent.
      ASSERT_EQ(ulp_size(static_cast<double>(value), format),
                oracle.decode(code + 1) - oracle.decode(code))
          << name << code;
      last_code = code;
    }
    const float max = static_cast<float>(format.max_finite());
    const int64_t infinity = oracle.finite_codes() - (format.saturates() ? 1 : 0);
    EXPECT_EQ(ulp_distance(max, kInf, format), format.saturates() ? 0 : 1) << name;
    EXPECT_EQ(ulp_distance(-kInf, kInf, format), 2 * infinity) << name;
  }
}

TEST(UlpTest, SpecialValues) {
  EXPECT_EQ(ulp_distance(0.0f, -0.0f, kFp16), 0);
  EXPECT_EQ(ulp_distance(kNan, -kNan, kFp16), 0);
  EXPECT_EQ(ulp_distance(kNan, 1.0f, kFp16), kUlpUnordered);
  EXPECT_EQ(ulp_distance(1.0f, kNan, kFp16), kUlpUnordered);
  EXPECT_EQ(ulp_distance(448.0f, 1e30f, kE4m3fn), 1);
  EXPECT_EQ(ulp_distance(kInf, 1e30f, kE4m3fn), 0);
  EXPECT_EQ(ulp_distance(65504.0f, 65520.0f, kFp16), 1);
  EXPECT_EQ(ulp_distance(1.0f, 1.0001f, kFp16), 0);  // both round to 1
  EXPECT_TRUE(std::isnan(ulp_size(std::nan(""), kFp16)));
  EXPECT_EQ(ulp_size(0.0, kFp16), 0x1p-24);
  EXPECT_EQ(ulp_size(-1e300, kFp16), 32.0);
  EXPECT_EQ(ulp_size(1.0, kBf16), 0x1p-7);
}

static_assert(ulp_distance(1.0f, 1.0f + 0x1p-10f, kFp16) == 1);
static_assert(ulp_size(1.0, kFp16) == 0x1p-10);

}  // namespace
}  // namespace halfscope
