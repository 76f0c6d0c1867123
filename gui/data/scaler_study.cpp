// SPDX-License-Identifier: MIT
#include "gui/data/scaler_study.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "core/error.h"

namespace halfscope::gui {
namespace {

/// Statistics that are read without a thread of their own: a fraction of a second.
constexpr int64_t kQuick = 20'000;

int64_t statistics_of(const RunView& run, int lane) {
  int64_t windows = 0;
  for (const SiteInfo& site : run.lane(lane).sites) {
    if (site.phase == Phase::backward)
      windows += static_cast<int64_t>(run.windows(lane, site.order).size());
  }
  return windows;
}

}  // namespace

ScalerStudy study_scalers(const RunView& run, int lane) {
  ScalerStudy study;
  if (run.info().inference) {
    study.problem = "Inference has no gradients and no loss scale.";
    return study;
  }
  try {
    study.demands = recorded_demands(run, lane);
  } catch (const Error& error) {
    study.problem = error.what();
    study.hint = error.hint();
    return study;
  }
  if (!run.steps(lane).empty()) study.first_step = run.steps(lane).front().step;
  std::vector<LossScalerConfig> scalers = usual_scalers();
  if (const double scale = fitting_static_scale(study.demands); scale > 0.0)
    scalers.push_back(parse_loss_scale(fmt::format("static:{}", scale)));
  for (const LossScalerConfig& each : scalers) {
    study.traces.push_back(trace_scaler(each, study.demands));
    const ScalerTrace& trace = study.traces.back();
    size_t first = 0;
    while (study.traces[first].changes != trace.changes || study.traces[first].steps != trace.steps)
      ++first;
    study.same_as.push_back(static_cast<int>(first));
  }
  study.ceilings = limiting_sites(study.demands, true);
  study.floors = limiting_sites(study.demands, false);
  return study;
}

const ScalerStudy* ScalerStudies::of(const std::shared_ptr<const RunView>& run, int lane) {
  if (pending_.valid() && pending_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
    study_ = pending_.get();
    view_ = std::exchange(pending_view_, nullptr);
    lane_ = pending_lane_;
  }
  if (view_ == run && lane_ == lane) return study_.get();
  const bool older =
      study_ && lane_ == lane && view_ && view_->info().command == run->info().command;
  if (pending_.valid()) return older ? study_.get() : nullptr;
  const auto make = [run, lane] {
    return std::make_shared<const ScalerStudy>(study_scalers(*run, lane));
  };
  if (statistics_of(*run, lane) <= kQuick) {
    study_ = make();
    view_ = run;
    lane_ = lane;
    return study_.get();
  }
  pending_view_ = run;
  pending_lane_ = lane;
  pending_ = std::async(std::launch::async, make);
  return older ? study_.get() : nullptr;
}

}  // namespace halfscope::gui
