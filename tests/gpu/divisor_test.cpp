// SPDX-License-Identifier: MIT
// Division by multiplication against the operator: all divisors that are small or next to a power
// of two, and places next to their multiples and to every power of two.
#include "gpu/bodies/divisor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "core/numeric/formats/rng.h"

namespace halfscope {
namespace {

using gpu::Divisor;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

/// Powers of two and their neighbours.
std::vector<int64_t> edges(int64_t least) {
  std::vector<int64_t> all;
  for (int bit = 0; bit < 63; ++bit) {
    const int64_t power = int64_t{1} << bit;
    for (int64_t by = -3; by <= 3; ++by) all.push_back(power - 1 + by);
  }
  for (int64_t by = 0; by < 4; ++by) all.push_back(kMost - by);
  std::erase_if(all, [least](int64_t x) { return x < least; });
  return all;
}

/// Returns a random number with a random number of bits.
int64_t draw(uint64_t& state) {
  const uint64_t bits = splitmix64(state++), shift = splitmix64(state++) % 63;
  return static_cast<int64_t>(bits >> 1 >> shift);
}

void expect_as_the_operator(int64_t d, const std::vector<int64_t>& places) {
  const Divisor by = d;
  ASSERT_EQ(int64_t{by}, d);
  for (const int64_t n : places) {
    ASSERT_EQ(n / by, n / d) << n << " / " << d;
    ASSERT_EQ(n % by, n % d) << n << " % " << d;
    int64_t quotient = n;
    quotient /= by;
    ASSERT_EQ(quotient, n / d);
    if (n > std::numeric_limits<int>::max()) continue;
    ASSERT_EQ(static_cast<int>(n) / by, n / d) << n << " / " << d;
  }
  // Where the quotient changes.
  for (const int64_t q : places) {
    if (q > kMost / d) continue;
    const int64_t n = q * d;
    ASSERT_EQ(n / by, q) << n << " / " << d;
    const int64_t before = std::max<int64_t>(n - 1, 0), last = n <= kMost - d + 1 ? n + d - 1 : n;
    ASSERT_EQ(before / by, before / d) << before << " / " << d;
    ASSERT_EQ(last / by, q) << last << " / " << d;
  }
}

TEST(Divisor, DividesLikeTheOperator) {
  std::vector<int64_t> places = edges(0);
  uint64_t state = 1;
  for (int i = 0; i < 200; ++i) places.push_back(draw(state));
  for (int64_t d = 1; d < 1500; ++d) expect_as_the_operator(d, places);
  for (const int64_t d : edges(1)) expect_as_the_operator(d, places);
  for (int i = 0; i < 1500; ++i) expect_as_the_operator(std::max<int64_t>(draw(state), 1), places);
}

TEST(Divisor, IsANumberOtherwise) {
  const Divisor seven = 7, none = 0, one;
  EXPECT_EQ(seven * 3, 21);
  EXPECT_EQ(seven + int64_t{none}, 7);
  EXPECT_LT(none, seven);
  EXPECT_EQ(int64_t{one}, 1);
  EXPECT_EQ(int64_t{5} / one, 5);
  EXPECT_EQ(gpu::ceil_div(15, seven), 3);
  EXPECT_EQ(gpu::ceil_div(14, seven), 2);
  static_assert(int64_t{100} / Divisor(7) == 14 && int64_t{100} % Divisor(7) == 2);
}

}  // namespace
}  // namespace halfscope
