// SPDX-License-Identifier: MIT
#include "tests/zoo/trial.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>

#include "analysis/recorder.h"
#include "analysis/report/report.h"
#include "analysis/run_view.h"
#include "core/models/zoo/net.h"
#include "core/models/zoo/plans.h"
#include "core/numeric/formats/float_format.h"
#include "core/policy/policy.h"
#include "core/train/lane_setup.h"
#include "core/train/runner.h"

namespace halfscope::zoo {
namespace {

const std::atomic<bool> kNoStop{false};

LaneConfig double_lane() {
  return {.plan = preset_plan("float64").value(), .scaler = {}, .backend = &float64_backend()};
}

LaneConfig emulated_lane(const Plan& plan, const LossScalerConfig& scaler,
                         const Backend& backend = emulation_backend()) {
  return {.plan = plan, .scaler = scaler, .backend = &backend};
}

TrainConfig train_config(const Setup& setup) {
  TrainConfig config = setup.train;
  config.build = [model = setup.model](int64_t) { return model; };
  return config;
}

/// Trains; `sink` may be null. Returns the results of the last lane.
Results train(const TrainConfig& config, const Dataset& data,
              const std::function<std::unique_ptr<TapSink>(const RunInfo&)>& make_sink) {
  Trainer trainer(config, data);
  const std::unique_ptr<TapSink> sink = make_sink ? make_sink(trainer.describe()) : nullptr;
  Results results;
  const int last = static_cast<int>(config.lanes.size()) - 1;
  results.start = trainer.weights(last);
  trainer.run(
      sink.get(),
      [&](const std::vector<StepRow>& rows) { results.losses.push_back(rows.back().loss); },
      kNoStop);
  results.weights = trainer.weights(last);
  results.averages = trainer.averages(last);
  return results;
}

Results infer(const Setup& setup, const RunnerConfig& config,
              const std::function<std::unique_ptr<TapSink>(const RunInfo&)>& make_sink) {
  Runner runner(setup.model, config, setup.data);
  const std::unique_ptr<TapSink> sink = make_sink ? make_sink(runner.describe()) : nullptr;
  runner.run(sink.get(), {}, kNoStop);
  Results results;
  results.outputs = runner.result(config.lanes.size() - 1).outputs;
  return results;
}

/// Returns tensors with every value moved up or down by that share of itself.
NamedTensors moved(NamedTensors tensors, double unit, uint64_t seed) {
  Draw draw(seed);
  for (auto& [path, tensor] : tensors) {
    for (float& x : tensor.data) {
      const double sign = draw.uniform() < 0.5 ? -1.0 : 1.0;
      x = static_cast<float>(static_cast<double>(x) * (1.0 + sign * unit));
    }
  }
  return tensors;
}

double last_mean(const std::vector<double>& losses, size_t count) {
  double sum = 0.0;
  for (size_t i = losses.size() - count; i < losses.size(); ++i) sum += losses[i];
  return sum / static_cast<double>(count);
}

}  // namespace

double distance(const NamedTensors& x, const NamedTensors& reference, int64_t& non_finite) {
  double difference = 0.0, size = 0.0;
  for (const auto& [name, tensor] : reference) {
    const std::vector<float>& values = x.at(name).data;
    for (size_t i = 0; i < tensor.data.size(); ++i) {
      const double wanted = static_cast<double>(tensor.data[i]);
      if (!std::isfinite(wanted)) continue;
      size += wanted * wanted;
      const double value = static_cast<double>(values[i]);
      if (!std::isfinite(value)) {
        ++non_finite;
        continue;
      }
      difference += (value - wanted) * (value - wanted);
    }
  }
  return difference == 0.0 ? 0.0 : std::sqrt(difference / size);
}

NamedTensors way(const NamedTensors& start, const NamedTensors& end) {
  NamedTensors result = end;
  for (auto& [name, tensor] : result) {
    const std::vector<float>& from = start.at(name).data;
    for (size_t i = 0; i < from.size(); ++i) tensor.data[i] -= from[i];
  }
  return result;
}

double loss_distance(const std::vector<double>& losses, const std::vector<double>& reference,
                     int64_t& non_finite) {
  const size_t count = std::max<size_t>(reference.size() / 5, 1);
  for (size_t i = losses.size() - count; i < losses.size(); ++i) {
    if (!std::isfinite(losses[i])) ++non_finite;
  }
  const double wanted = last_mean(reference, count);
  const double size = std::max(std::fabs(wanted), 0.05 * std::fabs(reference.front()));
  const double difference = std::fabs(last_mean(losses, count) - wanted);
  return difference == 0.0 ? 0.0 : difference / size;
}

Harm harm_of(const Truth& truth, double ok, double harm) {
  if (truth.non_finite > 0 || !std::isfinite(truth.error)) return Harm::real;
  if (truth.error > std::max(harm, 4.0 * truth.drift)) return Harm::real;
  const bool near = truth.error <= std::max(ok, 2.0 * truth.drift) && truth.moved <= 0.5;
  return near ? Harm::none : Harm::unclear;
}

bool is_alarm(const std::string& state) {
  return state == "attention" || state == "broken" || state == "cured";
}

Stage::Stage(const Case& which, std::filesystem::path folder)
    : case_(which), folder_(std::move(folder)), setup_(which.make()) {
  reference_ = full_precision(double_lane(), {});
}

/// A run of one lane without any reduced-precision setting.
Results Stage::full_precision(const LaneConfig& lane, const NamedTensors& init) const {
  if (!setup_.trains) return infer(setup_, {.lanes = {lane}, .init = init, .every = 0}, {});
  TrainConfig config = train_config(setup_);
  config.every = 0;
  config.lanes = {lane};
  config.init = init;
  return train(config, setup_.data, {});
}

double Stage::error_of(const Results& x, int64_t& non_finite) const {
  switch (case_.measure) {
    case Measure::outputs:
      return distance(x.outputs, reference_.outputs, non_finite);
    case Measure::weights:
      return distance(way(x.start, x.weights), way(reference_.start, reference_.weights),
                      non_finite);
    case Measure::averages:
      return distance(way(x.start, x.averages), way(reference_.start, reference_.averages),
                      non_finite);
    case Measure::loss:
      break;
  }
  return loss_distance(x.losses, reference_.losses, non_finite);
}

double Stage::moved_by(const Results& x) const {
  int64_t non_finite = 0;
  if (!setup_.trains) return 0.0;
  return distance(way(x.start, x.weights), way(reference_.start, reference_.weights), non_finite);
}

double Stage::drift_of(const std::string& format, double unit) {
  const auto known = drifts_.find(format);
  if (known != drifts_.end()) return known->second;
  int64_t non_finite = 0;
  const LaneConfig single = emulated_lane(preset_plan("float32").value(), {});
  double most = error_of(full_precision(single, {}), non_finite);
  for (uint64_t seed : {1u, 2u}) {
    if (!setup_.trains) break;
    const NamedTensors start =
        moved(starting_weights(setup_.model, setup_.train.seed, {}), unit, seed);
    most = std::max(most, error_of(full_precision(double_lane(), start), non_finite));
  }
  return drifts_[format] = most;
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

Truth Stage::judge(const LaneChoice& lane, const Results& results) {
  Truth truth;
  const FloatFormat format = working_format(lane);
  truth.drift = drift_of(format_name(format), FloatFormat::power_of_two(-format.mantissa_bits));
  truth.error = error_of(results, truth.non_finite);
  truth.moved = moved_by(results);
  truth.harm = harm_of(truth, case_.ok, case_.harm);
  return truth;
}

Truth Stage::truth(const LaneChoice& lane) {
  const LaneConfig alone = emulated_lane(lane.plan, lane.scaler);
  if (!setup_.trains) return judge(lane, infer(setup_, {.lanes = {alone}, .every = 0}, {}));
  TrainConfig config = train_config(setup_);
  config.every = 0;
  config.lanes = {alone};
  config.sum_format = lane.sum_format;
  config.state_format = lane.state_format;
  return judge(lane, train(config, setup_.data, {}));
}

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
  if (setup_.trains) {
    TrainConfig config = train_config(setup_);
    config.errors = errors;
    config.lanes = lanes;
    config.sum_format = choice.sum_format;
    config.state_format = choice.state_format;
    results = train(config, setup_.data, record);
  } else {
    results = infer(setup_, {.lanes = lanes, .errors = errors}, record);
  }
  const RunView run = RunView::open(file);
  const Report report = make_report(run);
  trial.verdict = verdict_name(report.lanes.at(1).state);
  trial.headline = report.verdict.headline + measured_text(run);
  const std::string of_run = verdict_name(report.verdict.state);
  trial.alarm = is_alarm(trial.verdict) || is_alarm(of_run);
  if (!is_alarm(trial.verdict) && of_run != trial.verdict) trial.verdict += "/" + of_run;

  trial.truth = judge(choice, results);
  trial.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return trial;
}

}  // namespace halfscope::zoo
