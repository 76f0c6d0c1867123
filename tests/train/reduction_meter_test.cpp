// SPDX-License-Identifier: MIT
// ReductionMeter and estimates for more ranks: numbers from NumPy with ml_dtypes, one element at a
// time, and growth that is known.
#include "core/observe/reduction_meter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/rules/rank_estimate.h"
#include "core/error.h"
#include "core/numeric/formats/rng.h"
#include "core/numeric/formats/round.h"
#include "core/observe/rank_check.h"
#include "emulation/measure/measure.h"

namespace halfscope {
namespace {

/// Returns the mean over terms[0 .. ranks) as the reduction delivers it for an element of `chunk`,
/// with all hops in `format`. Counts the additions that changed nothing in `row`. Computes one
/// element at a time; kernels and ReductionMeter are compared with it.
float reduce_element(const Reduction& how, const std::vector<RankAddition>& additions,
                     const FloatFormat& format, std::vector<float>& terms, ReductionError* row) {
  const float ranks = static_cast<float>(terms.size());
  const bool after = how.average == Reduction::Average::after;
  const bool stores_each = how.algorithm != Reduction::Algorithm::all_to_all;
  const auto stored = [&](float x) { return round_to_format(x, format).value; };
  for (float& term : terms) {
    term = stored(term);
    if (!after) term = stored(term / ranks);
  }
  for (const RankAddition& addition : additions) {
    float& to = terms[static_cast<size_t>(addition.to)];
    const float own = to, sent = terms[static_cast<size_t>(addition.from)];
    to = stores_each ? stored(own + sent) : own + sent;
    if (row == nullptr || own == 0.0f || sent == 0.0f) continue;
    ++row->additions;
    row->swamped += to == own || to == sent ? 1 : 0;
  }
  const float sum = terms[additions.empty() ? 0 : static_cast<size_t>(additions.back().to)];
  return stored(after ? sum / ranks : sum);
}

constexpr int64_t kElements = 200;

/// Numbers that any language can make: 24 bits of splitmix64(rank 2^32 + element), moved so that
/// their mean is not zero.
float gradient(int64_t rank, int64_t i) {
  const uint64_t word = splitmix64((static_cast<uint64_t>(rank) << 32) + static_cast<uint64_t>(i));
  const float fraction = static_cast<float>(word >> 40) * 0x1p-24f - 0.25f;
  return std::ldexp(fraction, static_cast<int>(i % 5));
}

std::vector<std::vector<float>> gradients(int64_t ranks, double scale) {
  std::vector<std::vector<float>> rows(static_cast<size_t>(ranks));
  for (int64_t rank = 0; rank < ranks; ++rank) {
    for (int64_t i = 0; i < kElements; ++i) {
      rows[static_cast<size_t>(rank)].push_back(gradient(rank, i) * static_cast<float>(scale));
    }
  }
  return rows;
}

/// Measures in two blocks.
ReductionError measured(const Reduction& how, const std::vector<std::vector<float>>& rows) {
  const FloatFormat format = how.format.value();
  const int64_t n = static_cast<int64_t>(rows[0].size()), middle = n / 3;
  ReductionMeter meter(how, static_cast<int64_t>(rows.size()), n,
                       [&](float* x, int64_t count) { round_array(x, x, count, format); });
  for (const int64_t begin : {int64_t{0}, middle}) {
    meter.add(begin, begin == 0 ? middle : n,
              [&](int64_t rank) { return rows[static_cast<size_t>(rank)].data() + begin; });
  }
  return meter.result();
}

TEST(ReductionMeter, AgreesWithNumPy) {
  struct Case {
    const char* reduction;
    int64_t ranks;
    double scale, error;
    int64_t additions, lost, overflow;
  };
  const Case cases[] = {
      {"ring:format=bf16,average=before", 64, 0x1p0, 0.008013856649, 12599, 522, 0},
      {"ring:format=bf16,average=after", 1024, 0x1p0, 0.03309860415, 204600, 111765, 0},
      {"tree:format=bf16,average=before", 1024, 0x1p0, 0.003097071241, 204551, 537, 0},
      {"halving:format=fp16,average=after", 256, 0x1p6, 0.0002806718789, 50998, 10, 21},
      {"all-to-all:format=bf16,average=after", 64, 0x1p0, 0.001525404569, 12600, 0, 0},
      {"ring:format=fp32,average=before", 64, 0x1p0, 1.141698245e-07, 12600, 0, 0},
      {"ring:format=fp16,average=before", 4096, 0x1p-8, 0.008064193724, 799170, 255421, 0},
      {"tree:format=fp16,average=after", 4096, 0x1p2, 0.000281664562, 818980, 289, 25},
  };
  for (const Case& each : cases) {
    const ReductionError row =
        measured(parse_reduction(each.reduction), gradients(each.ranks, each.scale));
    EXPECT_EQ(row.ranks, each.ranks);
    EXPECT_EQ(row.n, kElements);
    EXPECT_NEAR(row.error, each.error, 1e-8 * each.error) << each.reduction;
    EXPECT_EQ(row.additions, each.additions) << each.reduction;
    EXPECT_EQ(row.swamped, each.lost) << each.reduction;
    EXPECT_EQ(row.broken, each.overflow) << each.reduction;
  }
}

/// Also with numbers of ranks that are not powers of two, infinities and NaN.
TEST(ReductionMeter, AgreesWithOneElementAtATime) {
  for (const std::string& name : reduction_names()) {
    for (const char* options : {":format=bf16", ":format=fp16,average=after", ":format=e4m3fn",
                                ":format=fp32", ":format=e5m2:ftz,average=after"}) {
      const Reduction how = parse_reduction(name + options);
      for (const int64_t ranks : {2, 3, 7, 12, 16}) {
        std::vector<std::vector<float>> rows = gradients(ranks, 4096.0);
        rows[0][3] = std::numeric_limits<float>::infinity();
        rows[1][77] = std::numeric_limits<float>::quiet_NaN();
        rows[1][78] = 0.0f;
        const ReductionError row = measured(how, rows);
        ReductionError counts;
        double difference = 0.0, norm = 0.0;
        int64_t broken = 0;
        const int64_t chunks = reduction_chunks(how.algorithm, ranks);
        for (int64_t chunk = 0; chunk < chunks; ++chunk) {
          const auto additions = rank_additions(how.algorithm, ranks, chunk);
          const int64_t end = chunk_begin(kElements, chunks, chunk + 1);
          for (int64_t i = chunk_begin(kElements, chunks, chunk); i < end; ++i) {
            std::vector<float> terms;
            double mean = 0.0;
            for (const std::vector<float>& each : rows) {
              terms.push_back(each[static_cast<size_t>(i)]);
              mean += static_cast<double>(terms.back());
            }
            mean /= static_cast<double>(ranks);
            if (!std::isfinite(mean)) continue;
            const double x = static_cast<double>(
                reduce_element(how, additions, how.format.value(), terms, &counts));
            broken += std::isfinite(x) ? 0 : 1;
            if (!std::isfinite(x)) continue;
            difference += (x - mean) * (x - mean);
            norm += mean * mean;
          }
        }
        EXPECT_EQ(row.additions, counts.additions) << reduction_text(how) << " " << ranks;
        EXPECT_EQ(row.swamped, counts.swamped) << reduction_text(how) << " " << ranks;
        EXPECT_EQ(row.broken, broken) << reduction_text(how) << " " << ranks;
        const double error = difference == 0.0 ? 0.0 : std::sqrt(difference / norm);
        EXPECT_EQ(row.error, error) << reduction_text(how) << " " << ranks;
      }
    }
  }
}

std::vector<ReductionError> rows_of(const std::string& how, int64_t most) {
  std::vector<ReductionError> rows;
  const std::vector<std::vector<float>> all = gradients(most, 1.0);
  for (int64_t ranks = 2; ranks <= most; ranks *= 2) {
    rows.push_back(measured(parse_reduction(how), {all.begin(), all.begin() + ranks}));
  }
  return rows;
}

TEST(RankEstimate, ContainsTheSimulation) {
  for (const char* how : {"ring:format=bf16", "tree:format=bf16", "halving:format=fp16",
                          "all-to-all:format=bf16", "ring:format=fp32", "ring:format=fp16"}) {
    const std::vector<ReductionError> rows = rows_of(how, 1024);
    const Reduction reduction = parse_reduction(how);
    const auto estimates =
        estimate_more_ranks(reduction, reduction.format.value(), std::span(rows).first(6), 1024);
    ASSERT_EQ(estimates.size(), 4u) << how;
    for (size_t i = 0; i < estimates.size(); ++i) {
      EXPECT_EQ(estimates[i].ranks, rows[6 + i].ranks);
      EXPECT_LT(estimates[i].least, 1.5 * rows[6 + i].error) << how << " " << rows[6 + i].ranks;
      EXPECT_GT(estimates[i].most, rows[6 + i].error / 1.5) << how << " " << rows[6 + i].ranks;
      EXPECT_LT(estimates[i].most, 6.0 * rows[6 + i].error) << how << " " << rows[6 + i].ranks;
    }
  }
}

ReductionError row_of(int64_t ranks, double error, int64_t lost = 0) {
  return {.ranks = ranks, .n = 10, .error = error, .additions = 1000, .swamped = lost};
}

/// error^2 = 4 + 2 ranks in a chain; a tree keeps the mean square.
TEST(RankEstimate, ContinuesAKnownGrowth) {
  std::vector<ReductionError> rows;
  for (const int64_t ranks : {2, 4, 8, 12}) {
    rows.push_back(row_of(ranks, 1e-3 * std::sqrt(4.0 + 2.0 * static_cast<double>(ranks))));
  }
  const auto ring = estimate_more_ranks(parse_reduction("ring"), kBf16, rows);
  ASSERT_EQ(ring.size(), 9u) << "16 to 4096";
  EXPECT_EQ(ring[0].ranks, 16);
  EXPECT_NEAR(ring[0].least, 6e-3, 1e-12);
  EXPECT_NEAR(ring.back().most, 1e-3 * std::sqrt(4.0 + 8192.0), 1e-12);
  EXPECT_EQ(ring.back().lost, 0.0);
  const auto once = estimate_more_ranks(parse_reduction("all-to-all"), kBf16, rows);
  EXPECT_EQ(once.front().least, once.back().most);
  const auto fp32 = estimate_more_ranks(parse_reduction("all-to-all"), kFp32, rows);
  EXPECT_NEAR(fp32[0].most, 6e-3, 1e-12) << "a chain in the format itself";
}

/// A share like the square root of the ranks: 2% at 8, 16% at 512, and never more than all.
TEST(RankEstimate, ContinuesLostAdditions) {
  const std::vector<ReductionError> rows{row_of(2, 2e-3, 10), row_of(8, 2e-3, 20)};
  const auto ring = estimate_more_ranks(parse_reduction("ring"), kBf16, rows);
  const auto at = [&](int64_t ranks) {
    return *std::find_if(ring.begin(), ring.end(),
                         [&](const RankEstimate& each) { return each.ranks == ranks; });
  };
  EXPECT_NEAR(at(512).lost, 0.16, 1e-9);
  EXPECT_NEAR(at(512).least, 2e-3, 1e-12);
  EXPECT_NEAR(at(512).most, 2.0 * 0.16 * 0.16, 2e-3) << "the error of lost additions";
  // Many lost additions with a small error: 0.01 at a share of 20%, so 0.01 * 4 at 40%.
  const std::vector<ReductionError> harmless{row_of(2, 1e-2, 100), row_of(8, 1e-2, 200)};
  EXPECT_LT(estimate_more_ranks(parse_reduction("ring"), kBf16, harmless)[1].most, 0.05);
  const std::vector<ReductionError> first{row_of(2, 2e-3, 0), row_of(8, 2e-3, 10)};
  EXPECT_NEAR(estimate_more_ranks(parse_reduction("ring"), kBf16, first)[1].lost, 0.02, 1e-9);
  const std::vector<ReductionError> steep{row_of(2, 1e-3, 100), row_of(8, 1e-3, 900)};
  EXPECT_EQ(estimate_more_ranks(parse_reduction("ring"), kBf16, steep).back().lost, 1.0);
}

TEST(RankEstimate, NeedsEightRanksWithoutOverflow) {
  const Reduction ring = parse_reduction("ring");
  EXPECT_TRUE(estimate_more_ranks(ring, kBf16, {}).empty());
  std::vector<ReductionError> rows{row_of(2, 1e-3), row_of(4, 1e-3)};
  EXPECT_TRUE(estimate_more_ranks(ring, kBf16, rows).empty());
  rows.push_back(row_of(8, 1e-3));
  EXPECT_FALSE(estimate_more_ranks(ring, kBf16, rows).empty());
  rows.back().broken = 1;
  EXPECT_TRUE(estimate_more_ranks(ring, kBf16, rows).empty());
}

}  // namespace
}  // namespace halfscope
