// SPDX-License-Identifier: MIT
#include "core/train/runner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/data/shapes.h"
#include "core/error.h"
#include "core/near_miss.h"
#include "core/numeric/statistics/auc.h"
#include "core/ops/movement.h"
#include "core/train/lane_setup.h"

namespace halfscope {

Runner::Runner(Model model, const RunnerConfig& config, const Dataset& data)
    : config_(config), data_(data), model_name_(model.name), results_(config.lanes.size()) {
  if (data.test.size() == 0) throw usage_error("the data has no samples to run on");
  NamedTensors weights = take_starting_weights(model, config.seed, config.init);
  free_tensors(config_.init);
  for (const LaneConfig& lane_config : config_.lanes) {
    Lane& lane = lanes_.add(lane_config, lower_inference(model, lane_config.plan), config_.errors);
    if (!feed_) feed_.emplace(lane.executable, data_);
    lanes_.set_up(lane, 0, [&] {
      lane.program = lane_config.backend->compile(lane.executable);
      write_weights(*lane.program, lane.executable.graph, weights, lane_config);
    });
  }
  free_tensors(weights);
  if (lanes_.empty()) throw usage_error("there are no lanes to run");
  lanes_.pair_up(config_.errors, config_.lanes);
  lanes_.check_any();
  check_last_batch();
  if (!config_.labels.values.empty()) check_labels();
  if (!is_of_pixels(config_.labels.shape)) return;
  for (Result& result : results_) result.classes.emplace(layout_.labels());
}

void Runner::check_labels() {
  SampleLabels& labels = config_.labels;
  const int64_t count = static_cast<int64_t>(labels.values.size()), samples = data_.test.size();
  if (count != samples * element_count(labels.shape)) {
    throw usage_error("there are " + std::to_string(count) + " labels for " +
                          std::to_string(samples) + " samples",
                      "give one label per sample, or one per pixel");
  }
  const Executable& first = lanes_[0].executable;
  const std::vector<size_t> fitting =
      outputs_with_scores(first.graph, first.outputs, feed_->batch(), labels);
  if (fitting.empty()) {
    const std::vector<std::string> names = output_names();
    if (!labels.output.empty() && std::ranges::find(names, labels.output) == names.end()) {
      throw usage_error("the network has no output '" + labels.output + "'",
                        did_you_mean(labels.output, names, "its outputs: " + comma_list(names)));
    }
    std::string text = "no class scores for " +
                       (element_count(labels.shape) > 1
                            ? "labels of shape " + to_string(labels.shape) + " per sample: "
                            : std::string("one label per sample: "));
    const char* between = "";
    for (const NamedValue& output : first.outputs) {
      if (!labels.output.empty() && output.name != labels.output) continue;
      text += between + ("output '" + output.name) + "' has shape " +
              to_string(first.graph.value(output.value).shape);
      between = ", ";
    }
    throw usage_error(
        text,
        "use labels only if an output has shape [samples, classes], one score per sample for "
        "labels 0 and 1, or [samples, classes, height, width] for a label per pixel");
  }
  scored_ = fitting.front();
  const Value& scores = first.graph.value(first.outputs[scored_].value);
  layout_ = *label_layout(scores.shape, feed_->batch(), labels.shape);
  for (int32_t& label : labels.values) {
    if (label == labels.ignored) {
      label = -1;
      continue;
    }
    if (label >= 0 && label < layout_.labels()) continue;
    throw usage_error(
        "label " + std::to_string(label) + " is not in 0.." + std::to_string(layout_.labels() - 1),
        "labels count from 0; use --ignore-label " + std::to_string(label) +
            " if such labels do not count");
  }
}

void Runner::check_last_batch() const {
  const int64_t samples = data_.test.size(), batch = feed_->batch(), rest = samples % batch;
  if (rest == 0 || !feed_->has_batch_axis()) return;
  const Executable& first = lanes_[0].executable;
  for (const NamedValue& output : first.outputs) {
    const Shape& shape = first.graph.value(output.value).shape;
    if (!shape.empty() && shape[0] == batch) continue;
    int64_t divisor = batch;
    while (samples % divisor != 0) --divisor;
    throw usage_error("output '" + output.name + "' of shape " + to_string(shape) +
                          " has no dimension for samples, so every batch must be full; the last "
                          "one would have " +
                          std::to_string(rest) + " of " + std::to_string(batch) + " samples",
                      "use --batch " + std::to_string(divisor) + ", or --limit " +
                          std::to_string(samples - rest));
  }
}

std::string Runner::scored_output() const {
  return config_.labels.values.empty() ? "" : lanes_[0].executable.outputs[scored_].name;
}

double Runner::Result::accuracy() const {
  return scored > 0 ? static_cast<double>(right) / static_cast<double>(scored)
                    : std::numeric_limits<double>::quiet_NaN();
}

int64_t Runner::batches() const noexcept {
  return (data_.test.size() + feed_->batch() - 1) / feed_->batch();
}

std::vector<std::string> Runner::output_names() const {
  std::vector<std::string> names;
  for (const NamedValue& output : lanes_[0].executable.outputs) names.push_back(output.name);
  return names;
}

RunInfo Runner::describe() const {
  RunInfo info;
  info.model = model_name_;
  info.data = data_.name;
  info.inference = true;
  info.detects = has_detection_score(data_, lanes_[0].executable.output_shapes());
  info.batch = feed_->batch();
  info.steps_planned = batches();
  info.test_samples = data_.test.size();
  info.seed = config_.seed;
  info.every = config_.every;
  info.lanes = lanes_.describe();
  return info;
}

/// Appends the outputs of the batch's first samples to those of the lane.
void Runner::keep(size_t which, size_t samples) {
  const Lane& lane = lanes_[which];
  const size_t batch = static_cast<size_t>(feed_->batch());
  for (const NamedValue& output : lane.executable.outputs) {
    const Tensor values = lane.program->read(output.value);
    Tensor& all = results_[which].outputs[output.name];
    // Outputs are stacked if the network or the output itself has no dimension for samples.
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

/// Returns whether an operator makes the numbers of the output with the scores.
bool Runner::is_made_by(const Lane& lane, std::string_view op) const {
  const Graph& graph = lane.executable.graph;
  const NodeId maker = maker_of(graph, lane.executable.outputs[scored_].value);
  return maker != kNone && graph.node(maker).op == op;
}

double Runner::score(const Lane& lane, std::span<const int64_t> indices, Result& result) const {
  const ValueId output = lane.executable.outputs[scored_].value;
  const Tensor scores = lane.program->read(output);
  const bool probability = is_made_by(lane, "Sigmoid");
  const auto per_sample = static_cast<size_t>(layout_.per_sample);
  // Samples of a batch follow one another.
  const auto labels =
      std::span<const int32_t>(config_.labels.values)
          .subspan(static_cast<size_t>(indices.front()) * per_sample, indices.size() * per_sample);
  const LabelCount count = count_labels(scores.data, labels, layout_, probability ? 0.5f : 0.0f,
                                        result.classes ? &*result.classes : nullptr);
  result.right += count.right;
  result.scored += count.scored;
  result.ignored += static_cast<int64_t>(labels.size()) - count.scored;
  return count.scored > 0 ? static_cast<double>(count.right) / static_cast<double>(count.scored)
                          : std::numeric_limits<double>::quiet_NaN();
}

/// The area of what has been run; NaN unless all outputs were kept.
double Runner::area_of(const Result& result) const {
  const std::string& name = lanes_[0].executable.outputs[scored_].name;
  const auto found = result.outputs.find(name);
  const bool missing = found == result.outputs.end() || result.scored == 0;
  if (config_.labels.values.empty() || layout_.per_sample > 1 || missing) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const std::vector<float>& scores = found->second.data;
  const auto samples = scores.size() / static_cast<size_t>(layout_.classes);
  // Rounding may take the sums of probabilities far from 1: the network says better what they are.
  const ScoreKind kind = is_made_by(lanes_[0], "Softmax") ? ScoreKind::probabilities
                                                          : score_kind(scores, layout_.classes);
  return mean_area_under_curve(scores, layout_.classes,
                               std::span<const int32_t>(config_.labels.values).first(samples),
                               kind);
}

StepRow Runner::run_lane(size_t which, int64_t step, std::span<const int64_t> indices) {
  using Clock = std::chrono::steady_clock;
  Lane& lane = lanes_[which];
  Result& result = results_[which];
  const bool full = static_cast<int64_t>(indices.size()) == feed_->batch();
  const bool record =
      config_.every > 0 && step % config_.every == 0 && full && !lane.config.plan.double_precision;
  lane.stats.assign(record ? lane.executable.taps.size() : 0, TensorStats{});
  const Clock::time_point start = Clock::now();
  feed_->write(lane.executable, *lane.program, data_.test, indices);
  lane.program->set_random(config_.seed, static_cast<uint64_t>(step));
  lane.program->run(Entry::eval, lane.stats);
  if (config_.keep_outputs) keep(which, indices.size());
  StepRow row;
  row.step = step;
  row.loss = row.grad_norm = std::numeric_limits<double>::quiet_NaN();
  if (!config_.labels.values.empty()) row.accuracy = score(lane, indices, result);
  row.first_bad = first_bad_site(lane.executable, lane.stats);
  const std::chrono::duration<double> spent = Clock::now() - start;
  row.ms = spent.count() * 1e3;
  result.seconds += spent.count();
  return row;
}

/// Compares outputs with those of the references. `moves`: also runs the references with weights
/// and inputs moved.
void Runner::probe(int64_t step, std::span<const int64_t> indices, bool moves) {
  const int64_t samples = static_cast<int64_t>(indices.size());
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (!probes_[i]) continue;
    const size_t other = static_cast<size_t>(lanes_[i].reference);
    if (lanes_[i].lost || lanes_[other].lost) {
      probes_[i].reset();
      continue;
    }
    lanes_.guarded(i, step, [&](Lane&) {
      probes_[i]->compare(feed_->batch(), samples, feed_->has_batch_axis(), moves);
    });
  }
  // Moving changes the reference's tensors, so all lanes are compared before.
  for (size_t i = 0; moves && i < lanes_.size(); ++i) {
    if (!probes_[i] || lanes_[i].lost) continue;
    const size_t other = static_cast<size_t>(lanes_[i].reference);
    const auto move = [&](Lane& reference) {
      probes_[i]->move(feed_->batch(), samples, feed_->has_batch_axis(), config_.seed,
                       [&](Program& program) {
                         feed_->write(reference.executable, program, data_.test, indices);
                       });
    };
    lanes_.guarded(other, step, move);
  }
}

void Runner::run(TapSink* sink, const Progress& progress, const std::atomic<bool>& stop) {
  const int64_t samples = data_.test.size(), count = batches();
  std::vector<StepRow> rows(lanes_.size());
  std::vector<int64_t> indices;
  lanes_.watch(sink, 0);
  probes_.clear();
  probes_.resize(lanes_.size());
  const bool compares = sink != nullptr && config_.errors.enabled;
  for (size_t i = 0; compares && i < lanes_.size(); ++i) {
    const int other = lanes_[i].reference;
    if (other < 0 || lanes_[i].lost || lanes_[static_cast<size_t>(other)].lost) continue;
    probes_[i].emplace(lanes_[i], lanes_[static_cast<size_t>(other)]);
  }
  int64_t step = 0;
  try {
    for (; step < count && !stop; ++step) {
      const int64_t first = step * feed_->batch();
      indices.resize(static_cast<size_t>(std::min(feed_->batch(), samples - first)));
      std::iota(indices.begin(), indices.end(), first);
      // The padding of a batch that is not full would be compared, too.
      const bool full = static_cast<int64_t>(indices.size()) == feed_->batch();
      const bool sampled = full && config_.errors.samples(step, samples / feed_->batch());
      // A run with fewer samples than a batch has no full one.
      const bool probes = count == 1 || sampled;
      for (size_t i = 0; i < lanes_.size(); ++i) {
        rows[i] = {.step = step, .loss = std::numeric_limits<double>::quiet_NaN()};
        lanes_.guarded(i, step, [&](Lane& lane) {
          lane.program->keep_values(sink != nullptr && probes);
          rows[i] = run_lane(i, step, indices);
        });
      }
      if (sink != nullptr) {
        if (sampled) {
          lanes_.compare(step, {config_.seed, static_cast<uint64_t>(step)}, [](const Lane& lane) {
            static_cast<void>(lane.program->read(lane.executable.outputs[0].value));
          });
        }
        probe(step, indices, probes);
        for (size_t i = 0; i < lanes_.size(); ++i) {
          if (has_lane(i)) sink->step(static_cast<int>(i), rows[i], lanes_[i].stats);
        }
      }
      samples_done_ += static_cast<int64_t>(indices.size());
      if (progress) progress(rows);
    }
  } catch (const std::exception&) {
    if (sink != nullptr) sink->end(RunEnd::interrupted);
    throw;
  }
  for (const auto& lane : lanes_) {
    if (!lane->lost) lane->program->keep_values(true);
  }
  for (Result& result : results_) result.auc = area_of(result);
  if (sink == nullptr) return;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (!probes_[i] || step == 0) continue;
    for (const Deviation& each : probes_[i]->results(step)) {
      sink->deviation(static_cast<int>(i), each);
    }
  }
  for (size_t i = 0; i < lanes_.size() && step == count; ++i) {
    const std::optional<DetectionScore> boxes = detection_score(data_, results_[i].outputs);
    const double accuracy = boxes ? boxes->half : results_[i].accuracy();
    if (has_lane(i) && !std::isnan(accuracy)) {
      const Result& result = results_[i];
      EvalRow row{.step = step, .loss = std::numeric_limits<double>::quiet_NaN()};
      row.accuracy = accuracy;
      row.auc = result.auc;
      if (result.classes) row.mean_iou = result.classes->mean_iou();
      sink->eval(static_cast<int>(i), row);
    }
  }
  sink->end(step < count ? RunEnd::interrupted : RunEnd::complete);
}

}  // namespace halfscope
