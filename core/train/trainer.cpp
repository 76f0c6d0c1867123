// SPDX-License-Identifier: MIT
#include "core/train/trainer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <new>
#include <numeric>

#include "core/error.h"
#include "core/near_miss.h"
#include "core/numeric/rng.h"
#include "core/ops/ops.h"
#include "core/train/lane.h"

namespace halfscope {
namespace {

/// (byte / 255 - mean) / deviation, per channel.
std::vector<std::array<float, 256>> pixel_tables(const Dataset& data) {
  std::vector<std::array<float, 256>> tables(data.mean.empty() ? 1 : data.mean.size());
  for (size_t channel = 0; channel < tables.size(); ++channel) {
    for (size_t i = 0; i < 256; ++i) {
      tables[channel][i] = static_cast<float>(i) / 255.0f;
      if (data.mean.empty()) continue;
      const double value =
          (static_cast<double>(i) / 255.0 - data.mean[channel]) / data.deviation[channel];
      tables[channel][i] = static_cast<float>(value);
    }
  }
  return tables;
}

/// Every weight that is not zero one ulp up or down.
void perturb(Tensor& tensor, uint64_t seed, uint64_t index) {
  for (size_t i = 0; i < tensor.data.size(); ++i) {
    const uint64_t bits = splitmix64(splitmix64(seed) + (index << 40) + i);
    uint32_t code = std::bit_cast<uint32_t>(tensor.data[i]);
    if ((code & 0x7fffffffu) != 0) code += (bits & 1) != 0 ? 1u : ~0u;
    tensor.data[i] = std::bit_cast<float>(code);
  }
}

/// torch.nn.utils.clip_grad_norm_
double clip_factor(double limit, double norm) {
  constexpr double kEpsilon = 1e-6;
  return limit > 0.0 ? std::min(1.0, limit / (norm + kEpsilon)) : 1.0;
}

}  // namespace

BatchOrder::BatchOrder(int64_t samples, int64_t batch, uint64_t seed, bool shuffle)
    : samples_(samples), batch_(batch), seed_(seed), shuffle_(shuffle) {}

std::vector<int64_t> BatchOrder::batch(int64_t step) const {
  const int64_t per_epoch = samples_ / batch_;
  const int64_t epoch = step / per_epoch;
  if (epoch != epoch_) {
    permutation_.resize(static_cast<size_t>(samples_));
    std::iota(permutation_.begin(), permutation_.end(), int64_t{0});
    if (shuffle_) {  // Fisher-Yates; the modulo's bias is below samples / 2^64
      const uint64_t base =
          splitmix64(seed_ ^ 0x5368756666u) + (static_cast<uint64_t>(epoch) << 40);
      for (int64_t i = samples_ - 1; i > 0; --i) {
        const uint64_t j =
            splitmix64(base + static_cast<uint64_t>(i)) % static_cast<uint64_t>(i + 1);
        std::swap(permutation_[static_cast<size_t>(i)], permutation_[j]);
      }
    }
    epoch_ = epoch;
  }
  const auto first = permutation_.begin() + (step % per_epoch) * batch_;
  return {first, first + batch_};
}

Trainer::Trainer(const TrainConfig& config, const Dataset& data)
    : config_(config),
      data_(data),
      micro_size_(std::max<int64_t>(1, config.batch / std::max<int64_t>(1, config.micro_batches))),
      model_(build_model(config.model, micro_size_, data.sample_shape, data.classes)),
      pixel_values_(pixel_tables(data)) {
  check_data();
  const NamedTensors weights = starting_weights();
  for (const LaneConfig& lane_config : config_.lanes) {
    auto lane = std::make_unique<Lane>();
    lane->config = lane_config;
    lane->executable = lower(model_, lane_config.plan,
                             {config_.optimizer, config_.micro_batches, config_.sum_format});
    lane->program = lane_config.backend->compile(lane->executable);
    lane->scaler = initial_state(lane_config.scaler);
    uint64_t index = 0;
    for (const Variable& variable : lane->executable.graph.variables()) {
      const auto found = weights.find(variable.path);
      if (found == weights.end()) continue;
      Tensor tensor = found->second;
      if (lane_config.noise_seed != 0 && !variable.buffer)
        perturb(tensor, lane_config.noise_seed, index++);
      lane->program->write(variable.value, tensor.data);
    }
    lanes_.push_back(std::move(lane));
  }
  pair_lanes();
}

Trainer::~Trainer() = default;

void Trainer::check_data() const {
  if (config_.batch < 1 || config_.batch > data_.train.size()) {
    throw usage_error("batch size " + std::to_string(config_.batch) + " does not fit the data",
                      "use 1 to " + std::to_string(data_.train.size()));
  }
  if (config_.micro_batches < 1 || config_.batch % config_.micro_batches != 0) {
    throw usage_error("a batch of " + std::to_string(config_.batch) + " cannot be split into " +
                          std::to_string(config_.micro_batches) + " equal micro-batches",
                      "use a number that divides it");
  }
  for (const Split* split : {&data_.train, &data_.test}) {
    for (const int32_t label : split->labels) {
      if (label < 0 || label >= data_.classes) {
        throw Error("label " + std::to_string(label) + " in the data set " + data_.name +
                    " is not in 0.." + std::to_string(data_.classes - 1));
      }
    }
  }
}

/// Initial weights, with those given put in their place. A key may write the scopes of a path with
/// dots, as PyTorch does: "layer1.0.conv1.weight" for "layer1/0/conv1.weight".
NamedTensors Trainer::starting_weights() const {
  NamedTensors weights = initial_weights(model_.graph, config_.seed);
  std::map<std::string, std::string> by_dots;
  std::vector<std::string> paths;
  for (const auto& [path, unused] : weights) {
    std::string dotted = path;
    std::replace(dotted.begin(), dotted.end(), '/', '.');
    by_dots[dotted] = path;
    paths.push_back(path);
  }
  for (const auto& [key, tensor] : config_.init) {
    const auto dotted = by_dots.find(key);
    const auto found = weights.find(dotted == by_dots.end() ? key : dotted->second);
    if (found == weights.end()) {
      throw usage_error("initial weights: the model has no variable " + key,
                        did_you_mean(key, paths, "variables: " + comma_list(paths)));
    }
    if (found->second.shape != tensor.shape) {
      throw usage_error("initial weights: " + key + " has shape " + to_string(tensor.shape) +
                        ", the model needs " + to_string(found->second.shape));
    }
    found->second = tensor;
  }
  return weights;
}

void Trainer::pair_lanes() {
  const auto lane_named = [&](const std::string& name) {
    std::vector<std::string> names;
    for (size_t i = 0; i < lanes_.size(); ++i) {
      names.push_back(lanes_[i]->config.name());
      if (names.back() != name) continue;
      // Its tensors have no format to count distances in, and no sites in the run.
      if (lanes_[i]->config.plan.double_precision) {
        throw usage_error("lane " + name + " computes in double and cannot be compared",
                          "compare lanes of other plans, for example with float32");
      }
      return i;
    }
    throw usage_error("no lane is named " + name,
                      did_you_mean(name, names, "lanes: " + comma_list(names)));
  };
  const auto pair = [&](size_t lane, size_t other) {
    lanes_[lane]->comparators.emplace_back(lanes_[lane]->executable, lanes_[other]->executable,
                                           static_cast<int>(other));
    lanes_[lane]->compared_with.push_back(static_cast<int>(other));
  };
  if (!config_.errors.enabled) return;
  for (const auto& [lane, other] : config_.errors.pairs) {
    const size_t first = lane_named(lane);  // before the other, so that the message names it first
    pair(first, lane_named(other));
  }
  if (!config_.errors.pairs.empty()) return;
  const auto reference =
      std::find_if(lanes_.begin(), lanes_.end(), [](const std::unique_ptr<Lane>& lane) {
        return is_full_precision(lane->config.plan) && !lane->config.plan.double_precision;
      });
  for (size_t i = 0; i < lanes_.size() && reference != lanes_.end(); ++i) {
    const size_t other = static_cast<size_t>(reference - lanes_.begin());
    if (i != other && !lanes_[i]->config.plan.double_precision) pair(i, other);
  }
  const bool compares = std::any_of(lanes_.begin(), lanes_.end(),
                                    [](const auto& lane) { return !lane->comparators.empty(); });
  if (config_.errors.every > 0 && !compares) {
    throw usage_error(
        "there is nothing to compare every " + std::to_string(config_.errors.every) + " steps",
        "add a lane to compare with the reference, or name two with --compare");
  }
}

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
    lane_info.name = lane->config.name();
    lane_info.backend = lane->config.backend->name();
    lane_info.plan_json = plan_to_json(lane->config.plan);
    lane_info.loss_scale = loss_scale_text(lane->config.scaler);
    lane_info.layers = lane->executable.layers;
    // A program that computes in double has no formats, hence no sites.
    if (!lane->config.plan.double_precision) {
      for (const Tap& tap : lane->executable.taps) lane_info.sites.push_back(tap.site);
    }
    info.lanes.push_back(std::move(lane_info));
  }
  return info;
}

