// SPDX-License-Identifier: MIT
// Search: from evidence to the smallest change of a plan that cures a lane.
//
//   advice of the rules --fails--> what the advised lane still shows --more--> ... --passes-->
//   (or: formats of the whole lane, then every node in fp32 and halves of that)
//   --> members dropped one by one --> cheaper kinds of change for each --> other edits of the same
//   size
//
// A TrialBook runs every trial. A search that ends early keeps the best edit so far.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/causes/evidence.h"
#include "analysis/finding.h"
#include "analysis/proof/trial_book.h"

namespace halfscope {

struct SearchRequest {
  Plan original{};
  /// Formats that are set by the training, not by the plan.
  std::optional<FloatFormat> state_format = std::nullopt, sum_format = std::nullopt;
  int64_t ranks = 1;  ///< of the training; `reduction` is how they reduce
  Reduction reduction{};
  bool trains = false;
  PlanEdit advice{};                                ///< from the rules; tested first
  std::optional<double> loss_scale = std::nullopt;  ///< that suits the gradients, if known
  std::vector<LayerInfo> layers{};                  ///< of the original lane, in execution order
  /// The recorded original lane beside its reference; the lane is the last of the two.
  const RunView* evidence = nullptr;
  int lane = -1;
};

struct SearchResult {
  std::optional<PlanEdit> cure{};        ///< empty if no tested edit passes
  std::vector<PlanEdit> alternatives{};  ///< others that pass and are not larger
  bool exhausted = false;                ///< the budget ran out
};

/// Searches for the smallest edit that cures the lane. The original lane must have failed already.
SearchResult search(TrialBook& book, const SearchRequest& request);

/// Returns whether rules warn about a lane whose results are within the tolerance.
bool is_doubtful(const RunView& run, std::span<const Finding> findings, int lane);

/// Returns the fault of each node of an edit, measured while all other changes are in place.
std::vector<Cause> find_causes(TrialBook& book, const PlanEdit& edit);

/// Returns the changes of the whole lane that apply to its plan, in the order in which they are
/// tried.
std::vector<Change> lane_changes(const SearchRequest& request);

}  // namespace halfscope
