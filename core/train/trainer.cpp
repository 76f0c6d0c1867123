// SPDX-License-Identifier: MIT
#include "core/train/trainer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/numeric/rng.h"

namespace halfscope {
namespace {

/// byte / 255 in fp32.
constexpr std::array<float, 256> kPixelValues = [] {
  std::array<float, 256> values{};
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) / 255.0f;
  return values;
}();

}  // namespace

struct Trainer::Lane {
  LaneConfig config;
  Executable executable;
  std::unique_ptr<Program> program;
  LossScalerState scaler;
  int64_t updates = 0;  ///< optimizer steps done, for Adam's bias correction
  std::vector<TensorStats> stats;
};

BatchOrder::BatchOrder(int64_t samples, int64_t batch, uint64_t seed, bool shuffle)
    : samples_(samples), batch_(batch), seed_(seed), shuffle_(shuffle) {}

std::vector<int64_t> BatchOrder::batch(int64_t step) const {
  const int64_t per_epoch = samples_ / batch_;
  const int64_t epoch = step / per_epoch;
  if (epoch != epoch_) {
    permutation_.resize(static_cast<size_t>(samples_));
    std::iota(permutation_.begin(), permutation_.end(), int64_t{0});
    if (shuffle_) {  // Fisher-Yates; the modulo's bias is below samples / 2^64
      const uint64_t base = splitmix64(seed_ ^ 0x5368756666u) + (static_cast<uint64_t>(epoch) << 40);
      for (int64_t i = samples_ - 1; i > 0; --i) {
        const uint64_t j = splitmix64(base + static_cast<uint64_t>(i)) % static_cast<uint64_t>(i + 1);
        std::swap(permutation_[static_cast<size_t>(i)], permutation_[j]);
      }
    }
    epoch_ = epoch;
  }
  const auto first = permutation_.begin() + (step % per_epoch) * batch_;
  return {first, first + batch_};
}

Trainer::Trainer(const TrainConfig& config, const Dataset& data)
    : config_(config), data_(data),
      model_(build_model(config.model, config.batch, data.sample_shape, data.classes)) {
  if (config_.batch < 1 || config_.batch > data_.train.size()) {
    throw usage_error("batch size " + std::to_string(config_.batch) + " does not fit the data",
                      "use 1 to " + std::to_string(data_.train.size()));
  }
  for (const Split* split : {&data_.train, &data_.test}) {
    for (const int32_t label : split->labels) {
      if (label < 0 || label >= data_.classes) {
        throw Error("label " + std::to_string(label) + " in the data set " + data_.name + " is not in 0.." +
                    std::to_string(data_.classes - 1));
      }
    }
  }
  NamedTensors weights = initial_weights(model_.graph, config_.seed);
  for (const auto& [path, tensor] : config_.init) {
    const auto found = weights.find(path);
    if (found == weights.end()) {
      std::string paths;
      for (const auto& [known, unused] : weights) paths += (paths.empty() ? "" : ", ") + known;
      throw usage_error("initial weights: the model has no variable " + path, "variables: " + paths);
    }
    if (found->second.shape != tensor.shape) {
      throw usage_error("initial weights: " + path + " has shape " + to_string(tensor.shape) +
                        ", the model needs " + to_string(found->second.shape));
    }
    found->second = tensor;
  }
  for (const LaneConfig& lane_config : config_.lanes) {
    auto lane = std::make_unique<Lane>();
    lane->config = lane_config;
    lane->executable = lower(model_, lane_config.plan, config_.optimizer);
    lane->program = lane_config.backend->compile(lane->executable);
    lane->scaler = initial_state(lane_config.scaler);
    for (const Variable& variable : lane->executable.graph.variables()) {
      const auto found = weights.find(variable.path);
      if (found != weights.end()) lane->program->write(variable.value, found->second.data);
    }
    lanes_.push_back(std::move(lane));
  }
}

Trainer::~Trainer() = default;

RunInfo Trainer::describe() const {
  RunInfo info;
  info.model = model_.name;
  info.data = data_.name;
  info.optimizer = optimizer_text(config_.optimizer);
  info.batch = config_.batch;
  info.steps_planned = config_.steps;
  info.classes = data_.classes;
  info.train_samples = data_.train.size();
  info.test_samples = data_.test.size();
  info.seed = config_.seed;
  info.every = config_.every;
  for (const auto& lane : lanes_) {
    LaneInfo lane_info;
    lane_info.name = lane->config.plan.name;
    lane_info.backend = lane->config.backend->name();
    lane_info.plan_json = plan_to_json(lane->config.plan);
    lane_info.layers = lane->executable.layers;
    // A program that computes in double has no formats, hence no sites.
    if (!lane->config.plan.double_precision) {
      for (const Tap& tap : lane->executable.taps) lane_info.sites.push_back(tap.site);
    }
    info.lanes.push_back(std::move(lane_info));
  }
  return info;
}