void Trainer::write_batch(Lane& lane, const Split& split, std::span<const int64_t> indices) {
  const int64_t size = element_count(data_.sample_shape);
  const int64_t plane = size / static_cast<int64_t>(pixel_values_.size());
  pixels_.assign(static_cast<size_t>(micro_size_ * size), 0.0f);
  labels_.assign(static_cast<size_t>(micro_size_), -1);  // -1: no sample here
  for (size_t i = 0; i < indices.size(); ++i) {
    const uint8_t* source = split.pixels.data() + indices[i] * size;
    float* target = pixels_.data() + static_cast<int64_t>(i) * size;
    for (const std::array<float, 256>& values : pixel_values_) {
      for (int64_t p = 0; p < plane; ++p) *target++ = values[*source++];
    }
    labels_[i] = split.labels[static_cast<size_t>(indices[i])];
  }
  lane.program->write(lane.executable.input, pixels_);
  lane.program->write(lane.executable.labels, labels_);
}

/// Forward and backward of all micro-batches.
void Trainer::begin_step(Lane& lane, int64_t step, const std::vector<int64_t>& indices,
                         bool record) {
  const Clock::time_point start = Clock::now();
  const Executable& exe = lane.executable;
  Program& program = *lane.program;
  if (record) {
    lane.stats.assign(exe.taps.size(), TensorStats{});
  } else {
    lane.stats.clear();
  }
  const int64_t parts = config_.micro_batches;
  // The gradients of the parts, each a mean over its samples, add up to that of the whole batch.
  program.write_scalar(exe.loss_scale,
                       static_cast<double>(lane.scaler.scale) / static_cast<double>(parts));
  program.run(Entry::begin, {});
  lane.loss = lane.accuracy = 0.0;
  for (int64_t part = 0; part < parts; ++part) {
    write_batch(lane, data_.train,
                std::span(indices).subspan(static_cast<size_t>(part * micro_size_),
                                           static_cast<size_t>(micro_size_)));
    program.set_random(config_.seed, static_cast<uint64_t>(step * parts + part));
    program.write_scalar(exe.keep_sum, part > 0 ? 1.0 : 0.0);
    const bool merges = record && part > 0;
    if (merges) lane.micro_stats.assign(exe.taps.size(), TensorStats{});
    std::vector<TensorStats>& stats = merges ? lane.micro_stats : lane.stats;
    program.run(Entry::grad, stats);
    program.run(Entry::accumulate, stats);
    for (size_t i = 0; merges && i < stats.size(); ++i) lane.stats[i].merge(stats[i]);
    lane.loss += program.read_scalar(exe.loss) / static_cast<double>(parts);
    lane.accuracy += program.read_scalar(exe.accuracy) / static_cast<double>(parts);
  }
  program.run(Entry::norm, {});
  lane.spent = Clock::now() - start;
}

