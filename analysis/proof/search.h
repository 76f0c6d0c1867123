// SPDX-License-Identifier: MIT
// Search: from evidence to the smallest change of a plan that cures a lane.
//
//   advice of the rules --fails--> what the advised lane still shows --more--> ... --passes-->
//   (or: formats of the whole lane, then every node in fp32 and halves of that)
//   --> members dropped one by one --> cheaper kinds of change for each --> other answers of its
//   size
//
// Everything is tried by a TrialBook; a search that ends early keeps the best edit it has.
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
  /// Formats that the training has beside the plan.
  std::optional<FloatFormat> state_format = std::nullopt, sum_format = std::nullopt;
  int64_t ranks = 1;  ///< of the training, and how they reduce
  Reduction reduction{};
  bool trains = false;
  PlanEdit advice{};                                ///< of the rules: what is tried first
  std::optional<double> loss_scale = std::nullopt;  ///< that suits the gradients, if known
  std::vector<LayerInfo> layers{};                  ///< of the original lane, in execution order
  /// The original lane as it was recorded, beside its reference; the lane is the last of the two.
  const RunView* evidence = nullptr;
  int lane = -1;
};

struct SearchResult {
  std::optional<PlanEdit> cure{};        ///< nothing if no edit that was tried passes
  std::vector<PlanEdit> alternatives{};  ///< of the same size or smaller that pass as well
  bool exhausted = false;                ///< the budget ended it
};

/// The original lane must have failed already.
SearchResult search(TrialBook& book, const SearchRequest& request);

/// Whether rules warn of a lane whose results are no further off than right ones may be.
bool is_doubtful(const RunView& run, std::span<const Finding> findings, int lane);

/// What each node of an edit does to the numbers while all other changes of it are in place.
std::vector<Cause> find_causes(TrialBook& book, const PlanEdit& edit);

/// Returns the changes of the whole lane that apply to its plan, in the order in which they are
/// tried.
std::vector<Change> lane_changes(const SearchRequest& request);

}  // namespace halfscope
