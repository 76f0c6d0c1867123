// SPDX-License-Identifier: MIT
#include "core/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/backend/host_steps.h"
#include "core/backend/overflow_check.h"
#include "core/data/shapes.h"
#include "core/error.h"
#include "core/numeric/formats/rng.h"
#include "core/ops/ops.h"
#include "core/train/evaluation.h"
#include "core/train/lane_setup.h"

namespace halfscope {

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
      micro_size_(std::max<int64_t>(1, config.batch / std::max<int64_t>(1, config.micro_batches) /
                                           std::max<int64_t>(1, config.ranks))),
      model_(config.build
                 ? config.build(micro_size_)
                 : build_model(config.model, micro_size_, data.sample_shape, data.classes)),
      lanes_(
          LaneSet::Work::training, [this] { settle(); }, config.exchange) {
  check_data();
  check_schedule();
  check_trained();
  NamedTensors weights = take_starting_weights(model_, config_.seed, config_.init);
  free_tensors(config_.init);
  for (const LaneConfig& lane_config : config_.lanes) {
    Lane& lane = lanes_.add(lane_config, lowered(lane_config), config_.errors);
    if (!feed_) {
      feed_.emplace(lane.executable, data_);
      check_feed(lane.executable);
      check_groups(lane.executable);
    }
    lanes_.set_up(lane, step_, [&] {
      lane.program = lane_config.backend->compile(lane.executable);
      write_weights(*lane.program, lane.executable.graph, weights, lane_config);
      write_averages(*lane.program, lane.executable, weights);
      make_queue(lane);
    });
  }
  lanes_.pair_up(config_.errors, config_.lanes);
  keep_start(weights);
  free_tensors(weights);
  lanes_.check_any();
}

/// References always sum gradients and store states in fp32, but reduce over ranks in the same
/// order as the other lanes.
TrainingSpec Trainer::spec_of(const LaneConfig& lane) const {
  const Plan& plan = lane.plan;
  TrainingSpec spec{config_.optimizer,    config_.micro_batches, config_.sum_format,
                    config_.state_format, config_.average,       config_.clip_norm > 0.0};
  spec.groups = config_.groups;
  spec.scheduled = scheduled_options(config_.schedule);
  spec.divides_by_scale = divides_by_scale(lane.scaler);
  spec.ranks = config_.ranks;
  spec.exchanged = config_.exchange != nullptr;
  spec.reduction = config_.reduction;
  spec.scores = config_.evaluate && has_label_scores(model_, data_, micro_size_);
  if (is_full_precision(plan)) {
    spec.reduction.format = kFp32;
    spec.sum_format.reset();
    spec.state_format.reset();
  }
  return spec;
}

Executable Trainer::lowered(const LaneConfig& lane) const {
  Executable executable = lower(model_, lane.plan, spec_of(lane));
  if (config_.unscale_only && lane.scaler.kind != LossScalerConfig::Kind::none)
    leave_loss_unscaled(executable.graph, executable.loss_scale, config_.micro_batches);
  return executable;
}

/// Keeps the initial values of what trains, if lanes will be compared at the end.
void Trainer::keep_start(const NamedTensors& weights) {
  const bool compares =
      config_.errors.enabled && std::any_of(lanes_.begin(), lanes_.end(),
                                            [](const auto& lane) { return lane->reference >= 0; });
  if (!compares) return;
  for (const Variable& variable : model_.graph.variables()) {
    const auto found = weights.find(variable.path);
    if (!variable.buffer && found != weights.end()) start_.insert(*found);
  }
}

void Trainer::make_queue(Lane& lane) const {
  const StepRules rules{lane.config.scaler, config_.clip_norm, config_.clip_before_unscale};
  const bool measures = config_.every > 0 && !lane.config.plan.double_precision;
  if (config_.exchange != nullptr) {
    lane.steps = std::make_unique<ProcessSteps>(*lane.program, lane.executable, rules,
                                                config_.micro_batches, *config_.exchange);
    return;
  }
  if (config_.ranks > 1) {
    auto steps =
        std::make_unique<RankSteps>(*lane.program, lane.executable, rules, config_.micro_batches);
    lane.ranks = steps.get();
    lane.steps = std::move(steps);
    return;
  }
  // A device decides without looking at single gradients.
  if (!can_differ(lane.config.scaler, lane.executable)) {
    lane.steps = lane.program->step_queue(rules, config_.micro_batches, measures);
  }
  lane.waits = lane.steps == nullptr;
  if (!lane.waits) return;
  lane.steps =
      std::make_unique<HostSteps>(*lane.program, lane.executable, rules, config_.micro_batches);
}

void Trainer::check_data() const {
  if (config_.batch < 1 || config_.batch > data_.train.size()) {
    throw usage_error("batch size " + std::to_string(config_.batch) + " does not fit the data",
                      "use a batch size from 1 to " + std::to_string(data_.train.size()))
        .about({"batch"});
  }
  if (config_.ranks < 1 || config_.batch % config_.ranks != 0) {
    throw usage_error("a batch of " + std::to_string(config_.batch) +
                          " cannot be divided equally among " + std::to_string(config_.ranks) +
                          " ranks",
                      "use a number of ranks that divides " + std::to_string(config_.batch))
        .about({"batch", "ranks"});
  }
  if (config_.ranks > 1 && config_.batch / config_.ranks % config_.micro_batches != 0) {
    throw usage_error("the " + std::to_string(config_.batch / config_.ranks) +
                          " samples of a rank cannot be split into " +
                          std::to_string(config_.micro_batches) + " equal micro-batches",
                      "use a batch size that is a multiple of ranks times micro-batches")
        .about({"batch", "ranks", "micro_batches"});
  }
  check_exchange();
  if (config_.micro_batches < 1 || config_.batch % config_.micro_batches != 0) {
    throw usage_error("a batch of " + std::to_string(config_.batch) + " cannot be split into " +
                          std::to_string(config_.micro_batches) + " equal micro-batches",
                      "use a number of micro-batches that divides " + std::to_string(config_.batch))
        .about({"batch", "micro_batches"});
  }
}

void Trainer::check_exchange() const {
  if (config_.exchange == nullptr) return;
  if (config_.ranks != config_.exchange->size()) {
    throw usage_error("--ranks " + std::to_string(config_.ranks) + " was given, but " +
                          std::to_string(config_.exchange->size()) + " processes were started",
                      "leave out --ranks, or start as many processes")
        .about({"ranks"});
  }
  for (const LaneConfig& lane : config_.lanes) {
    const Reduction how = lane.plan.reduction.value_or(config_.reduction);
    if (how.vote == Reduction::Vote::all) continue;
    throw usage_error("lane " + lane.name() + ": vote=one needs the simulation of ranks",
                      "start one process with --ranks " + std::to_string(config_.ranks))
        .about({"reduce"});
  }
}

RunInfo Trainer::describe() const {
  RunInfo info;
  info.model = model_.name;
  info.data = data_.name;
  info.optimizer = optimizer_text(config_.optimizer);
  info.batch = config_.batch;
  info.steps_planned = config_.steps;
  const Executable* const first = lanes_.empty() ? nullptr : &lanes_[0].executable;
  const bool classifies = first != nullptr && first->logits != kNone;
  info.classes = classifies ? first->graph.value(first->logits).shape[1] : data_.classes;
  info.train_samples = data_.train.size();
  info.test_samples = test_samples();
  info.seed = config_.seed;
  info.every = config_.every;
  info.evaluates_averages = config_.evaluate_average;
  info.detects =
      !lanes_.empty() && has_detection_score(data_, lanes_[0].executable.output_shapes());
  info.lanes = lanes_.describe();
  return info;
}

/// Checks that the batch fits a network of fixed size, and that all labels are among its classes.
void Trainer::check_feed(const Executable& executable) const {
  if (feed_->batch() != micro_size_) {
    const std::string takes = std::to_string(feed_->batch());
    throw usage_error(
        "the network takes " + takes + " samples at once, not " + std::to_string(micro_size_),
        "use --batch " + takes + ", or a multiple of it with --micro-batches or --ranks")
        .about({"batch", "micro_batches", "ranks"});
  }
  if (executable.logits == kNone) {
    if (config_.evaluate && data_.test.size() > 0 && data_.test.size() < micro_size_) {
      throw usage_error("the test set has only " + std::to_string(data_.test.size()) +
                            " samples, too few for one batch",
                        "use a smaller --batch, or --no-eval")
          .about({"batch"});
    }
    return;
  }
  const int64_t classes = executable.graph.value(executable.logits).shape[1];
  for (const Split* split : {&data_.train, &data_.test}) {
    feed_->check_labels(executable, *split, classes, data_.name);
  }
}

/// Returns the number of test samples that an evaluation can use. Only losses with labels can use a
/// batch that is not full, because missing labels do not count in the mean.
int64_t Trainer::test_samples() const {
  const int64_t samples = data_.test.size();
  const bool partial = lanes_.empty() || lanes_[0].executable.logits != kNone;
  return partial ? samples : samples / micro_size_ * micro_size_;
}

/// Runs forward and backward for all micro-batches of one rank.
void Trainer::run_rank(Lane& lane, int64_t step, int64_t rank, std::span<const int64_t> indices,
                       bool record) {
  const Executable& exe = lane.executable;
  Program& program = *lane.program;
  StepQueue& steps = *lane.steps;
  steps.run(Entry::begin, false);
  for (int64_t i = 0; i < config_.micro_batches; ++i) {
    const int64_t part = rank * config_.micro_batches + i;
    feed_->write(
        exe, program, data_.train,
        indices.subspan(static_cast<size_t>(part * micro_size_), static_cast<size_t>(micro_size_)));
    program.set_random(config_.seed, static_cast<uint64_t>(step * parts() + part));
    program.write_scalar(exe.keep_sum, i > 0 ? 1.0 : 0.0);
    steps.run(Entry::grad, record);
    steps.run(Entry::accumulate, record);
    steps.keep(exe.loss);
    if (exe.accuracy != kNone) steps.keep(exe.accuracy);
  }
}

/// Runs forward and backward for the whole batch.
void Trainer::begin_step(Lane& lane, int64_t step, const std::vector<int64_t>& indices,
                         bool record) {
  const auto start = std::chrono::steady_clock::now();
  StepQueue& steps = *lane.steps;
  steps.open(lane.launched++ == 0 ? &lane.state : nullptr);
  if (lane.config.skips.contains(step)) {  // gradients are infinite, so the scaler skips it
    lane.program->write_scalar(lane.executable.loss_scale, std::numeric_limits<double>::infinity());
  }
  for (int64_t rank = 0; rank < config_.ranks; ++rank) {
    if (config_.exchange != nullptr && config_.exchange->rank() != rank) continue;
    steps.begin_rank(rank);
    run_rank(lane, step, rank, indices, record);
    steps.end_rank(rank);
  }
  steps.run(Entry::norm, record && config_.ranks > 1);
  lane.spent = std::chrono::steady_clock::now() - start;
}

double Trainer::learning_rate(const Lane& lane, int64_t step, double rate) const {
  return halfscope::learning_rate(config_.schedule, rate, step, config_.steps,
                                  lane.config.plan.schedule, config_.optimizer.learning_rate);
}

/// Updates or skips, and sets the next loss scale.
void Trainer::end_step(Lane& lane, int64_t step, bool record) {
  const auto start = std::chrono::steady_clock::now();
  const Executable& exe = lane.executable;
  if (exe.clip_limit != kNone) lane.program->write_scalar(exe.clip_limit, config_.clip_norm);
  lane.program->write_scalar(exe.learning_rate, learning_rate(lane, step));
  for (const GroupRate& group : exe.group_rates) {
    lane.program->write_scalar(group.value, group.scheduled
                                                ? series_rate(config_.schedule, *group.scheduled,
                                                              step, lane.config.plan.schedule)
                                                : learning_rate(lane, step, group.rate));
  }
  for (size_t i = 0; i < exe.step_scalars.size(); ++i) {
    const std::optional<size_t>& series = exe.step_scalars[i].scheduled;
    if (!series) continue;
    lane.steps->set_parameter(i,
                              config_.schedule.series[*series].values[static_cast<size_t>(step)]);
  }
  lane.steps->update(record);
  lane.steps->close();
  lane.spent += std::chrono::steady_clock::now() - start;
}

/// Collects the oldest launched step of the lane and fills in `row`.
StepReport Trainer::collect_step(Lane& lane, StepRow& row) {
  StepReport report = lane.steps->collect();
  --lane.launched;
  const LossScalerState before = std::exchange(lane.state, report.next).scaler;
  if (const ScalerStop stop = report.next.scaler.stop; stop != ScalerStop::none) {
    const StopText text = stop_text(lane.config.scaler, stop);
    throw Error(text.what, text.hint);
  }
  const double parts = static_cast<double>(this->parts());
  const bool classifies = lane.executable.accuracy != kNone;
  row.loss = 0.0;
  row.accuracy = classifies ? 0.0 : std::numeric_limits<double>::quiet_NaN();
  for (size_t i = 0; i < report.kept.size(); ++i) {
    (classifies && i % 2 == 1 ? row.accuracy : row.loss) += report.kept[i] / parts;
  }
  row.loss_scale = before.scale;
  row.learning_rate = learning_rate(lane, row.step);
  row.grad_norm = unscaled_norm(report.sum_sq, before);
  row.skipped = report.skipped;
  row.first_bad = first_bad_site(lane.executable, report.stats);
  if (!std::isnan(report.ms)) row.ms = report.ms;
  return report;
}

/// Reports the launched step to the sink and to `progress`.
void Trainer::settle() {
  if (!launched_) return;
  const Launched launched = std::move(*launched_);
  launched_.reset();
  std::vector<StepRow> rows(lanes_.size());
  for (size_t i = 0; i < lanes_.size(); ++i) {
    StepRow& row = rows[i];
    row = {.step = launched.step, .loss = std::numeric_limits<double>::quiet_NaN()};
    if (!launched.lanes[i]) continue;
    StepRow seen{.step = launched.step, .ms = launched.ms[i]};
    StepReport report;
    if (lanes_[i].config.trained != nullptr) {
      row = lanes_[i].config.trained->rows.at(static_cast<size_t>(launched.step));
      if (sink_ != nullptr) sink_->step(static_cast<int>(i), row, {});
      continue;
    }
    const auto collect = [&](Lane& lane) { report = collect_step(lane, seen); };
    if (!lanes_.guarded(i, launched.step, collect)) continue;
    row = seen;
    if (sink_ == nullptr) continue;
    const bool apart = report.rank_distance > 0.0;
    if (apart || (report.ranks_skipped > 0 && report.ranks_skipped < report.ranks)) {
      sink_->ranks(static_cast<int>(i),
                   {launched.step, report.ranks, report.ranks_skipped, report.rank_distance});
    }
    sink_->step(static_cast<int>(i), row, report.stats);
  }
  if (*progress_) (*progress_)(rows);
}

EvalRow Trainer::evaluate(Lane& lane, int64_t step) {
  const Evaluation evaluation(data_, *feed_, test_samples(), config_.exchange);
  if (!config_.evaluate_average) return evaluation.run(lane, step);
  const std::vector<std::vector<double>> weights = put_averages(*lane.program, lane.executable);
  const EvalRow row = evaluation.run(lane, step);
  put_back(*lane.program, lane.executable, weights);
  return row;
}

/// Returns whether some lane's loss is its best so far.
bool Trainer::evaluate_all(int64_t step) {
  bool better = false;
  // Finish an evaluation that has begun: early stopping would take half of it for all.
  for (size_t i = 0; i < lanes_.size(); ++i) {
    EvalRow row;
    if (!lanes_.guarded(i, step, [&](Lane& lane) { row = evaluate(lane, step); })) continue;
    if (sink_ != nullptr) sink_->eval(static_cast<int>(i), row);
    const double loss = config_.optimizer.maximize ? -row.loss : row.loss;
    better = better || loss < lanes_[i].best_loss;
    if (loss < lanes_[i].best_loss) lanes_[i].best_loss = loss;
  }
  return better;
}

/// Returns whether to probe at a step: at the sampled steps and, at growing intervals, at early
/// steps until gradients have been measured. They overflow while the loss scale is being found.
bool Trainer::probes_at(int64_t step) const {
  if (sink_ == nullptr || !config_.errors.enabled) return false;
  if (config_.errors.extent == ErrorSampling::Extent::movement) return false;
  if (config_.errors.samples(step, config_.steps)) return true;
  const bool stride = (step & (step - 1)) == 0;
  return stride && std::any_of(probes_.begin(), probes_.end(),
                               [](const auto& probe) { return probe && !probe->has_gradients(); });
}

void Trainer::probe(size_t which, int64_t step, const std::vector<int64_t>& indices) {
  if (!probes_[which]) return;
  const size_t other = static_cast<size_t>(lanes_[which].reference);
  if (lanes_[which].lost || lanes_[other].lost) return;
  const Lane& reference = lanes_[other];
  TrainingProbe::Batch batch{.step = step,
                             .parts = parts(),
                             .ranks = config_.ranks,
                             .seed = config_.seed,
                             .own_weights = step > 0,
                             .exchange = config_.exchange};
  batch.feed = [&](int64_t part, Program& program) {
    feed_->write(reference.executable, program, data_.train,
                 std::span(indices).subspan(static_cast<size_t>(part * micro_size_),
                                            static_cast<size_t>(micro_size_)));
  };
  std::vector<Deviation> found;
  lanes_.guarded(other, step, [&](Lane&) { found = probes_[which]->measure(batch); });
  for (const Deviation& each : found) sink_->deviation(static_cast<int>(which), each);
}

/// Puts a lane that was trained before where it was after the steps of the other lanes.
void Trainer::catch_up(Lane& lane, const BatchOrder& order) {
  const TrainedLane* const trained = lane.config.trained.get();
  if (trained == nullptr) return;
  if (step_ == static_cast<int64_t>(trained->rows.size())) {
    write_variables(lane, trained->variables);
    return;
  }
  for (int64_t step = 0; step < step_; ++step) {
    begin_step(lane, step, order.batch(step), false);
    end_step(lane, step, false);
    StepRow row{.step = step};
    collect_step(lane, row);
  }
}

/// Reports how far training has moved each lane, compared with its reference.
void Trainer::tell_deviations() {
  if (sink_ == nullptr || start_.empty() || step_ == 0) return;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const int other = lanes_[i].reference;
    if (other < 0 || lanes_[i].lost || lanes_[static_cast<size_t>(other)].lost) continue;
    std::vector<Deviation> found;
    lanes_.guarded(i, step_, [&](Lane& lane) {
      found = training_deviations(step_, lane, lanes_[static_cast<size_t>(other)], start_);
    });
    for (const Deviation& each : found) sink_->deviation(static_cast<int>(i), each);
  }
}

