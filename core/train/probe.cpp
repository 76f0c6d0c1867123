// SPDX-License-Identifier: MIT
#include "core/train/probe.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "core/numeric/formats/rng.h"
#include "core/numeric/formats/round.h"

namespace halfscope {
namespace {

/// A gradient counts as at least this share of what its number of elements would have of all: some
/// are zero but for rounding, such as those of biases before a batch normalization.
constexpr double kLeastGradient = 0.1;
/// The same of what training has moved.
constexpr double kLeastMovement = 0.1;
/// A loss below this share of the first one is as good as learned.
constexpr double kLearnedLoss = 1e-3;

bool all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
}

double energy(std::span<const float> values) {
  double sum = 0.0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum;
}

bool lowered_alike(const Plan& plan, const Plan& reference) {
  const Plan wanted = reference_of(plan), there = reference_of(reference);
  return wanted.defaults.stagewise == there.defaults.stagewise && wanted.rules == there.rules;
}

ValueId tap_of(const Executable& executable, const std::string& site) {
  const auto found = std::find_if(executable.taps.begin(), executable.taps.end(),
                                  [&](const Tap& tap) { return tap.site.name() == site; });
  return found == executable.taps.end() ? kNone : found->value;
}

/// What the update reads: the sum over micro-batches, where there is one.
ValueId gradient_of(const Executable& executable, const std::string& variable) {
  const std::string path =
      variable.find('.') == std::string::npos ? variable + ".weight" : variable;
  const ValueId sum = tap_of(executable, path + "_grad_sum");
  return sum != kNone ? sum : tap_of(executable, path + "_grad");
}

/// Errors in units of `size`, a sum of squares, in place of the truth's own.
void rescale(Deviation& deviation, double own, double size) {
  if (size <= own || size == 0.0) return;
  const double factor = std::sqrt(own / size);
  if (std::isinf(deviation.error)) return;
  deviation.error *= factor;
}

}  // namespace

int reference_for(std::span<const LaneConfig> lanes, size_t which) {
  std::optional<size_t> same, single, other;
  for (size_t i = 0; i < lanes.size(); ++i) {
    const Plan& plan = lanes[i].plan;
    if (!is_full_precision(plan)) continue;
    if (plan.double_precision) {
      if (!other) other = i;
      continue;
    }
    if (!single) single = i;
    if (!same && lowered_alike(lanes[which].plan, plan)) same = i;
  }
  const std::optional<size_t> found = same ? same : single ? single : other;
  // The other full-precision lanes are references of lanes that are lowered differently.
  const bool is_reference = is_full_precision(lanes[which].plan) && found &&
                            (*found == which || lanes[which].plan.double_precision);
  return !found || is_reference ? -1 : static_cast<int>(*found);
}

KeptVariables::KeptVariables(Program& program, const Graph& graph) : program_(program) {
  // The optimizer's state has no part in gradients.
  std::set<ValueId> read;
  for (const Node& node : graph.nodes()) {
    if (node.phase == Phase::forward) read.insert(node.inputs.begin(), node.inputs.end());
  }
  for (const Variable& variable : graph.variables()) {
    if (!variable.buffer && !read.contains(variable.value)) continue;
    kept_.push_back(
        {variable.path, variable.value, variable.buffer, program.read_exact(variable.value)});
  }
}

KeptVariables::~KeptVariables() {
  for (const Kept& kept : kept_) program_.write_exact(kept.value, kept.data);
}

void KeptVariables::take(const Program& other, const Graph& other_graph) {
  for (const Variable& variable : other_graph.variables()) {
    const auto found = std::find_if(kept_.begin(), kept_.end(),
                                    [&](const Kept& kept) { return kept.path == variable.path; });
    if (found == kept_.end()) continue;
    const std::vector<double> values = other.read_exact(variable.value);
    if (values.size() == found->data.size()) program_.write_exact(found->value, values);
  }
}

void KeptVariables::move(const std::map<std::string, int>& bits, uint64_t seed) {
  uint64_t index = 0;
  for (const Kept& kept : kept_) {
    const auto found = bits.find(kept.path);
    if (kept.buffer || found == bits.end()) continue;
    Tensor values = program_.read(kept.value);
    move_by_ulp(values.data, found->second, splitmix64(seed) + (index++ << 40));
    program_.write(kept.value, values.data);
  }
}

void move_inputs(Program& program, const Executable& executable,
                 const std::map<std::string, int>& bits, uint64_t seed) {
  uint64_t index = uint64_t{1} << 20;
  for (const NamedValue& input : executable.inputs) {
    const auto found = bits.find(input.name);
    if (found == bits.end()) continue;
    Tensor values = program.read(input.value);
    move_by_ulp(values.data, found->second, splitmix64(seed) + (index++ << 40));
    program.write(input.value, values.data);
  }
}

