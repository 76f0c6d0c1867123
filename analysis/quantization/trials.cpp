// SPDX-License-Identifier: MIT
#include "analysis/quantization/trials.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "core/data/shapes.h"
#include "core/graph/op_def.h"
#include "core/train/feed.h"
#include "core/train/lane_setup.h"
#include "core/train/runner.h"

namespace halfscope {
namespace {

constexpr double kEndless = std::numeric_limits<double>::infinity();
constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

/// Sums of squares of differences and of the reference.
struct Noise {
  double noise = 0.0, signal = 0.0;
  bool broken = false;

  void add(std::span<const float> values, std::span<const float> reference) {
    for (size_t i = 0; i < values.size(); ++i) {
      const auto x = static_cast<double>(values[i]), y = static_cast<double>(reference[i]);
      if (!std::isfinite(y)) continue;
      broken = broken || !std::isfinite(x);
      noise += (x - y) * (x - y);
      signal += y * y;
    }
  }
  double error() const {
    if (broken) return kEndless;
    if (noise == 0.0) return 0.0;
    return signal == 0.0 ? kEndless : std::sqrt(noise / signal);
  }
};

/// The first batch of the data, run under a plan.
struct FirstBatch {
  Executable executable;
  std::unique_ptr<Program> program;

  FirstBatch(const Model& network, const Plan& plan, const NamedTensors& weights,
             const Dataset& data, const Backend& backend)
      : executable(lower_inference(network, plan)), program(backend.compile(executable)) {
    write_weights(*program, executable.graph, weights, {.plan = plan, .scaler = {}});
    Feed feed(executable, data);
    std::vector<int64_t> which(static_cast<size_t>(std::min(feed.batch(), data.test.size())));
    std::iota(which.begin(), which.end(), int64_t{0});
    feed.write(executable, *program, data.test, which);
    program->set_random(0, 0);
    program->run(Entry::eval, {});
  }

