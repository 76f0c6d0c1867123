// SPDX-License-Identifier: MIT
// The packed form of statistics, compared with TensorStats and byte by byte.
#include "analysis/packed_stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "analysis/run_schema.h"

namespace halfscope {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes packed(const TensorStats& stats) {
  Bytes bytes;
  pack_stats(stats, bytes);
  return bytes;
}

/// Statistics with histograms of every kind: empty, one bin, the outermost bins, with holes.
TensorStats random_stats(std::mt19937_64& random) {
  TensorStats stats;
  if (random() % 8 == 0) return stats;
  const int kind = static_cast<int>(random() % 4);
  const auto first = static_cast<size_t>(random() % kExponentBins);
  const size_t length = kind == 0 ? 0 : kind == 1 ? 1 : static_cast<size_t>(random() % 60);
  for (size_t bin = first; bin < std::min<size_t>(first + length, kExponentBins); ++bin) {
    const uint64_t shift = 20 + random() % 40;
    if (random() % 3 != 0) stats.exponents[bin] = static_cast<int64_t>(random() >> shift);
  }
  if (kind == 3) stats.exponents[0] = stats.exponents[kExponentBins - 1] = 1;
  for (const int64_t count : stats.exponents) stats.n += count;
  stats.zero = static_cast<int64_t>(random() % 1000);
  stats.pos_inf = static_cast<int64_t>(random() % 3);
  stats.neg_inf = static_cast<int64_t>(random() % 200);
  stats.nan = 1;
  stats.n += stats.zero + stats.non_finite();
  stats.overflow = stats.n / 2;
  stats.underflow = stats.n / 3;
  stats.subnormal = stats.n;
  stats.lost = stats.n % 2;
  stats.max_abs = std::ldexp(1.5f, static_cast<int>(random() % 200) - 100);
  if (random() % 2 == 0) stats.min_abs = std::numeric_limits<float>::denorm_min();
  stats.sum = std::ldexp(static_cast<double>(random()), -30) - 1e9;
  stats.sum_sq = std::ldexp(static_cast<double>(random()), 40);
  return stats;
}

TEST(PackedStats, ToTheByte) {
  TensorStats stats;
  EXPECT_EQ(packed(stats), Bytes{0});
  stats.n = 300;
  stats.lost = 2;
  stats.max_abs = 1.0f;
  stats.sum = 1.0;
  stats.sum_sq = -2.0;
  stats.exponents[149] = 128;
  stats.exponents[151] = 1;
  const Bytes expected = {0xac, 0x02, 0,    0,    0,    0, 0,    0,
                          0,    2,                                      // n and the eight others
                          0,    0,    0x80, 0x3f, 0,    0, 0x80, 0x7f,  // 1.0f and infinity
                          0,    0,    0,    0,    0,    0, 0xf0, 0x3f,  // 1.0
                          0,    0,    0,    0,    0,    0, 0,    0xc0,  // -2.0
                          0x95, 0x01, 3,    0x80, 0x01, 0, 1};          // bins 149 to 151
  EXPECT_EQ(packed(stats), expected);
}

TEST(PackedStats, ReadsBackAndMergesAsTensorStatsDo) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 3000; ++round) {
    const TensorStats a = random_stats(random);
    const TensorStats b = random_stats(random);
    Bytes both = packed(a);
    const size_t a_size = both.size();
    pack_stats(b, both);
    std::span<const uint8_t> rest = both;
    TensorStats back;
    ASSERT_TRUE(take_stats(rest, back));
    ASSERT_EQ(back, a);
    ASSERT_EQ(rest.size(), both.size() - a_size);
    TensorCounts counts;
    ASSERT_TRUE(read_counts(both, counts));
    ASSERT_EQ(counts.n, a.n);
    ASSERT_EQ(counts.subnormal, a.subnormal);
    ASSERT_EQ(counts.lost, a.lost);
    ASSERT_EQ(counts.non_finite(), a.non_finite());

    TensorStats sum = a;
    sum.merge(b);
    int64_t n = 0;
    ASSERT_TRUE(add_stats(rest, back, n));
    ASSERT_EQ(back, sum);
    ASSERT_EQ(n, b.n);
    ASSERT_TRUE(rest.empty());
    Bytes merged;
    ASSERT_TRUE(merge_packed(packed(a), packed(b), merged));
    ASSERT_EQ(merged, packed(sum));
  }
}