TrainingProbe::TrainingProbe(const Lane& lane, const Lane& reference)
    : lane_(lane), reference_(reference), precision_(read_precision(lane.executable)) {
  for (const Variable& variable : reference.executable.graph.variables()) {
    const ValueId own = gradient_of(lane.executable, variable.path);
    const ValueId other = gradient_of(reference.executable, variable.path);
    if (own != kNone && other != kNone) gradients_.push_back({variable.path, own, other});
  }
}

TrainingProbe::Result TrainingProbe::run_reference(
    const Batch& batch, const std::map<std::string, int>* moved_inputs) const {
  const Executable& exe = reference_.executable;
  Program& program = *reference_.program;
  program.write_scalar(exe.loss_scale, 1.0 / static_cast<double>(batch.parts));
  program.run(Entry::begin, {});
  for (int64_t part = 0; part < batch.parts; ++part) {
    batch.feed(part, program);
    const uint64_t words = static_cast<uint64_t>(batch.step * batch.parts + part);
    if (moved_inputs != nullptr) move_inputs(program, exe, *moved_inputs, batch.seed + words);
    program.set_random(batch.seed, words);
    program.write_scalar(exe.keep_sum, part > 0 ? 1.0 : 0.0);
    program.run(Entry::grad, {});
    program.run(Entry::accumulate, {});
  }
  Result result{.loss = program.read_scalar(exe.loss), .gradients = {}};
  for (const Gradient& each : gradients_) {
    result.gradients.push_back(program.read(each.reference).data);
  }
  return result;
}

std::vector<Deviation> TrainingProbe::measure(const Batch& batch) {
  KeptVariables kept(*reference_.program, reference_.executable.graph);
  if (batch.own_weights) kept.take(*lane_.program, lane_.executable.graph);
  const Result truth = run_reference(batch, nullptr);
  kept.move(precision_.variables, batch.seed + 1);
  const Result moved = run_reference(batch, &precision_.inputs);
  if (first_loss_ == 0.0) first_loss_ = std::fabs(truth.loss);

  const double size = std::max(std::fabs(truth.loss), kLearnedLoss * first_loss_);
  const auto loss_error = [&](double loss) {
    return loss == truth.loss ? 0.0 : std::fabs(loss - truth.loss) / size;
  };
  const double own_loss = lane_.program->read_scalar(lane_.executable.loss);
  Deviation loss{.step = batch.step, .of = Deviation::Of::loss, .n = 1};
  if (std::isfinite(truth.loss)) {
    loss.broken = std::isfinite(own_loss) ? 0 : 1;
    if (loss.broken == 0) loss.error = loss_error(own_loss);
    loss.spread = loss_error(moved.loss);
  }
  std::vector<Deviation> result{loss};

  const double scale = static_cast<double>(lane_.state.scaler.scale);
  double all = 0.0, elements = 0.0;
  std::vector<std::vector<float>> own;
  for (size_t i = 0; i < gradients_.size(); ++i) {
    own.push_back(lane_.program->read(gradients_[i].lane).data);
    // The step is skipped, and the next one may have another scale: that shows in the steps.
    if (!all_finite(own.back()) && lane_.config.scaler.kind != LossScalerConfig::Kind::none) {
      return result;
    }
    all += energy(truth.gradients[i]);
    elements += static_cast<double>(truth.gradients[i].size());
  }
  DeviationMeter all_differences, all_spreads;
  for (size_t i = 0; i < gradients_.size(); ++i) {
    const std::vector<float>& right = truth.gradients[i];
    if (!all_finite(right)) continue;
    all_differences.add(own[i], right, scale);
    all_spreads.add(moved.gradients[i], right);
    Deviation gradient{
        .step = batch.step, .of = Deviation::Of::gradient, .name = gradients_[i].path};
    DeviationMeter difference, spread;
    difference.add(own[i], right, scale);
    spread.add(moved.gradients[i], right);
    difference.write(gradient);
    const double usual = kLeastGradient * kLeastGradient * all * static_cast<double>(right.size()) /
                         std::max(elements, 1.0);
    rescale(gradient, difference.truth_energy(), usual);
    Deviation twin;
    spread.write(twin);
    rescale(twin, spread.truth_energy(), usual);
    gradient.spread = twin.error;
    gradient.ratio_spread = twin.ratio;
    result.push_back(std::move(gradient));
  }
  Deviation whole{.step = batch.step, .of = Deviation::Of::gradient}, twin;
  all_differences.write(whole);
  all_spreads.write(twin);
  whole.spread = twin.error;
  whole.ratio_spread = twin.ratio;
  result.push_back(whole);
  has_gradients_ = true;
  return result;
}