  /// Results of the products with each key, in order of execution.
  std::map<ProductKey, std::vector<ValueId>> results() const {
    std::map<ProductKey, std::vector<ValueId>> all;
    for (const NodeId id : executable.entry(Entry::eval)) {
      const Node& node = executable.graph.node(id);
      if (find_op(node.op).sums_products()) {
        all[{node.path, node.op}].push_back(node.outputs[0]);
      }
    }
    return all;
  }
};

}  // namespace

double PlanScore::accuracy() const noexcept {
  return scored > 0 ? static_cast<double>(right) / static_cast<double>(scored) : kNotMeasured;
}

double PlanScore::quality() const noexcept {
  if (mean_iou) return *mean_iou;
  if (scored > 0) return accuracy();
  return precision.value_or(kNotMeasured);
}

double decibels(double error) { return error == 0.0 ? kEndless : -20.0 * std::log10(error); }

PlanTrials::PlanTrials(Model network, NamedTensors weights, const Dataset& data,
                       SampleLabels labels, const Backend& backend, const std::atomic<bool>& stop)
    : network_(std::move(network)),
      weights_(std::move(weights)),
      data_(data),
      labels_(std::move(labels)),
      backend_(backend),
      stop_(stop),
      reference_(run(Plan{}, &outputs_, &batch_)) {}

PlanScore PlanTrials::run(const Plan& plan, NamedTensors* outputs, int64_t* batch) const {
  RunnerConfig config;
  config.lanes = {{.plan = plan, .scaler = {}, .backend = &backend_}};
  config.init = weights_;
  config.every = 0;
  config.labels = labels_;
  Runner runner(network_, config, data_);
  runner.run(nullptr, {}, stop_);
  const Runner::Result& result = runner.result(0);
  PlanScore score{.right = result.right, .scored = result.scored};
  if (result.classes) score.mean_iou = result.classes->mean_iou();
  if (const auto boxes = detection_score(data_, result.outputs)) score.precision = boxes->half;
  Noise noise;
  for (const auto& [name, tensor] : result.outputs) {
    const auto found = outputs_.find(name);
    if (found != outputs_.end()) noise.add(tensor.data, found->second.data);
  }
  score.error = noise.error();
  if (outputs != nullptr) *outputs = result.outputs;
  if (batch != nullptr) *batch = runner.batch();
  return score;
}

PlanScore PlanTrials::score(const Plan& plan) const { return run(plan, nullptr, nullptr); }

bool PlanTrials::passes(const PlanScore& score, const Tolerance& tolerance) const {
  if (std::isnan(score.quality())) return score.error <= tolerance.error;
  constexpr double kRounding = 1e-12;
  return reference_.quality() - score.quality() <= tolerance.quality + kRounding;
}

std::vector<double> PlanTrials::errors_of(const Plan& plan,
                                          std::span<const ProductRanges> products) const {
  const FirstBatch reference(network_, Plan{}, weights_, data_, backend_);
  const FirstBatch lane(network_, plan, weights_, data_, backend_);
  const auto ours = lane.results(), theirs = reference.results();
  std::vector<double> errors;
  for (const ProductRanges& product : products) {
    const auto a = ours.find(key_of(product)), b = theirs.find(key_of(product));
    if (a == ours.end() || b == theirs.end() || a->second.size() != b->second.size()) {
      errors.push_back(kNotMeasured);
      continue;
    }
    Noise noise;
    for (size_t i = 0; i < a->second.size(); ++i) {
      noise.add(lane.program->read(a->second[i]).data, reference.program->read(b->second[i]).data);
    }
    errors.push_back(noise.error());
  }
  return errors;
}

KeptSearch find_kept(const PlanTrials& trials, const QuantizationSpec& spec,
                     std::span<const ProductRanges> products,
                     const std::vector<ProductKey>& worst_first,
                     const std::set<ProductKey>& kept_anyway, const Tolerance& tolerance,
                     const std::atomic<bool>& stop) {
  KeptSearch search;
  std::map<std::set<ProductKey>, PlanScore> known;
  const auto score_of = [&](const std::set<ProductKey>& kept) {
    const auto [place, is_new] = known.try_emplace(kept);
    if (is_new) {
      std::set<ProductKey> all = kept_anyway;
      all.insert(kept.begin(), kept.end());
      place->second = trials.score(quantized_plan(spec, products, all));
      ++search.trials;
    }
    return place->second;
  };
  const auto passes = [&](const std::set<ProductKey>& kept) {
    return trials.passes(score_of(kept), tolerance);
  };
  const auto first = [&](size_t count) {
    return std::set<ProductKey>(worst_first.begin(),
                                worst_first.begin() + static_cast<int64_t>(count));
  };
  search.all = score_of({});
  size_t fails = 0, enough = 0;
  while (!stop && !passes(first(enough))) {
    if (enough == worst_first.size()) {
      search.score = score_of(first(enough));
      return search;
    }
    fails = enough;
    enough = std::min(worst_first.size(), std::max<size_t>(1, 2 * enough));
  }
  while (!stop && enough > fails + 1) {
    const size_t middle = fails + (enough - fails) / 2;
    (passes(first(middle)) ? enough : fails) = middle;
  }
  std::set<ProductKey> kept = first(enough);
  // The most harmless of them first: they are most likely to be given up.
  for (size_t i = enough; i-- > 0 && !stop;) {
    std::set<ProductKey> fewer = kept;
    fewer.erase(worst_first[i]);
    if (passes(fewer)) kept = std::move(fewer);
  }
  for (const ProductKey& key : worst_first) {
    if (stop || !kept.contains(key)) continue;
    std::set<ProductKey> fewer = kept;
    fewer.erase(key);
    search.kept.push_back({key, score_of(fewer)});
  }
  if (!stop) search.score = score_of(kept);
  search.found = !stop;
  return search;
}

}  // namespace halfscope