void Trainer::write_batch(Lane& lane, const Split& split, const std::vector<int64_t>& indices) {
  const int64_t size = element_count(data_.sample_shape);
  pixels_.assign(static_cast<size_t>(config_.batch * size), 0.0f);
  labels_.assign(static_cast<size_t>(config_.batch), -1);  // -1: no sample here
  for (size_t i = 0; i < indices.size(); ++i) {
    const uint8_t* source = split.pixels.data() + indices[i] * size;
    float* target = pixels_.data() + static_cast<int64_t>(i) * size;
    for (int64_t p = 0; p < size; ++p) target[p] = kPixelValues[source[p]];
    labels_[i] = split.labels[static_cast<size_t>(indices[i])];
  }
  lane.program->write(lane.executable.input, pixels_);
  lane.program->write(lane.executable.labels, labels_);
}

StepRow Trainer::step_lane(Lane& lane, int64_t step, bool record) {
  const auto start = std::chrono::steady_clock::now();
  const Executable& exe = lane.executable;
  Program& program = *lane.program;
  StepRow row;
  row.step = step;
  row.loss_scale = lane.scaler.scale;
  if (record) {
    lane.stats.assign(exe.taps.size(), TensorStats{});
  } else {
    lane.stats.clear();
  }
  program.write_scalar(exe.loss_scale, lane.scaler.scale);
  program.run(Entry::grad, lane.stats);
  row.loss = program.read_scalar(exe.loss);
  row.accuracy = program.read_scalar(exe.accuracy);
  const double sum_sq = program.read_scalar(exe.gradient_norm);
  row.grad_norm = std::sqrt(sum_sq) / row.loss_scale;
  const bool finite = std::isfinite(sum_sq);
  // As torch: the inverse is taken in double and rounded to fp32. Of a scale that has collapsed
  // below 2^-128 it is infinite, and 0 * inf would make NaN of every weight.
  const float inverse_scale = static_cast<float>(1.0 / static_cast<double>(lane.scaler.scale));
  row.skipped = skips(lane.config.scaler, finite && std::isfinite(inverse_scale));
  if (!row.skipped) {
    ++lane.updates;
    const double t = static_cast<double>(lane.updates);
    program.write_scalar(exe.inverse_scale, inverse_scale);
    program.write_scalar(exe.learning_rate, config_.optimizer.learning_rate);
    program.write_scalar(exe.correction_1, 1.0 - std::pow(config_.optimizer.beta1, t));
    program.write_scalar(exe.correction_2, 1.0 - std::pow(config_.optimizer.beta2, t));
    program.run(Entry::update, lane.stats);
  }
  lane.scaler = next_state(lane.scaler, lane.config.scaler, finite);
  for (size_t i = 0; i < lane.stats.size() && row.first_bad < 0; ++i) {
    if (lane.stats[i].overflow + lane.stats[i].non_finite() > 0) row.first_bad = static_cast<int>(i);
  }
  const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
  row.ms = elapsed.count();
  return row;
}

EvalRow Trainer::evaluate(Lane& lane, int64_t step) {
  EvalRow row;
  row.step = step;
  const int64_t samples = data_.test.size();
  std::vector<int64_t> indices;
  for (int64_t first = 0; first < samples; first += config_.batch) {
    indices.resize(static_cast<size_t>(std::min(config_.batch, samples - first)));
    std::iota(indices.begin(), indices.end(), first);
    write_batch(lane, data_.test, indices);
    lane.program->run(Entry::eval, {});
    const double weight = static_cast<double>(indices.size()) / static_cast<double>(samples);
    row.loss += weight * lane.program->read_scalar(lane.executable.eval_loss);
    row.accuracy += weight * lane.program->read_scalar(lane.executable.accuracy);
  }
  return row;
}

void Trainer::run(TapSink* sink, const Progress& progress, const std::atomic<bool>& stop) {
  const BatchOrder order(data_.train.size(), config_.batch, config_.seed, config_.shuffle);
  std::vector<StepRow> rows(lanes_.size());
  int64_t step = 0;
  for (; step < config_.steps && !stop; ++step) {
    const bool record = config_.every > 0 && step % config_.every == 0;
    const std::vector<int64_t> indices = order.batch(step);
    for (size_t i = 0; i < lanes_.size(); ++i) {
      Lane& lane = *lanes_[i];
      write_batch(lane, data_.train, indices);
      rows[i] = step_lane(lane, step, record && !lane.config.plan.double_precision);
      if (sink != nullptr) sink->step(static_cast<int>(i), rows[i], lane.stats);
    }
    if (progress) progress(rows);
  }
  const bool interrupted = step < config_.steps;
  if (config_.evaluate && !interrupted && data_.test.size() > 0) {
    for (size_t i = 0; i < lanes_.size() && !stop; ++i) {
      const EvalRow row = evaluate(*lanes_[i], step);
      if (sink != nullptr) sink->eval(static_cast<int>(i), row);
    }
  }
  if (sink != nullptr) sink->end(interrupted);
}

NamedTensors Trainer::weights(int lane) const {
  const Lane& which = *lanes_.at(static_cast<size_t>(lane));
  NamedTensors weights;
  for (const Variable& variable : model_.graph.variables()) {
    for (const Variable& own : which.executable.graph.variables()) {
      if (own.path == variable.path) weights[own.path] = which.program->read(own.value);
    }
  }
  return weights;
}

}  // namespace halfscope
