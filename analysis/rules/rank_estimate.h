// SPDX-License-Identifier: MIT
// Estimates what a reduction would do over more ranks than a run had, from the rows that the run
// recorded for fewer of them. docs/scale.md has the model and how far off it was.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/rules/lane_facts.h"
#include "core/numeric/sums/reduction.h"
#include "core/observe/recording.h"

namespace halfscope {

/// The most ranks that the model was compared with a simulation for.
inline constexpr int64_t kMostRanks = 4096;
/// The fewest ranks of a run that allow an estimate: rows for 2, 4 and 8.
inline constexpr int64_t kRanksToEstimate = 8;

struct RankEstimate {
  int64_t ranks = 0;
  /// Range of ReductionError::error: if lost additions cause no error that grows, and if they do.
  double least = 0.0, most = 0.0;
  double lost = 0.0;  ///< share of additions that change nothing
};

/// Returns estimates for each power of two above the rows' ranks, up to `most`. `rows` belong
/// to one variable and step, by number of ranks; numbers are sent in `format`. Returns nothing if
/// the rows are too few or a sum overflowed, which no growth explains.
std::vector<RankEstimate> estimate_more_ranks(const Reduction& how, const FloatFormat& format,
                                              std::span<const ReductionError> rows,
                                              int64_t most = kMostRanks);

/// Reductions of one variable at the step with the largest error, by number of ranks.
struct RecordedReduction {
  int site = -1;
  int64_t step = -1;
  std::vector<ReductionError> rows;     ///< for 2, 4, 8 ... and all ranks
  std::vector<RankEstimate> estimates;  ///< for more ranks
};

/// Returns one for each reduced variable of a lane, in execution order; empty if the lane has one
/// rank.
std::vector<RecordedReduction> recorded_reductions(const LaneFacts& lane);

}  // namespace halfscope