InferenceProbe::InferenceProbe(const Lane& lane, const Lane& reference)
    : lane_(lane), reference_(reference), precision_(read_precision(lane.executable)) {
  for (const NamedValue& output : lane.executable.outputs) {
    for (const NamedValue& other : reference.executable.outputs) {
      if (other.name != output.name) continue;
      const bool real = lane.executable.graph.value(output.value).type == ElementType::real;
      outputs_.push_back(
          {.name = output.name, .lane = output.value, .reference = other.value, .real = real});
    }
  }
}

void InferenceProbe::add(DeviationMeter& meter, const Output& output, const Tensor& x,
                         const Tensor& truth, int64_t batch, int64_t samples, bool has_batch_axis) {
  if (x.data.size() != truth.data.size()) return;
  const bool by_sample = has_batch_axis && !truth.shape.empty() && truth.shape[0] == batch;
  const size_t count =
      by_sample ? truth.data.size() / static_cast<size_t>(batch) * static_cast<size_t>(samples)
                : truth.data.size();
  const std::span<const float> mine(x.data.data(), count), right(truth.data.data(), count);
  if (output.real) {
    meter.add(mine, right);
  } else {
    meter.add_indices(mine, right);
  }
}

void InferenceProbe::compare(int64_t batch, int64_t samples, bool has_batch_axis, bool keeps) {
  for (Output& output : outputs_) {
    output.kept_own = lane_.program->read(output.lane);
    output.kept_truth = reference_.program->read(output.reference);
    add(output.difference, output, output.kept_own, output.kept_truth, batch, samples,
        has_batch_axis);
    if (!keeps) output.kept_own = output.kept_truth = {};
  }
}

/// A sample's error counts in units of its own size. Of few numbers that may be next to nothing by
/// chance, so they count as a tenth of what is usual at least.
void InferenceProbe::find_worst(Output& output, const Tensor& moved, int64_t batch, int64_t rows) {
  constexpr int64_t kFewNumbers = 8;
  constexpr double kSmallest = 1e-5, kSmallestOfFew = 0.1;
  constexpr double kUnremarkable = 0.05;  // spreads below are taken for this
  const std::vector<float>&x = output.kept_own.data, &truth = output.kept_truth.data;
  const int64_t length = static_cast<int64_t>(truth.size()) / batch;
  if (length == 0 || x.size() != truth.size() || moved.data.size() != truth.size()) return;
  const std::span<const float> all(truth.data(), static_cast<size_t>(rows * length));
  const double usual = std::sqrt(energy(all) / static_cast<double>(rows));
  const double least = (length < kFewNumbers ? kSmallestOfFew : kSmallest) * usual;
  double most = std::max(output.worst, 0.0) / std::max(output.worst_spread, kUnremarkable);
  if (std::isnan(output.worst)) most = -1.0;
  for (int64_t row = 0; row < rows; ++row) {
    double own = 0.0, other = 0.0, size = 0.0;
    bool finite = true;
    for (size_t i = static_cast<size_t>(row * length); i < static_cast<size_t>((row + 1) * length);
         ++i) {
      const double right = static_cast<double>(truth[i]);
      finite =
          finite && std::isfinite(truth[i]) && std::isfinite(x[i]) && std::isfinite(moved.data[i]);
      own += (static_cast<double>(x[i]) - right) * (static_cast<double>(x[i]) - right);
      other += (static_cast<double>(moved.data[i]) - right) *
               (static_cast<double>(moved.data[i]) - right);
      size += right * right;
    }
    if (!finite) continue;  // such elements are counted
    const double base = std::max(std::sqrt(size), least);
    if (base == 0.0) continue;
    const double error = std::sqrt(own) / base, spread = std::sqrt(other) / base;
    const double excess = error / std::max(spread, kUnremarkable);
    if (excess <= most) continue;
    most = excess;
    output.worst = error;
    output.worst_spread = spread;
  }
}

void InferenceProbe::move(int64_t batch, int64_t samples, bool has_batch_axis, uint64_t seed,
                          const std::function<void(Program&)>& feed) {
  KeptVariables kept(*reference_.program, reference_.executable.graph);
  kept.move(precision_.variables, seed + 1);
  feed(*reference_.program);
  move_inputs(*reference_.program, reference_.executable, precision_.inputs, seed);
  reference_.program->run(Entry::eval, {});
  for (Output& output : outputs_) {
    const Tensor moved = reference_.program->read(output.reference);
    add(output.spread, output, moved, output.kept_truth, batch, samples, has_batch_axis);
    const Shape& shape = output.kept_truth.shape;
    const bool by_sample = has_batch_axis && !shape.empty() && shape[0] == batch;
    if (output.real && by_sample) find_worst(output, moved, batch, samples);
    output.kept_own = output.kept_truth = {};
  }
}