/// Returns whether to stop. Processes stop after the same step, once any of them is asked to.
bool Trainer::stops(const std::atomic<bool>& stop) const {
  return config_.exchange != nullptr ? any_rank(*config_.exchange, stop) : stop.load();
}

void Trainer::run(TapSink* sink, const Progress& progress, const std::atomic<bool>& stop) {
  sink_ = sink;
  progress_ = &progress;
  const BatchOrder order(data_.train.size(), config_.batch, config_.seed, config_.shuffle);
  const bool has_test = test_samples() > 0;
  const bool all_wait =
      std::all_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return lane->waits; });
  // A run that had stopped early must not continue to train.
  bool stale = config_.patience > 0 && stale_evaluations_ >= config_.patience;
  lanes_.watch(sink, step_);
  probes_.clear();
  probes_.resize(lanes_.size());
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const int other = lanes_[i].reference;
    if (other < 0 || lanes_[i].lost || lanes_[static_cast<size_t>(other)].lost) continue;
    probes_[i].emplace(lanes_[i], lanes_[static_cast<size_t>(other)]);
  }
  bool evaluated = false;
  bool stopped = stops(stop);
  while (step_ < config_.steps && !stopped && !stale) {
    const int64_t step = step_;
    const bool recorded = config_.every > 0 && step % config_.every == 0;
    const std::vector<int64_t> indices = order.batch(step);
    const auto records = [&](const Lane& lane) {
      return recorded && !lane.config.plan.double_precision;
    };
    const bool compares = sink != nullptr &&
                          config_.errors.extent == ErrorSampling::Extent::tensors &&
                          config_.errors.samples(step, config_.steps);
    const bool probes = probes_at(step);
    const auto begin = [&](Lane& lane) {
      lane.program->keep_values(compares || probes);
      if (lane.config.trained == nullptr) begin_step(lane, step, indices, records(lane));
    };
    if (compares || probes) {
      settle();
      // References come last: probes put other weights into them.
      for (const bool judged : {true, false}) {
        for (size_t i = 0; i < lanes_.size(); ++i) {
          if ((lanes_[i].reference >= 0) != judged || !lanes_.guarded(i, step, begin)) continue;
          if (probes) probe(i, step, indices);
        }
      }
    }
    if (compares) {  // needs the gradients of all lanes and the weights that they were made with
      const uint64_t words = static_cast<uint64_t>((step + 1) * parts() - 1);
      lanes_.compare(step, {config_.seed, words}, [](const Lane& lane) {
        static_cast<void>(lane.program->read_scalar(lane.executable.loss));
      });
    }
    Launched launched{step, std::vector<bool>(lanes_.size()), std::vector<double>(lanes_.size())};
    for (size_t i = 0; i < lanes_.size(); ++i) {
      launched.lanes[i] = lanes_.guarded(i, step, [&](Lane& lane) {
        if (!compares && !probes) begin(lane);
        if (lane.config.trained == nullptr) end_step(lane, step, records(lane));
        launched.ms[i] = lane.spent.count();
      });
    }
    settle();
    launched_ = std::move(launched);
    ++step_;
    evaluated = has_test && config_.evaluate_every > 0 && step_ % config_.evaluate_every == 0;
    const bool due = config_.checkpoint_every > 0 && step_ % config_.checkpoint_every == 0 &&
                     step_ < config_.steps;  // the last one is written below
    if (all_wait || evaluated || due) settle();
    if (evaluated) {
      stale_evaluations_ = evaluate_all(step_) ? 0 : stale_evaluations_ + 1;
      stale = config_.patience > 0 && stale_evaluations_ >= config_.patience;
    }
    if (due) write_checkpoint();
    stopped = stops(stop);
  }
  settle();
  for (size_t i = 0; i < lanes_.size(); ++i) {
    lanes_.guarded(i, step_, [&](Lane& lane) {
      catch_up(lane, order);
      lane.program->keep_values(true);
    });
  }
  const bool interrupted = step_ < config_.steps && !stale;
  if (config_.evaluate && has_test && !interrupted && !evaluated && !stopped) {
    evaluate_all(step_);
  }
  write_checkpoint();
  tell_deviations();
  if (sink != nullptr) {
    sink->end(interrupted             ? RunEnd::interrupted
              : step_ < config_.steps ? RunEnd::early_stop
                                      : RunEnd::complete);
  }
}

int64_t Trainer::device_bytes(int lane) const {
  const Lane& which = lanes_[static_cast<size_t>(lane)];
  return which.program == nullptr ? 0 : which.program->device_bytes();
}

const Lane& Trainer::whole_lane(int lane) const {
  const Lane& which = lanes_[static_cast<size_t>(lane)];
  if (which.lost) {
    throw Error("lane " + which.config.name() + " failed, so its weights are not available");
  }
  return which;
}

NamedTensors Trainer::averages(int lane) const {
  const Lane& which = whole_lane(lane);
  NamedTensors averages;
  for (const AveragedVariable& each : which.executable.averages) {
    averages[each.path] = which.program->read(each.average);
  }
  return averages;
}

NamedTensors Trainer::weights(int lane) const {
  const Lane& which = whole_lane(lane);
  NamedTensors weights;
  for (const Variable& variable : model_.graph.variables()) {
    for (const Variable& own : which.executable.graph.variables()) {
      if (own.path == variable.path) weights[own.path] = which.program->read(own.value);
    }
  }
  return weights;
}

}  // namespace halfscope
