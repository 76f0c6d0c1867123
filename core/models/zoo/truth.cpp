// SPDX-License-Identifier: MIT
#include "core/models/zoo/truth.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/models/zoo/net.h"
#include "core/models/zoo/plans.h"
#include "core/numeric/formats/float_format.h"
#include "core/policy/policy.h"
#include "core/train/lane_setup.h"

namespace halfscope::zoo {
namespace {

const std::atomic<bool> kNeverStop{false};

/// Throws Error if a run was stopped: it has only a part of its results.
void check_finished(const std::atomic<bool>* stop) {
  if (stop != nullptr && *stop) throw Error("the run was stopped");
}

LaneConfig lane_on(const Backend& backend, const Plan& plan, const LossScalerConfig& scaler = {}) {
  return {.plan = plan, .scaler = scaler, .backend = &backend};
}

LaneConfig double_lane(const Backends& backends) {
  return lane_on(*backends.in_double, preset_plan("float64").value());
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

}  // namespace

TrainConfig train_config(const Setup& setup) {
  TrainConfig config = setup.train;
  config.build = [model = setup.model](int64_t) { return model; };
  return config;
}

Results train(const TrainConfig& config, const Dataset& data, const MakeSink& make_sink,
              const std::atomic<bool>* stop) {
  Trainer trainer(config, data);
  const std::unique_ptr<TapSink> sink = make_sink ? make_sink(trainer.describe()) : nullptr;
  Results results;
  const int last = static_cast<int>(config.lanes.size()) - 1;
  results.start = trainer.weights(last);
  trainer.run(
      sink.get(),
      [&](const std::vector<StepRow>& rows) { results.losses.push_back(rows.back().loss); },
      stop != nullptr ? *stop : kNeverStop);
  check_finished(stop);
  results.weights = trainer.weights(last);
  results.averages = trainer.averages(last);
  return results;
}

Results infer(const Setup& setup, const RunnerConfig& config, const MakeSink& make_sink,
              const std::atomic<bool>* stop) {
  Runner runner(setup.model, config, setup.data);
  const std::unique_ptr<TapSink> sink = make_sink ? make_sink(runner.describe()) : nullptr;
  runner.run(sink.get(), {}, stop != nullptr ? *stop : kNeverStop);
  check_finished(stop);
  Results results;
  results.outputs = runner.result(config.lanes.size() - 1).outputs;
  return results;
}

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

std::span<const double> last_fifth(std::span<const double> losses) {
  return losses.last(std::max<size_t>(losses.size() / 5, 1));
}

double final_loss(std::span<const double> losses) {
  const std::span<const double> last = last_fifth(losses);
  return std::accumulate(last.begin(), last.end(), 0.0) / static_cast<double>(last.size());
}

double loss_distance(const std::vector<double>& losses, const std::vector<double>& reference,
                     int64_t& non_finite) {
  for (const double loss : last_fifth(losses)) {
    if (!std::isfinite(loss)) ++non_finite;
  }
  const double wanted = final_loss(reference);
  const double size = std::max(std::fabs(wanted), 0.05 * std::fabs(reference.front()));
  const double difference = std::fabs(final_loss(losses) - wanted);
  return difference == 0.0 ? 0.0 : difference / size;
}

Harm harm_of(const Truth& truth, double ok, double harm) {
  if (truth.non_finite > 0 || !std::isfinite(truth.error)) return Harm::real;
  if (truth.error > std::max(harm, 4.0 * truth.drift)) return Harm::real;
  const bool near = truth.error <= std::max(ok, 2.0 * truth.drift) && truth.moved <= 0.5;
  return near ? Harm::none : Harm::unclear;
}

Judge::Judge(const Case& which, Backends backends, const std::atomic<bool>* stop)
    : measure_(which.measure),
      ok_(which.ok),
      harm_(which.harm),
      backends_(backends),
      stop_(stop),
      setup_(which.make()) {
  reference_ = full_precision(double_lane(backends_), {});
}

/// A run of one lane without any reduced-precision setting.
Results Judge::full_precision(const LaneConfig& lane, const NamedTensors& init) const {
  if (!setup_.trains) return infer(setup_, {.lanes = {lane}, .init = init, .every = 0}, {}, stop_);
  TrainConfig config = train_config(setup_);
  config.every = 0;
  config.lanes = {lane};
  config.init = init;
  return train(config, setup_.data, {}, stop_);
}

double Judge::error_of(const Results& x, int64_t& non_finite) const {
  switch (measure_) {
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

double Judge::moved_by(const Results& x) const {
  int64_t non_finite = 0;
  if (!setup_.trains) return 0.0;
  return distance(way(x.start, x.weights), way(reference_.start, reference_.weights), non_finite);
}

double Judge::drift_of(const std::string& format, double unit) {
  const auto known = drifts_.find(format);
  if (known != drifts_.end()) return known->second;
  int64_t non_finite = 0;
  const LaneConfig single = lane_on(*backends_.emulated, preset_plan("float32").value());
  double most = error_of(full_precision(single, {}), non_finite);
  for (uint64_t seed : {1u, 2u}) {
    if (!setup_.trains) break;
    const NamedTensors start =
        moved(starting_weights(setup_.model, setup_.train.seed, {}), unit, seed);
    most = std::max(most, error_of(full_precision(double_lane(backends_), start), non_finite));
  }
  return drifts_[format] = most;
}

Results Judge::results(const LaneChoice& lane) const {
  const LaneConfig alone = lane_on(*backends_.emulated, lane.plan, lane.scaler);
  if (!setup_.trains) return infer(setup_, {.lanes = {alone}, .every = 0}, {}, stop_);
  TrainConfig config = train_config(setup_);
  config.every = 0;
  config.lanes = {alone};
  config.sum_format = lane.sum_format;
  config.state_format = lane.state_format;
  return train(config, setup_.data, {}, stop_);
}

Truth Judge::judge(const LaneChoice& lane, const Results& results) {
  Truth truth;
  const FloatFormat format = working_format(lane);
  truth.drift = drift_of(format_name(format), FloatFormat::power_of_two(-format.mantissa_bits));
  truth.error = error_of(results, truth.non_finite);
  truth.moved = moved_by(results);
  truth.harm = harm_of(truth, ok_, harm_);
  return truth;
}

}  // namespace halfscope::zoo
