// SPDX-License-Identifier: MIT
// Runs without statistics for the tests of harm: lanes of two layers, loss curves that are given,
// and deviations that a test adds.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/rules/lane_facts.h"
#include "analysis/rules/rules.h"
#include "analysis/run_view.h"
#include "core/policy/policy.h"

namespace halfscope::test {

/// A lane whose layers a and b compute in these formats.
struct HarmLane {
  std::string name;
  FloatFormat read_a = kFp32, write_a = kFp32;
  FloatFormat read_b = read_a, write_b = write_a;
  /// The plan's format; by default the layer's.
  FloatFormat planned = read_a;
};

inline const HarmLane kReferenceLane{.name = "float32"};
inline const HarmLane kFp16Lane{.name = "fp16", .read_a = kFp16, .write_a = kFp16};
inline const HarmLane kBf16Lane{.name = "bf16", .read_a = kBf16, .write_a = kBf16};

using LossCurve = std::function<double(int64_t)>;
inline double falling_loss(int64_t step) {
  return 2.3 * std::exp(-0.02 * static_cast<double>(step));
}
/// The falling loss times a factor.
inline LossCurve falling_times(double factor) {
  return [factor](int64_t step) { return factor * falling_loss(step); };
}

inline LaneInfo harm_lane_info(const HarmLane& lane) {
  Plan plan;
  plan.name = lane.name;
  plan.defaults.read = plan.defaults.write = lane.planned;
  LaneInfo info;
  info.name = lane.name;
  info.backend = "emulated";
  info.plan_json = plan_to_json(plan);
  for (const bool first : {true, false}) {
    LayerInfo layer;
    layer.path = first ? "a" : "b";
    layer.op = "Gemm";
    layer.inputs = {first ? "input" : "a"};
    layer.read = first ? lane.read_a : lane.read_b;
    layer.write = first ? lane.write_a : lane.write_b;
    info.layers.push_back(layer);
    SiteInfo site{.path = layer.path,
                  .tensor = "activation",
                  .role = Role::activation,
                  .phase = Phase::forward,
                  .op = "Gemm",
                  .format = layer.write,
                  .shape = {4}};
    site.order = static_cast<int>(info.sites.size());
    info.sites.push_back(site);
  }
  return info;
}

/// Trains every lane along its curve.
inline RunView harm_training(const std::vector<std::pair<HarmLane, LossCurve>>& lanes,
                             int64_t steps = 100, const std::string& optimizer = "") {
  RunInfo info;
  info.optimizer = optimizer;
  info.steps_planned = steps;
  info.test_samples = 1000;
  for (const auto& [lane, curve] : lanes) info.lanes.push_back(harm_lane_info(lane));
  RunView run(std::move(info), RunStatus::complete);
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    for (int64_t step = 0; step < steps; ++step) {
      const double loss = lanes[static_cast<size_t>(lane)].second(step);
      run.add_step(lane, {.step = step, .loss = loss});
    }
  }
  return run;
}

/// float32 and a lane with the same loss except for a factor.
inline RunView trained_beside_float32(const HarmLane& lane, double factor = 1.001) {
  return harm_training({{kReferenceLane, falling_loss}, {lane, falling_times(factor)}});
}

/// Three batches of every lane.
inline RunView harm_inference(const std::vector<HarmLane>& lanes) {
  RunInfo info;
  info.inference = true;
  info.steps_planned = 3;
  info.test_samples = 1000;
  for (const HarmLane& lane : lanes) info.lanes.push_back(harm_lane_info(lane));
  RunView run(std::move(info), RunStatus::complete);
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    for (int64_t step = 0; step < 3; ++step) {
      run.add_step(lane, {.step = step, .loss = std::nan(""), .grad_norm = std::nan("")});
    }
  }
  return run;
}

/// Returns the findings of a rule.
inline std::vector<Finding> findings_of(const RunView& run, const std::string& rule) {
  std::vector<Finding> found;
  for (Finding& finding : run_rules(run)) {
    if (finding.rule == rule) found.push_back(std::move(finding));
  }
  return found;
}

}  // namespace halfscope::test
