// SPDX-License-Identifier: MIT
#include "core/train/runner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <new>
#include <numeric>

#include "core/error.h"
#include "core/observe/comparator.h"

namespace halfscope {

struct Runner::Lane {
  LaneConfig config;
  Executable executable;
  std::unique_ptr<Program> program;
  std::vector<Comparator> comparators;
  std::vector<size_t> compared_with;
  std::unique_ptr<KernelChecker> checker{};
  std::vector<TensorStats> stats;
  Result result;
  bool lost = false;
};

Runner::Runner(const Model& model, const RunnerConfig& config, const Dataset& data)
    : config_(config), data_(data), model_name_(model.name) {
  if (data.test.size() == 0) throw usage_error("there are no samples to run on");
  const NamedTensors weights = starting_weights(model, config.seed, config.init);
  for (const LaneConfig& lane_config : config_.lanes) {
    auto lane = std::make_unique<Lane>();
    lane->config = lane_config;
    lane->config.scaler = parse_loss_scale("none");
    lane->executable = lower_inference(model, lane_config.plan);
    if (!feed_) feed_.emplace(lane->executable, data_);
    lane->checker = kernel_checker(config_.errors, lane_config, lane->executable);
    const std::optional<SetupFailure> failure = set_up_lane(lane_config, [&] {
      lane->program = lane_config.backend->compile(lane->executable);
      write_weights(*lane->program, lane->executable.graph, weights, lane_config.noise_seed);
    });
    if (failure) {
      lane->program.reset();  // what it had there is for the others
      lane->lost = true;
      lost_.push_back({lane_config.name(), 0, failure->why, failure->hint, ErrorKind::runtime});
    }
    lanes_.push_back(std::move(lane));
  }
  if (lanes_.empty()) throw usage_error("there is no lane to run");
  for (const auto& [lane, other] : lane_pairs(config_.errors, config_.lanes)) {
    lanes_[lane]->comparators.emplace_back(lanes_[lane]->executable, lanes_[other]->executable,
                                           static_cast<int>(other));
    lanes_[lane]->compared_with.push_back(other);
  }
  if (lost_.size() == lanes_.size()) throw no_lane_left(lost_);
  check_last_batch();
  if (config_.labels.empty()) return;
  if (static_cast<int64_t>(config_.labels.size()) != data_.test.size()) {
    throw usage_error("there are " + std::to_string(config_.labels.size()) + " labels for " +
                          std::to_string(data_.test.size()) + " samples",
                      "give one label for each");
  }
  const Executable& first = lanes_[0]->executable;
  const Value& scores = first.graph.value(first.outputs[0].value);
  const int64_t classes = element_count(scores.shape) / feed_->batch();
  if (scores.type != ElementType::real || element_count(scores.shape) % feed_->batch() != 0 ||
      classes < 2) {
    throw usage_error("the output " + first.outputs[0].name + " of shape " +
                          to_string(scores.shape) + " has no scores of classes",
                      "labels need a network whose first output is [samples, classes]");
  }
  for (const int32_t label : config_.labels) {
    if (label >= 0 && label < classes) continue;
    throw usage_error("label " + std::to_string(label) + " is not in 0.." +
                      std::to_string(classes - 1));
  }
}

void Runner::check_last_batch() const {
  const int64_t samples = data_.test.size(), batch = feed_->batch(), rest = samples % batch;
  if (rest == 0 || !feed_->has_batch_axis()) return;
  const Executable& first = lanes_[0]->executable;
  for (const NamedValue& output : first.outputs) {
    const Shape& shape = first.graph.value(output.value).shape;
    if (!shape.empty() && shape[0] == batch) continue;
    int64_t divisor = batch;
    while (samples % divisor != 0) --divisor;
    throw usage_error("the output " + output.name + " of shape " + to_string(shape) +
                          " has no dimension for samples, and the last batch of " +
                          std::to_string(batch) + " would have " + std::to_string(rest) +
                          " of them only",
                      "use --batch " + std::to_string(divisor) + ", or --limit " +
                          std::to_string(samples - rest));
  }
}

Runner::~Runner() = default;

double Runner::Result::accuracy() const {
  return scored > 0 ? static_cast<double>(right) / static_cast<double>(scored)
                    : std::numeric_limits<double>::quiet_NaN();
}

const Runner::Result& Runner::result(size_t lane) const { return lanes_.at(lane)->result; }

int64_t Runner::batches() const noexcept {
  return (data_.test.size() + feed_->batch() - 1) / feed_->batch();
}

std::vector<std::string> Runner::output_names() const {
  std::vector<std::string> names;
  for (const NamedValue& output : lanes_[0]->executable.outputs) names.push_back(output.name);
  return names;
}

std::vector<ProductKernel> Runner::product_kernels() const {
  std::vector<ProductKernel> kernels;
  for (const auto& lane : lanes_) {
    if (lane->program == nullptr) continue;
    add_product_kernels(kernels, lane->config.name(), lane->executable, *lane->program);
  }
  return kernels;
}

std::vector<EntryLaunch> Runner::entry_launches() const {
  std::vector<EntryLaunch> launches;
  for (const auto& lane : lanes_) {
    if (lane->program == nullptr) continue;
    add_entry_launches(launches, lane->config.name(), *lane->program);
  }
  return launches;
}

RunInfo Runner::describe() const {
  RunInfo info;
  info.model = model_name_;
  info.data = data_.name;
  info.inference = true;
  info.batch = feed_->batch();
  info.steps_planned = batches();
  info.test_samples = data_.test.size();
  info.seed = config_.seed;
  info.every = config_.every;
  for (const auto& lane : lanes_) {
    info.lanes.push_back(describe_lane(lane->config, lane->executable));
  }
  return info;
}

/// Appends the outputs of the batch's first samples to those of the lane.
void Runner::keep(Lane& lane, size_t samples) const {
  const size_t batch = static_cast<size_t>(feed_->batch());
  for (const NamedValue& output : lane.executable.outputs) {
    const Tensor values = lane.program->read(output.value);
    Tensor& all = lane.result.outputs[output.name];
    // Outputs of a network without a dimension for samples, or that have none themselves, are
    // stacked.
    const bool along =
        feed_->has_batch_axis() && !values.shape.empty() && values.shape[0] == feed_->batch();
    if (all.shape.empty()) {
      all.shape = values.shape;
      if (along) {
        all.shape[0] = 0;
      } else {
        all.shape.insert(all.shape.begin(), 0);
      }
    }
    const size_t count = along ? values.data.size() / batch * samples : values.data.size();
    all.shape[0] += along ? static_cast<int64_t>(samples) : 1;
    all.data.insert(all.data.end(), values.data.begin(),
                    values.data.begin() + static_cast<int64_t>(count));
  }
}

/// Samples of the batch whose first largest score is the label's; one with a NaN is wrong.
int64_t Runner::score(Lane& lane, std::span<const int64_t> indices) const {
  const Tensor scores = lane.program->read(lane.executable.outputs[0].value);
  const int64_t classes = static_cast<int64_t>(scores.data.size()) / feed_->batch();
  int64_t right = 0;
  for (size_t i = 0; i < indices.size(); ++i) {
    const auto begin = scores.data.begin() + static_cast<int64_t>(i) * classes,
               end = begin + classes;
    if (std::any_of(begin, end, [](float x) { return std::isnan(x); })) continue;
    const int64_t best = std::max_element(begin, end) - begin;
    right += best == config_.labels[static_cast<size_t>(indices[i])] ? 1 : 0;
  }
  return right;
}

StepRow Runner::run_lane(Lane& lane, int64_t step, std::span<const int64_t> indices) {
  using Clock = std::chrono::steady_clock;
  const bool full = static_cast<int64_t>(indices.size()) == feed_->batch();
  const bool record =
      config_.every > 0 && step % config_.every == 0 && full && !lane.config.plan.double_precision;
  lane.stats.assign(record ? lane.executable.taps.size() : 0, TensorStats{});
  const Clock::time_point start = Clock::now();
  feed_->write(lane.executable, *lane.program, data_.test, indices);
  lane.program->set_random(config_.seed, static_cast<uint64_t>(step));
  lane.program->run(Entry::eval, lane.stats);
  if (config_.keep_outputs) keep(lane, indices.size());
  StepRow row;
  row.step = step;
  row.loss = row.grad_norm = std::numeric_limits<double>::quiet_NaN();
  if (!config_.labels.empty()) {
    const int64_t right = score(lane, indices);
    lane.result.right += right;
    lane.result.scored += static_cast<int64_t>(indices.size());
    row.accuracy = static_cast<double>(right) / static_cast<double>(indices.size());
  }
  row.first_bad = first_bad_site(lane.executable, lane.stats);
  const std::chrono::duration<double> spent = Clock::now() - start;
  row.ms = spent.count() * 1e3;
  lane.result.seconds += spent.count();
  return row;
}

bool Runner::has_lane(size_t lane) const { return !lanes_.at(lane)->lost; }

/// The lane goes no further: its program may be in any state.
void Runner::lose(size_t lane, TapSink* sink, LostLane&& lost) {
  lanes_[lane]->lost = true;
  lanes_[lane]->program.reset();  // others may need the room
  if (sink != nullptr) sink->lost(static_cast<int>(lane), lost.batch, lost.why);
  lost_.push_back(std::move(lost));
  if (lost_.size() < lanes_.size()) return;
  // What all fail over alike is no fault of a lane: an index out of range, say.
  const LostLane& last = lost_.back();
  const bool alike = std::all_of(lost_.begin(), lost_.end(),
                                 [&](const LostLane& each) { return each.why == last.why; });
  if (alike) throw Error(last.why, last.hint, last.kind);
  throw Error(
      "lane " + last.name + " was lost at batch " + std::to_string(last.batch) + ": " + last.why,
      last.hint, last.kind);
}

/// work() unless the lane is lost, by which it may be; whether it was done.
template <class F>
bool Runner::guarded(size_t lane, int64_t step, TapSink* sink, const F& work) {
  if (lanes_[lane]->lost) return false;
  LostLane lost{lanes_[lane]->config.name(), step, "out of memory",
                "lower --batch or --limit, or run fewer lanes", ErrorKind::runtime};
  try {
    work(*lanes_[lane]);
    return true;
  } catch (const Error& error) {
    lost.why = error.what();
    lost.hint = error.hint();
    lost.kind = error.kind();
  } catch (const std::bad_alloc&) {
  }
  lose(lane, sink, std::move(lost));
  return false;
}

/// What a comparison fails over is found by asking both programs: the one that fails is lost.
void Runner::compare(int64_t step, TapSink& sink) {
  const auto probe = [](Lane& lane) {
    static_cast<void>(lane.program->read(lane.executable.outputs[0].value));
  };
  for (size_t i = 0; i < lanes_.size(); ++i) {
    std::vector<SiteError> errors;
    std::vector<SiteSums> sums;
    std::vector<KernelCheck> checks;
    guarded(i, step, &sink, [&](Lane& lane) {
      try {
        compare_lane(lane, step, errors);
      } catch (const Error&) {
        const size_t lost_before = lost_.size();
        probe(lane);
        for (const size_t other : lane.compared_with) guarded(other, step, &sink, probe);
        if (lost_.size() == lost_before) throw;
      }
      if (lane.checker) {
        checks =
            lane.checker->check(step, *lane.program, {config_.seed, static_cast<uint64_t>(step)});
      }
      sums = diagnosed_sums(lane.executable, *lane.program, step);
    });
    for (const SiteError& error : errors) sink.error(static_cast<int>(i), error);
    for (const SiteSums& each : sums) sink.sums(static_cast<int>(i), each);
    for (const KernelCheck& check : checks) sink.kernel(static_cast<int>(i), check);
  }
}

void Runner::compare_lane(const Lane& lane, int64_t step, std::vector<SiteError>& errors) {
  for (size_t pair = 0; pair < lane.comparators.size(); ++pair) {
    const Lane& other = *lanes_[lane.compared_with[pair]];
    if (other.lost) continue;
    const std::vector<SiteError> found = lane.comparators[pair].compare(
        step, {lane.executable, *lane.program}, {other.executable, *other.program});
    errors.insert(errors.end(), found.begin(), found.end());
  }
}

void Runner::run(TapSink* sink, const Progress& progress, const std::atomic<bool>& stop) {
  const int64_t samples = data_.test.size(), count = batches();
  std::vector<StepRow> rows(lanes_.size());
  std::vector<int64_t> indices;
  for (size_t i = 0; sink != nullptr && i < lost_.size(); ++i) {
    const auto named = [&](const auto& lane) { return lane->config.name() == lost_[i].name; };
    const auto lane = std::find_if(lanes_.begin(), lanes_.end(), named);
    sink->lost(static_cast<int>(lane - lanes_.begin()), lost_[i].batch, lost_[i].why);
  }
  int64_t step = 0;
  try {
    for (; step < count && !stop; ++step) {
      const int64_t first = step * feed_->batch();
      indices.resize(static_cast<size_t>(std::min(feed_->batch(), samples - first)));
      std::iota(indices.begin(), indices.end(), first);
      for (size_t i = 0; i < lanes_.size(); ++i) {
        rows[i] = {.step = step, .loss = std::numeric_limits<double>::quiet_NaN()};
        guarded(i, step, sink, [&](Lane& lane) { rows[i] = run_lane(lane, step, indices); });
      }
      if (sink != nullptr) {
        // Of a batch that is not full the zeros would be compared, too.
        const bool full = static_cast<int64_t>(indices.size()) == feed_->batch();
        if (full && config_.errors.samples(step, samples / feed_->batch())) compare(step, *sink);
        for (size_t i = 0; i < lanes_.size(); ++i) {
          if (lanes_[i]->lost) continue;
          sink->step(static_cast<int>(i), rows[i], lanes_[i]->stats);
        }
      }
      samples_done_ += static_cast<int64_t>(indices.size());
      if (progress) progress(rows);
    }
  } catch (const std::exception&) {
    if (sink != nullptr) sink->end(RunEnd::interrupted);
    throw;
  }
  if (sink == nullptr) return;
  for (size_t i = 0; i < lanes_.size() && step == count; ++i) {
    const double accuracy = lanes_[i]->result.accuracy();
    if (!lanes_[i]->lost && !std::isnan(accuracy)) {
      sink->eval(
          static_cast<int>(i),
          {.step = step, .loss = std::numeric_limits<double>::quiet_NaN(), .accuracy = accuracy});
    }
  }
  sink->end(step < count ? RunEnd::interrupted : RunEnd::complete);
}

}  // namespace halfscope