/// Update or skip, and the next loss scale.
StepRow Trainer::end_step(Lane& lane, int64_t step) {
  const Clock::time_point start = Clock::now();
  const Executable& exe = lane.executable;
  Program& program = *lane.program;
  StepRow row;
  row.step = step;
  row.loss_scale = static_cast<double>(lane.scaler.scale);
  row.loss = lane.loss;
  row.accuracy = lane.accuracy;
  row.learning_rate =
      config_.optimizer.learning_rate * rate_factor(config_.schedule, step, config_.steps);
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
    program.write_scalar(exe.inverse_scale, static_cast<double>(inverse_scale));
    program.write_scalar(exe.clip, clip_factor(config_.clip_norm, row.grad_norm));
    program.write_scalar(exe.learning_rate, row.learning_rate);
    program.write_scalar(exe.correction_1, 1.0 - std::pow(config_.optimizer.beta1, t));
    program.write_scalar(exe.correction_2, 1.0 - std::pow(config_.optimizer.beta2, t));
    program.run(Entry::update, lane.stats);
  }
  lane.scaler = next_state(lane.scaler, lane.config.scaler, finite);
  for (size_t i = 0; i < lane.stats.size() && row.first_bad < 0; ++i) {
    // States keep what they took over from earlier steps.
    if (exe.taps[i].site.role == Role::state) continue;
    const TensorStats& stats = lane.stats[i];
    const bool saturates = !exe.taps[i].site.scale.empty();
    if ((saturates ? 0 : stats.overflow) + stats.non_finite() > 0)
      row.first_bad = static_cast<int>(i);
  }
  lane.spent += Clock::now() - start;
  row.ms = lane.spent.count();
  return row;
}