TEST(PackedStats, ManyRecordsMergeOneByOne) {
  std::mt19937_64 random(2);
  Bytes a;
  Bytes b;
  Bytes expected;
  for (int site = 0; site < 50; ++site) {
    TensorStats first = random_stats(random);
    const TensorStats second = random_stats(random);
    pack_stats(first, a);
    pack_stats(second, b);
    first.merge(second);
    pack_stats(first, expected);
  }
  Bytes merged = {1, 2, 3};  // old content is overwritten
  ASSERT_TRUE(merge_packed(a, b, merged));
  EXPECT_EQ(merged, expected);
  b.push_back(0);  // one record more
  EXPECT_FALSE(merge_packed(a, b, merged));
  EXPECT_FALSE(merge_packed(b, a, merged));
}

TEST(PackedStats, MalformedRecordsAreRefused) {
  TensorStats stats;
  stats.n = 300;
  stats.min_abs = stats.max_abs = 1.0f;
  stats.exponents[149] = 128;
  stats.exponents[150] = 1;
  const Bytes good = packed(stats);
  const auto taken = [](std::span<const uint8_t> bytes) {
    TensorStats result;
    return take_stats(bytes, result);
  };
  ASSERT_TRUE(taken(good));
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(taken(std::span(good).first(size))) << size;
  }
  constexpr size_t kZero = 2, kMax = 10, kMin = 14, kFirstBin = 34, kBins = 36, kLast = 39;
  const auto with = [&good](size_t place, std::initializer_list<uint8_t> bytes) {
    Bytes changed = good;
    std::copy(bytes.begin(), bytes.end(), changed.begin() + static_cast<std::ptrdiff_t>(place));
    return changed;
  };
  EXPECT_TRUE(taken(with(kZero, {1})));
  EXPECT_FALSE(taken(with(0, {0x01, 0x02}))) << "a counter above n";
  EXPECT_FALSE(taken(with(kMax, {0, 0, 0x80, 0xbf}))) << "a negative magnitude";
  EXPECT_FALSE(taken(with(kMax, {0, 0, 0x80, 0x7f}))) << "an infinite largest magnitude";
  EXPECT_FALSE(taken(with(kMin, {0, 0, 0xc0, 0x7f}))) << "NaN";
  EXPECT_TRUE(taken(with(kMin, {0, 0, 0x80, 0x7f}))) << "no smallest magnitude";
  EXPECT_FALSE(taken(with(kFirstBin, {0x95, 0x02}))) << "a bin too many";
  EXPECT_FALSE(taken(with(kBins, {0}))) << "no bins, but a first one";
  EXPECT_FALSE(taken(with(kLast, {0}))) << "the last bin is empty";
  EXPECT_FALSE(taken(Bytes(12, 0xff))) << "more than 63 bits";
  const Bytes many = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0, 0, 0,
                      0,    0,    0,    0,    0,    0,    0,    0,    0,    0, 0, 0, 0, 0, 0,
                      0,    0,    0,    0,    0,    0,    0,    0,    0,    0, 0, 0, 0, 0};
  EXPECT_FALSE(taken(many)) << "counts whose sum would not fit";
}

TEST(Bins, Leb128Pairs) {
  std::array<int64_t, 277> counts{};
  Bytes blob;
  encode_bins(counts, blob);
  EXPECT_TRUE(blob.empty());
  counts[0] = 1;
  counts[149] = 300;
  counts[276] = int64_t{1} << 48;
  encode_bins(counts, blob);
  const Bytes expected = {0,    1,    0x95, 0x01, 0xac, 0x02, 0x94, 0x02,
                          0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40};
  EXPECT_EQ(blob, expected);
  std::array<int64_t, 277> back{};
  EXPECT_TRUE(decode_bins(blob, back));
  EXPECT_EQ(back, counts);
  std::array<int64_t, 26> fewer{};
  EXPECT_FALSE(decode_bins(blob, fewer));

  const std::vector<Bytes> malformed = {
      {5},
      {0x80},
      {5, 0},
      {5, 0x80},
      {5, 1, 5, 1},
      {6, 1, 5, 1},
      {0x95, 0x02, 1},
      {5, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}};
  for (const Bytes& bytes : malformed) EXPECT_FALSE(decode_bins(bytes, back));
}

}  // namespace
}  // namespace halfscope