std::vector<Deviation> InferenceProbe::results(int64_t steps) const {
  std::vector<Deviation> result;
  for (const Output& output : outputs_) {
    Deviation deviation{.step = steps, .of = Deviation::Of::output, .name = output.name};
    output.difference.write(deviation);
    Deviation moved;
    output.spread.write(moved);
    deviation.spread = moved.error;
    deviation.worst = output.worst;
    deviation.worst_spread = output.worst_spread;
    deviation.ratio_spread = moved.ratio;
    result.push_back(std::move(deviation));
  }
  return result;
}

namespace {

/// A variable's way from where it began, in both lanes.
struct WeightChange {
  std::string path;
  Deviation::Of of;
  std::vector<float> own, right;
};

/// From where the lane itself began: with the start rounded to the format that it keeps it in.
std::vector<float> less(const Tensor& values, const Tensor& start, const FloatFormat& format) {
  std::vector<float> result(values.data);
  for (size_t i = 0; i < result.size(); ++i) {
    result[i] -= round_to_format(start.data[i], format).value;
  }
  return result;
}

const FloatFormat& format_in(const Lane& lane, ValueId value) {
  return lane.executable.graph.value(value).format;
}

std::vector<WeightChange> weight_changes(const Lane& lane, const Lane& reference,
                                         const NamedTensors& start) {
  std::vector<WeightChange> result;
  for (const auto& [path, began] : start) {
    const auto in = [&path = path](const Executable& executable) {
      for (const Variable& variable : executable.graph.variables()) {
        if (variable.path == path) return variable.value;
      }
      return kNone;
    };
    const ValueId own = in(lane.executable), right = in(reference.executable);
    if (own == kNone || right == kNone) continue;
    result.push_back({path, Deviation::Of::weight,
                      less(lane.program->read(own), began, format_in(lane, own)),
                      less(reference.program->read(right), began, format_in(reference, right))});
  }
  for (const AveragedVariable& average : lane.executable.averages) {
    const auto began = start.find(average.path);
    if (began == start.end()) continue;
    for (const AveragedVariable& other : reference.executable.averages) {
      if (other.path != average.path) continue;
      result.push_back({average.path, Deviation::Of::average,
                        less(lane.program->read(average.average), began->second,
                             format_in(lane, average.average)),
                        less(reference.program->read(other.average), began->second,
                             format_in(reference, other.average))});
    }
  }
  return result;
}

}  // namespace

std::vector<Deviation> training_deviations(int64_t steps, const Lane& lane, const Lane& reference,
                                           const NamedTensors& start) {
  std::vector<Deviation> result;
  const std::vector<WeightChange> all = weight_changes(lane, reference, start);
  std::map<Deviation::Of, std::pair<double, double>> usual;  // energy, elements
  for (const WeightChange& each : all) {
    if (!all_finite(each.right)) continue;
    usual[each.of].first += energy(each.right);
    usual[each.of].second += static_cast<double>(each.right.size());
  }
  std::map<Deviation::Of, DeviationMeter> whole;
  for (const WeightChange& each : all) {
    whole[each.of].add(each.own, each.right);
    Deviation deviation{.step = steps, .of = each.of, .name = each.path};
    DeviationMeter meter;
    meter.add(each.own, each.right);
    meter.write(deviation);
    const auto& [sum, elements] = usual[each.of];
    const double least = kLeastMovement * kLeastMovement * sum *
                         static_cast<double>(each.right.size()) / std::max(elements, 1.0);
    // Of what hardly moves, neither the way nor its length says much.
    if (meter.truth_energy() < least) deviation.ratio = std::numeric_limits<double>::quiet_NaN();
    rescale(deviation, meter.truth_energy(), least);
    result.push_back(std::move(deviation));
  }
  for (const auto& [of, meter] : whole) {
    Deviation deviation{.step = steps, .of = of};
    meter.write(deviation);
    result.push_back(std::move(deviation));
  }
  for (const Variable& variable : reference.executable.graph.variables()) {
    if (!variable.buffer || variable.restored != kNone) continue;
    for (const Variable& own : lane.executable.graph.variables()) {
      if (own.path != variable.path || !own.buffer) continue;
      Deviation deviation{.step = steps, .of = Deviation::Of::buffer, .name = variable.path};
      DeviationMeter meter;
      meter.add(lane.program->read(own.value).data, reference.program->read(variable.value).data);
      meter.write(deviation);
      result.push_back(std::move(deviation));
    }
  }
  return result;
}

}  // namespace halfscope