/// The lane goes no further: its program may be in any state.
void Trainer::lose(size_t lane, int64_t step, TapSink* sink, const std::string& why,
                   const std::string& hint) {
  lanes_[lane]->lost = why;
  lost_.push_back({lanes_[lane]->config.name(), step, why, hint});
  if (sink != nullptr) sink->lost(static_cast<int>(lane), step, why);
  for (const auto& each : lanes_) {
    if (each->lost.empty()) return;
  }
  if (sink != nullptr) sink->end(RunEnd::interrupted);
  throw Error(
      "lane " + lost_.back().name + " was lost at step " + std::to_string(step) + ": " + why, hint);
}

/// work() unless the lane is lost, by which it may be; whether it was done.
template <class F>
bool Trainer::guarded(size_t lane, int64_t step, TapSink* sink, const F& work) {
  if (!lanes_[lane]->lost.empty()) return false;
  std::string why, hint;
  try {
    work(*lanes_[lane]);
    return true;
  } catch (const Error& error) {
    why = error.what();
    hint = error.hint();
  } catch (const std::bad_alloc&) {
    why = "out of memory";
    hint = "lower --batch, or train fewer lanes";
  }
  lose(lane, step, sink, why, hint);
  return false;
}

/// What a comparison fails over is found by asking both programs: the one that fails is lost.
void Trainer::send_errors(int64_t step, TapSink& sink) {
  const auto probe = [](Lane& lane) {
    static_cast<void>(lane.program->read_scalar(lane.executable.loss));
  };
  for (size_t i = 0; i < lanes_.size(); ++i) {
    std::vector<SiteError> errors;
    std::vector<SiteSums> sums;
    guarded(i, step, &sink, [&](Lane& lane) {
      try {
        compare_lane(lane, step, errors);
      } catch (const Error&) {
        const size_t lost_before = lost_.size();
        probe(lane);
        for (const int other : lane.compared_with) {
          guarded(static_cast<size_t>(other), step, &sink, probe);
        }
        if (lost_.size() == lost_before) throw;
      }
      diagnose_lane(lane, step, sums);
    });
    for (const SiteError& error : errors) sink.error(static_cast<int>(i), error);
    for (const SiteSums& each : sums) sink.sums(static_cast<int>(i), each);
  }
}

void Trainer::compare_lane(const Lane& lane, int64_t step, std::vector<SiteError>& errors) {
  for (size_t pair = 0; pair < lane.comparators.size(); ++pair) {
    const Lane& other = *lanes_[static_cast<size_t>(lane.compared_with[pair])];
    if (!other.lost.empty()) continue;
    const std::vector<SiteError> found = lane.comparators[pair].compare(
        step, {lane.executable, *lane.program, static_cast<double>(lane.scaler.scale)},
        {other.executable, *other.program, static_cast<double>(other.scaler.scale)});
    errors.insert(errors.end(), found.begin(), found.end());
  }
}

void Trainer::diagnose_lane(const Lane& lane, int64_t step, std::vector<SiteSums>& sums) {
  for (const Tap& tap : lane.executable.taps) {
    const NodeId node = lane.executable.graph.value(tap.value).producer;
    if (node == kNone) continue;
    const std::optional<SumDiagnostics> seen = lane.program->diagnose(node);
    const Node& summing = lane.executable.graph.node(node);
    if (seen) {
      sums.push_back({step, tap.site.order, summing.path, summing.plan.accumulation, *seen});
    }
  }
}

EvalRow Trainer::evaluate(Lane& lane, int64_t step) {
  EvalRow row;
  row.step = step;
  const int64_t samples = data_.test.size();
  std::vector<int64_t> indices;
  for (int64_t first = 0; first < samples; first += micro_size_) {
    indices.resize(static_cast<size_t>(std::min(micro_size_, samples - first)));
    std::iota(indices.begin(), indices.end(), first);
    write_batch(lane, data_.test, indices);
    lane.program->run(Entry::eval, {});
    const double weight = static_cast<double>(indices.size()) / static_cast<double>(samples);
    row.loss += weight * lane.program->read_scalar(lane.executable.eval_loss);
    row.accuracy += weight * lane.program->read_scalar(lane.executable.eval_accuracy);
  }
  return row;
}

