// SPDX-License-Identifier: MIT
// FloatEventScope: exact counts on sums made by hand, nesting, threads, first events.
#include "core/numeric/types/float_events.h"

#include <gtest/gtest.h>

#include <limits>
#include <thread>
#include <vector>

#include "core/numeric/types/float_types.h"

namespace halfscope {
namespace {

TEST(FloatEventsTest, NothingAtFirst) {
  const FloatEventScope scope;
  EXPECT_EQ(scope.counts(), FloatEventCounts{});
  EXPECT_FALSE(scope.first(kOverflow));
}

TEST(FloatEventsTest, ASumThatOverflows) {
  // 64 * 1024 = 65536: the 64th addition overflows, the 65th adds to infinity, exactly.
  half sum{};
  const FloatEventScope scope;
  for (int i = 0; i < 65; ++i) sum += 1024_h;
  EXPECT_TRUE(isinf(sum));
  EXPECT_EQ(scope.counts(), (FloatEventCounts{.operations = 65, .inexact = 1, .overflows = 1}));
  const FloatEvent first = scope.first(kOverflow).value();
  EXPECT_EQ(first.operation, FloatOperation::add);
  EXPECT_EQ(first.format, kFp16);
  EXPECT_EQ(first.operand_count, 2);
  EXPECT_EQ(first.operands[0], 64512.0);
  EXPECT_EQ(first.operands[1], 1024.0);
  EXPECT_EQ(first.index, 63u);
  EXPECT_EQ(first.flags, kInexact | kOverflow);
  EXPECT_EQ(scope.first(kInexact)->index, 63u);
  EXPECT_FALSE(scope.first(kUnderflow));
}

TEST(FloatEventsTest, OnlyOneFormat) {
  const FloatEventScope all, halves(kFp16), brains(kBf16);
  (void)(60000_h + 60000_h);
  (void)(1.5_bf16 * 3_bf16);
  const Float<FloatFormat{5, 10, 15, Encoding::ieee, true}> saturating(1e6);  // counts as fp16, too
  EXPECT_EQ(saturating.value(), 65504.0f);
  EXPECT_EQ(all.counts().operations, 2u);
  EXPECT_EQ(halves.counts(),
            (FloatEventCounts{.operations = 1, .conversions = 1, .inexact = 2, .overflows = 2}));
  EXPECT_EQ(halves.first(kOverflow)->operation, FloatOperation::add);
  EXPECT_EQ(brains.counts(), (FloatEventCounts{.operations = 1}));
}

TEST(FloatEventsTest, ASumThatStagnates) {
  // Beyond 2048 adding 1 is a tie, and stays.
  half sum{};
  const FloatEventScope scope;
  for (int i = 0; i < 3000; ++i) sum += 1_h;
  EXPECT_EQ(sum, 2048_h);
  EXPECT_EQ(scope.counts(), (FloatEventCounts{.operations = 3000, .inexact = 952}));
  EXPECT_EQ(scope.first(kInexact)->index, 2048u);
}

TEST(FloatEventsTest, EveryKind) {
  const half tiny = std::numeric_limits<half>::min(), zero{};
  const half infinity = std::numeric_limits<half>::infinity();
  const FloatEventScope scope;
  EXPECT_FALSE(scope.first(kInvalid));
  (void)(tiny * 0.3_h);  // subnormal and inexact
  (void)(tiny * 0.5_h);  // subnormal, exact: no underflow
  (void)(tiny * tiny);   // flushed
  (void)(infinity - infinity);
  (void)sqrt(-1_h);
  (void)(1_h / zero);
  (void)(zero / zero);
  (void)fma(300_h, 300_h, 1_h);
  EXPECT_EQ(scope.counts(), (FloatEventCounts{.operations = 8,
                                              .inexact = 3,
                                              .overflows = 1,
                                              .underflows = 2,
                                              .flushed = 1,
                                              .invalid = 3,
                                              .divide_by_zero = 1}));
  EXPECT_EQ(scope.first(kUnderflow)->operation, FloatOperation::mul);
  EXPECT_EQ(scope.first(kInvalid)->operation, FloatOperation::sub);
  EXPECT_EQ(scope.first(kInvalid)->index, 3u);
  EXPECT_EQ(scope.first(kDivideByZero)->operation, FloatOperation::div);
  const FloatEvent overflow = scope.first(kOverflow).value();
  EXPECT_EQ(float_operation_name(overflow.operation), "fma");
  EXPECT_EQ(overflow.operand_count, 3);
  EXPECT_EQ(overflow.operands[2], 1.0);
}

TEST(FloatEventsTest, ConversionsCountApart) {
  const FloatEventScope scope;
  const half a(70000.0f), b(0.1), c(12);
  const bfloat16 d(a);
  const float8_e4m3 e(1000_h);
  EXPECT_TRUE(isinf(d) && isnan(e));
  EXPECT_EQ(scope.counts(), (FloatEventCounts{.conversions = 5, .inexact = 3, .overflows = 2}));
  EXPECT_EQ(scope.first(kOverflow)->operation, FloatOperation::convert);
  EXPECT_EQ(scope.first(kOverflow)->operands[0], 70000.0);
  EXPECT_EQ(scope.first(kOverflow)->operand_count, 1);
  // None of these rounds.
  (void)(a == b || a < c || isnan(a));
  (void)abs(-b);
  (void)static_cast<float>(b);
  (void)static_cast<int>(c);
  (void)to_string(b);
  EXPECT_EQ(scope.counts().operations + scope.counts().conversions, 5u);
}

TEST(FloatEventsTest, ConstantsDoNotCount) {
  const FloatEventScope scope;
  constexpr half kInfinite = 65504_h + 65504_h;
  constexpr half kTenth(0.1f);
  EXPECT_TRUE(isinf(kInfinite) && kTenth == 0.1_h);
  EXPECT_EQ(scope.counts(), FloatEventCounts{});
}

TEST(FloatEventsTest, ScopesNest) {
  const half one = 1_h;
  const FloatEventScope outer;
  (void)(one + one);
  {
    const FloatEventScope inner;
    (void)(one / 3_h);
    EXPECT_EQ(inner.counts(), (FloatEventCounts{.operations = 1, .inexact = 1}));
    EXPECT_EQ(outer.counts(), (FloatEventCounts{.operations = 2, .inexact = 1}));
    EXPECT_EQ(inner.first(kInexact)->index, 0u);
    EXPECT_EQ(outer.first(kInexact)->index, 1u);
  }
  (void)(one + one);
  EXPECT_EQ(outer.counts().operations, 3u);
}

TEST(FloatEventsTest, ScopesAreOfTheirThread) {
  const FloatEventScope scope;
  std::thread other([] {
    const FloatEventScope theirs;
    half sum{};
    for (int i = 0; i < 10; ++i) sum += 1_h;
    EXPECT_EQ(theirs.counts().operations, 10u);
  });
  other.join();
  EXPECT_EQ(scope.counts().operations, 0u);
}

TEST(FloatEventsTest, CountsEqualTheFlagsOfArithmetic) {
  FloatEventCounts want;
  const FloatEventScope scope;
  for (int i = 0; i < 256; ++i) {
    for (int j = 0; j < 256; ++j) {
      const auto a = float8_e5m2::from_bits(static_cast<uint8_t>(i));
      const auto b = float8_e5m2::from_bits(static_cast<uint8_t>(j));
      (void)(a * b);
      const uint8_t flags = mul(a.value(), b.value(), kE5m2).flags;
      ++want.operations;
      want.inexact += (flags & kInexact) != 0;
      want.overflows += (flags & kOverflow) != 0;
      want.underflows += (flags & kUnderflow) != 0;
      want.flushed += (flags & kFlushed) != 0;
      want.invalid += (flags & kInvalid) != 0;
    }
  }
  EXPECT_EQ(scope.counts(), want);
}

}  // namespace
}  // namespace halfscope
