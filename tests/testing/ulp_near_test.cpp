// SPDX-License-Identifier: MIT
// UlpNear, Representable and the typed tests: what passes, what fails, and what the failure says.
// The bits and distances are written by hand.
#include "core/testing/ulp_near.h"

#include <gtest/gtest-spi.h>

#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <span>
#include <vector>

#include "core/testing/formats.h"

namespace halfscope::testing {
namespace {

const double kInfinity = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(UlpNear, Numbers) {
  // Neighbours of 1 in fp16: 1 - 2^-11 and 1 + 2^-10.
  EXPECT_THAT(1.0, UlpNear(1.0, 0, fp16));
  EXPECT_THAT(1.0f + 0x1p-10f, UlpNear(1.0, 1, fp16));
  EXPECT_THAT(1.0 - 0x1p-11, UlpNear(1.0f, 1, fp16));
  EXPECT_THAT(half(1.5), UlpNear(1.5, 0, fp16));
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(1.0 + 0x1p-10, UlpNear(1.0, 0, fp16)),
                          "1.00097656 (0x3c01), reference 1 (0x3c00), 1 ulp");
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(2.0, UlpNear(1.0, 1023, fp16)), "1024 ulps");
  EXPECT_THAT(2.0, UlpNear(1.0, 1024, fp16));
  EXPECT_THAT(2.0, ::testing::Not(UlpNear(1.0, 1023, fp16)));
}

TEST(UlpNear, RoundsOnce) {
  // 1 + 2^-11 + 2^-30 is above the tie of fp16, but fp32 rounds it to the tie, and to even from
  // there.
  EXPECT_THAT(1.0 + 0x1p-10, UlpNear(1.0 + 0x1p-11 + 0x1p-30, 0, fp16));
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(1.0, UlpNear(1.0 + 0x1p-11 + 0x1p-30, 0, fp16)),
                          "(rounds to 0x3c01), 1 ulp");
}

TEST(UlpNear, SpecialValues) {
  EXPECT_THAT(kNan, UlpNear(-kNan, 0, fp16));
  EXPECT_THAT(kInfinity, UlpNear(kInfinity, 0, bf16));
  EXPECT_THAT(0.0, UlpNear(-0.0, 0, bf16));
  EXPECT_THAT(kInfinity, UlpNear(1e6, 0, fp16));  // the reference overflows, too
  constexpr int64_t kMany = int64_t{1} << 40;
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(kNan, UlpNear(1.0, kMany, fp16)), ", the value is NaN");
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(1.0, UlpNear(kNan, kMany, fp16)),
                          ", only the reference is NaN");
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(kInfinity, UlpNear(-kInfinity, kMany, fp16)),
                          ", infinities of different signs");
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(kNan, UlpNear(kInfinity, kMany, fp16)), ", the value is NaN");
  // One step in the order of codes, but an overflow.
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(kInfinity, UlpNear(65504.0, kMany, fp16)),
                          "(0x7c00), reference 65504 (0x7bff), the value is infinite");
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(65520.0, UlpNear(65504.0, kMany, fp16)),
                          "the value overflows fp16");
  // e4m3fn has no infinity; 1000 is beyond it.
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(448.0, UlpNear(1000.0, kMany, e4m3fn)),
                          "only the reference overflows e4m3fn");
  // Subnormals are neighbours like all others.
  EXPECT_THAT(0x1p-24, UlpNear(0.0, 1, fp16));
  EXPECT_THAT(-0x1p-24, UlpNear(0x1p-24, 2, fp16));
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(-0x1p-24, UlpNear(0x1p-24, 1, fp16)), "2 ulps");
}

TEST(UlpNear, Arrays) {
  std::vector<half> out(32, half(1));
  std::vector<double> reference(32, 1.0);
  EXPECT_THAT(out, UlpNear(reference, 0, fp16));
  out[13] = half(1.25);
  out[21] = half(1.5);
  EXPECT_NONFATAL_FAILURE(
      EXPECT_THAT(out, UlpNear(reference, 2, fp16, {4, 8})),
      "2 of 32 elements are further away; the worst is element 21 at [2,5]: 1.5 "
      "(0x3e00), reference 1 (0x3c00), 512 ulps");
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(std::span<const half>(out), UlpNear(reference, 2, fp16)),
                          "element 21: 1.5");
  const Tensor tensor{{2, 2}, {1.0f, 1.0f, 3.0f, 1.0f}};
  EXPECT_NONFATAL_FAILURE(
      EXPECT_THAT(tensor, UlpNear(std::vector<float>(4, 1.0f), 2, bf16)),
      "1 of 4 elements are further away; the worst is element 2 at [1,0]: 3 (0x4040)");
  const float plain[] = {1.0f, 2.0f};
  EXPECT_THAT(plain, UlpNear(std::array{1.0, 2.0}, 0, fp32));
  // A missing element, and a NaN among many.
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(plain, UlpNear(std::array{1.0}, 9, fp32)),
                          "has 2 elements, and the reference has 1");
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(plain, UlpNear(std::array{1.0, 2.0}, 9, fp32, {3})),
                          "the shape [3] has 3");
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(plain, UlpNear(std::array{9.0, kNan}, 9, fp32)),
                          "the worst is element 1");
}

TEST(Representable, Numbers) {
  EXPECT_THAT(std::vector<float>({1.0f, 65504.0f, -0.0f, std::nanf("")}), Representable(fp16));
  EXPECT_NONFATAL_FAILURE(
      EXPECT_THAT(std::vector<float>({1.0f, 0.1f, 1e6f}), Representable(fp16)),
      "2 of 3 elements are not; the first is element 1: 0.100000001 (rounds to 0x2e66)");
}

template <class T>
class EveryFormat : public ::testing::Test {};
TYPED_TEST_SUITE(EveryFormat, NarrowFormats, FormatNames);

TYPED_TEST(EveryFormat, OneUlpApart) {
  const TypeParam one(1),
      next = TypeParam::from_bits(static_cast<typename TypeParam::Code>(one.bits() + 1));
  EXPECT_THAT(next, UlpNear(one, 1, TypeParam::kFormat));
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(next, UlpNear(one, 0, TypeParam::kFormat)), "1 ulp");
}

TEST(FormatNames, AreNamesOfTests) {
  const std::string own = ::testing::UnitTest::GetInstance()->current_test_info()->name();
  EXPECT_EQ(own, "AreNamesOfTests");
  std::set<std::string> suites;
  for (int i = 0; i < ::testing::UnitTest::GetInstance()->total_test_suite_count(); ++i) {
    suites.insert(::testing::UnitTest::GetInstance()->GetTestSuite(i)->name());
  }
  for (const char* format : {"fp16", "bf16", "e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz"}) {
    EXPECT_EQ(suites.count("EveryFormat/" + std::string(format)), 1u) << format;
  }
}

}  // namespace
}  // namespace halfscope::testing
