// SPDX-License-Identifier: MIT
#include "tests/zoo/trial.h"

#include <fmt/format.h>

#include <chrono>
#include <map>

#include "analysis/recorder.h"
#include "analysis/report/report.h"
#include "analysis/run_view.h"
#include "core/models/zoo/plans.h"
#include "core/policy/policy.h"
#include "core/train/lane_setup.h"

namespace halfscope::zoo {
namespace {

LaneConfig emulated_lane(const Plan& plan, const LossScalerConfig& scaler,
                         const Backend& backend = emulation_backend()) {
  return {.plan = plan, .scaler = scaler, .backend = &backend};
}

/// " [output 1.2%/3.4%, ...]": of each kind what the lane deviates most by, and what its reference
/// moved by an ulp does.
std::string measured_text(const RunView& run) {
  std::map<std::string, std::pair<double, double>> most;
  for (const Deviation& each : run.deviations(1)) {
    auto& [error, spread] = most[deviation_name(each.of)];
    if (!(each.error > error)) continue;
    error = each.error;
    spread = each.spread;
  }
  std::string text;
  for (const auto& [kind, values] : most) {
    text += fmt::format("{}{} {:.3g}%/{:.3g}%", text.empty() ? " [" : ", ", kind,
                        100.0 * values.first, 100.0 * values.second);
  }
  return text.empty() ? text : text + "]";
}

}  // namespace

bool is_alarm(const std::string& state) {
  return state == "attention" || state == "broken" || state == "cured";
}

Stage::Stage(const Case& which, std::filesystem::path folder)
    : case_(which),
      folder_(std::move(folder)),
      judge_(which, {.emulated = &emulation_backend(), .in_double = &float64_backend()}) {}

Trial Stage::run(const std::string& plan, const Backend& backend) {
  const auto begin = std::chrono::steady_clock::now();
  Trial trial;
  trial.case_id = case_.id;
  trial.plan = plan;
  trial.control = !case_.fails;
  const LaneChoice choice = case_.lane(plan);
  const std::vector<LaneConfig> lanes =
      with_references({emulated_lane(preset_plan("float32").value(), {}),
                       emulated_lane(choice.plan, choice.scaler, backend)});
  const std::filesystem::path file = folder_ / "run.hscope";
  const auto record = [&](RunInfo info) -> std::unique_ptr<TapSink> {
    info.version = "zoo";
    auto recorder = std::make_unique<Recorder>(file, Recorder::Options{.force = true});
    recorder->begin(info);
    return recorder;
  };
  const ErrorSampling errors{.enabled = true, .emulator = &emulation_backend()};
  Results results;
  if (setup().trains) {
    TrainConfig config = train_config(setup());
    config.errors = errors;
    config.lanes = lanes;
    config.sum_format = choice.sum_format;
    config.state_format = choice.state_format;
    results = train(config, setup().data, record);
  } else {
    results = infer(setup(), {.lanes = lanes, .errors = errors}, record);
  }
  const RunView run = RunView::open(file);
  const Report report = make_report(run);
  trial.verdict = verdict_name(report.lanes.at(1).state);
  trial.headline = report.verdict.headline + measured_text(run);
  const std::string of_run = verdict_name(report.verdict.state);
  trial.alarm = is_alarm(trial.verdict) || is_alarm(of_run);
  if (!is_alarm(trial.verdict) && of_run != trial.verdict) trial.verdict += "/" + of_run;

  trial.truth = judge_.judge(choice, results);
  trial.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return trial;
}

}  // namespace halfscope::zoo