/// Returns whether some lane's loss is its best so far.
bool Trainer::evaluate_all(int64_t step, TapSink* sink) {
  bool better = false;
  // One that has begun is finished: half of it would be taken for all by early stopping.
  for (size_t i = 0; i < lanes_.size(); ++i) {
    EvalRow row;
    if (!guarded(i, step, sink, [&](Lane& lane) { row = evaluate(lane, step); })) continue;
    if (sink != nullptr) sink->eval(static_cast<int>(i), row);
    better = better || row.loss < lanes_[i]->best_loss;
    if (row.loss < lanes_[i]->best_loss) lanes_[i]->best_loss = row.loss;
  }
  return better;
}

void Trainer::run(TapSink* sink, const Progress& progress, const std::atomic<bool>& stop) {
  const BatchOrder order(data_.train.size(), config_.batch, config_.seed, config_.shuffle);
  const bool has_test = data_.test.size() > 0;
  std::vector<StepRow> rows(lanes_.size());
  // A run that had stopped early is not to train on.
  bool stale = config_.patience > 0 && stale_evaluations_ >= config_.patience;
  bool evaluated = false;
  while (step_ < config_.steps && !stop && !stale) {
    const int64_t step = step_;
    const bool record = config_.every > 0 && step % config_.every == 0;
    const std::vector<int64_t> indices = order.batch(step);
    const auto begin = [&](Lane& lane) {
      begin_step(lane, step, indices, record && !lane.config.plan.double_precision);
    };
    const bool compares = sink != nullptr && config_.errors.samples(step, config_.steps);
    if (compares) {  // needs the gradients of all lanes and the weights that they were made with
      for (size_t i = 0; i < lanes_.size(); ++i) guarded(i, step, sink, begin);
      send_errors(step, *sink);
    }
    for (size_t i = 0; i < lanes_.size(); ++i) {
      const auto work = [&](Lane& lane) {
        if (!compares) begin(lane);
        rows[i] = end_step(lane, step);
      };
      if (!guarded(i, step, sink, work)) {
        rows[i] = StepRow{.step = step, .loss = std::numeric_limits<double>::quiet_NaN()};
      } else if (sink != nullptr) {
        sink->step(static_cast<int>(i), rows[i], lanes_[i]->stats);
      }
    }
    ++step_;
    if (progress) progress(rows);
    evaluated = has_test && config_.evaluate_every > 0 && step_ % config_.evaluate_every == 0;
    if (evaluated) {
      stale_evaluations_ = evaluate_all(step_, sink) ? 0 : stale_evaluations_ + 1;
      stale = config_.patience > 0 && stale_evaluations_ >= config_.patience;
    }
    const bool due = config_.checkpoint_every > 0 && step_ % config_.checkpoint_every == 0 &&
                     step_ < config_.steps;  // the last one is written below
    if (due) write_checkpoint();
  }
  const bool interrupted = step_ < config_.steps && !stale;
  if (config_.evaluate && has_test && !interrupted && !evaluated && !stop)
    evaluate_all(step_, sink);
  write_checkpoint();
  if (sink != nullptr) {
    sink->end(interrupted             ? RunEnd::interrupted
              : step_ < config_.steps ? RunEnd::early_stop
                                      : RunEnd::complete);
  }
}

bool Trainer::has_lane(size_t lane) const { return lanes_.at(lane)->lost.empty(); }

std::vector<Trainer::ProductKernel> Trainer::product_kernels() const {
  std::vector<ProductKernel> kernels;
  for (const auto& lane : lanes_) {
    const std::vector<Node>& nodes = lane->executable.graph.nodes();
    for (NodeId id = 0; id < static_cast<NodeId>(nodes.size()); ++id) {
      const std::string kernel = lane->program->kernel_of(id);
      const Node& node = nodes[static_cast<size_t>(id)];
      if (!kernel.empty()) kernels.push_back({lane->config.name(), node.path, node.op, kernel});
    }
  }
  return kernels;
}

NamedTensors Trainer::weights(int lane) const {
  const Lane& which = *lanes_.at(static_cast<size_t>(lane));
  if (!which.lost.empty()) {
    throw Error("lane " + which.config.name() + " was lost, and its weights with it");
  }
  NamedTensors weights;
  for (const Variable& variable : model_.graph.variables()) {
    for (const Variable& own : which.executable.graph.variables()) {
      if (own.path == variable.path) weights[own.path] = which.program->read(own.value);
    }
  }
  return weights;
}

}  // namespace halfscope
