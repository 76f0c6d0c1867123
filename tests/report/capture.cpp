// SPDX-License-Identifier: MIT
#include "tests/report/capture.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace halfscope::test {
namespace {

/// Returns the statistics that the rounded tensor has.
TensorStats after_rounding(TensorStats stats, const FloatFormat& format) {
  stats.pos_inf += stats.overflow;
  stats.zero += stats.underflow;
  stats.overflow = stats.underflow = 0;
  const int top = format.max_exponent() - kMinExponentBin;
  const int bottom = format.min_exponent() - format.mantissa_bits - kMinExponentBin;
  for (int bin = 0; bin < kExponentBins; ++bin) {
    if (bin > top || bin < bottom) stats.exponents[static_cast<size_t>(bin)] = 0;
  }
  stats.max_abs = std::min(stats.max_abs, static_cast<float>(format.max_finite()));
  return stats;
}

using ChangeStats = std::function<void(const SiteInfo&, int64_t step, TensorStats&)>;

/// Returns a copy with another description, in which lanes from `first` on change.
RunView copy_of(const RunView& run, RunInfo info, int first, const ChangeStats& stats,
                const std::function<void(StepRow&)>& row) {
  RunView copy(std::move(info), RunStatus::complete);
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    for (StepRow each : run.steps(lane)) {
      if (lane >= first) row(each);
      copy.add_step(lane, each);
    }
    for (const SiteInfo& site : run.lane(lane).sites) {
      for (StatsWindow window : run.windows(lane, site.order)) {
        if (lane >= first) stats(site, window.step, window.stats);
        copy.add_window(lane, site.order, window);
      }
    }
  }
  return copy;
}

}  // namespace

RunView captured(const RunSpec& spec) {
  const RunView full = make_run(spec);
  RunInfo info = full.info();
  info.lanes = {full.lane(1)};
  info.lanes[0].backend = "pytorch";
  info.steps_planned = 0;
  RunView run(info, RunStatus::complete);
  for (StepRow row : full.steps(1)) {
    row.grad_norm = std::nan("");  // not measured
    row.first_bad = -1;
    run.add_step(0, row);
  }
  for (const SiteInfo& site : full.lane(1).sites) {
    for (const StatsWindow window : full.windows(1, site.order)) {
      run.add_window(0, site.order,
                     {window.step, window.step_count, after_rounding(window.stats, site.format)});
    }
  }
  return run;
}

RunSpec spec_with_code() {
  RunSpec spec = healthy_spec();
  spec.steps = 60;
  layer_of(spec, "fc1").inputs = {"fc1/input"};
  const auto fc1 = std::find_if(spec.layers.begin(), spec.layers.end(),
                                [](const LayerSpec& layer) { return layer.path == "fc1"; });
  spec.layers.insert(fc1, {.path = "fc1/input", .op = "Function", .inputs = {"relu2"}});
  return spec;
}

RunView changed(const RunView& run, const std::function<void(const SiteInfo&, TensorStats&)>& stats,
                const std::function<void(StepRow&)>& row) {
  return copy_of(
      run, run.info(), 0,
      [&](const SiteInfo& site, int64_t /*step*/, TensorStats& each) { stats(site, each); }, row);
}

RunView changed_steps(const RunView& run, const ChangeStats& stats,
                      const std::function<void(StepRow&)>& row) {
  return copy_of(run, run.info(), run.lane_count() - 1, stats, row);
}

RunView described(const RunView& run, const std::function<void(RunInfo&)>& change) {
  RunInfo info = run.info();
  change(info);
  return copy_of(run, std::move(info), run.lane_count(), {}, {});
}

void fill(TensorStats& stats, double value) {
  const int64_t n = stats.n;
  stats = TensorStats{};
  stats.n = n;
  if (std::isnan(value)) {
    stats.nan = n;
  } else if (std::isinf(value)) {
    stats.pos_inf = n;
  } else {
    stats.zero = n;
  }
}

}  // namespace halfscope::test
