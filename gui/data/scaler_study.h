// SPDX-License-Identifier: MIT
// What the loss scalers of all frameworks would have done with the gradients of a recorded lane.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "analysis/plans/scaler_traces.h"
#include "analysis/run_view.h"

namespace halfscope::gui {

struct ScalerStudy {
  std::string problem{}, hint{};  ///< why there is nothing to show; empty if there is
  ScaleDemands demands{};
  int64_t first_step = 0;  ///< the step of demands.steps[0]
  std::vector<ScalerTrace> traces{};
  std::vector<int> same_as{};  ///< by trace: the first one with the same scales in all steps
  std::vector<LimitSite> ceilings{}, floors{};
};

/// Runs the scalers of all frameworks, with their defaults, and the static scale that overflows in
/// no step (the largest such power of two), if there is one.
ScalerStudy study_scalers(const RunView& run, int lane);

/// The study of the selected lane, made in the background where it takes long.
class ScalerStudies {
 public:
  ScalerStudies() = default;
  ScalerStudies(const ScalerStudies&) = delete;
  ScalerStudies& operator=(const ScalerStudies&) = delete;

  /// Returns the lane's study; null while it is being made. While a run grows, an older one of the
  /// same lane is returned until the new one is ready.
  const ScalerStudy* of(const std::shared_ptr<const RunView>& run, int lane);

 private:
  std::shared_ptr<const RunView> view_{}, pending_view_{};
  int lane_ = -1, pending_lane_ = -1;
  std::shared_ptr<const ScalerStudy> study_{};
  std::future<std::shared_ptr<const ScalerStudy>> pending_{};
};

}  // namespace halfscope::gui
