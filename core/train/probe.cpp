// SPDX-License-Identifier: MIT
#include "core/train/probe.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "core/numeric/formats/rng.h"
#include "core/numeric/formats/round.h"
#include "core/train/lane_setup.h"

namespace halfscope {
namespace {

/// A gradient counts as at least this share of its expected size, by its number of elements: some
/// are zero except for rounding, such as those of biases before a batch normalization.
constexpr double kLeastGradient = 0.1;
/// The same limit for the movement of weights.
constexpr double kLeastMovement = 0.1;
/// A loss below this share of the first one counts as learned.
constexpr double kLearnedLoss = 0.05;
/// An output with a larger error, also larger than this many times its spread, is worth further
/// runs of the reference.
constexpr double kDoubtfulError = 0.05, kExplainedFactor = 2.0;
constexpr uint64_t kFurtherMoves = 2;

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

/// Returns the gradient that the update reads: the mean over ranks or the sum over micro-batches,
/// where there is one.
ValueId gradient_of(const Executable& executable, const std::string& variable) {
  const std::string path =
      variable.find('.') == std::string::npos ? variable + ".weight" : variable;
  const ValueId reduced = tap_of(executable, path + "_grad_reduced");
  if (reduced != kNone) return reduced;
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
  // The optimizer's state does not affect gradients.
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

namespace {

int bits_moved(int in_lane, Ulp ulp) { return ulp == Ulp::of_fp32 ? kFp32.mantissa_bits : in_lane; }

}  // namespace

void KeptVariables::move(const std::map<std::string, int>& bits, uint64_t seed, Ulp ulp) {
  uint64_t index = 0;
  for (const Kept& kept : kept_) {
    const auto found = bits.find(kept.path);
    if (kept.buffer || found == bits.end()) continue;
    Tensor values = program_.read(kept.value);
    move_by_ulp(values.data, bits_moved(found->second, ulp), splitmix64(seed) + (index++ << 40));
    program_.write(kept.value, values.data);
  }
}

void move_inputs(Program& program, const Executable& executable,
                 const std::map<std::string, int>& bits, uint64_t seed, Ulp ulp) {
  uint64_t index = uint64_t{1} << 20;
  for (const NamedValue& input : executable.inputs) {
    const auto found = bits.find(input.name);
    if (found == bits.end()) continue;
    Tensor values = program.read(input.value);
    move_by_ulp(values.data, bits_moved(found->second, ulp), splitmix64(seed) + (index++ << 40));
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

TrainingProbe::Result TrainingProbe::run_reference(const Batch& batch,
                                                   const std::map<std::string, int>* moved_inputs,
                                                   uint64_t seed) const {
  const Executable& exe = reference_.executable;
  Program& program = *reference_.program;
  const int64_t of_rank = batch.parts / batch.ranks;
  program.write_scalar(exe.loss_scale, 1.0 / static_cast<double>(of_rank));
  program.run(Entry::begin, {});
  for (int64_t part = 0; part < batch.parts; ++part) {
    const int64_t rank = part / of_rank;
    if (batch.exchange != nullptr && batch.exchange->rank() != rank) continue;
    batch.feed(part, program);
    const uint64_t words = static_cast<uint64_t>(batch.step * batch.parts + part);
    if (moved_inputs != nullptr) move_inputs(program, exe, *moved_inputs, seed + words);
    program.set_random(batch.seed, words);
    program.write_scalar(exe.keep_sum, part % of_rank > 0 ? 1.0 : 0.0);
    if (batch.ranks > 1) {
      program.write_scalar(exe.rank, batch.exchange != nullptr ? 0.0 : static_cast<double>(rank));
    }
    program.run(Entry::grad, {});
    program.run(Entry::accumulate, {});
  }
  if (batch.ranks > 1) {
    const Shape& ranks = exe.graph.value(exe.rank_takes_part).shape;
    program.write(exe.rank_takes_part, std::vector<float>(static_cast<size_t>(ranks[0]), 1.0f));
    if (batch.exchange != nullptr) exchange_gradients(*batch.exchange, exe, program, false);
    program.run(Entry::norm, {});
  }
  Result result{.loss = program.read_scalar(exe.loss), .gradients = {}};
  for (const Gradient& each : gradients_) {
    result.gradients.push_back(program.read(each.reference).data);
  }
  return result;
}

namespace {

/// Copies the error and the ratio of outputs that are further apart.
void keep_further(Deviation& kept, const Deviation& other) {
  if (!(kept.error >= other.error)) kept.error = other.error;
  const auto from_one = [](double ratio) { return std::fabs(ratio - 1.0); };
  if (!(from_one(kept.ratio) >= from_one(other.ratio))) kept.ratio = other.ratio;
}

/// Returns whether the spread of the moved runs explains the error of an output.
bool explained(const Deviation& each) {
  return !(each.error > std::max(kDoubtfulError, kExplainedFactor * each.spread));
}

}  // namespace

std::vector<Deviation> TrainingProbe::measure(const Batch& batch) {
  KeptVariables kept(*reference_.program, reference_.executable.graph);
  if (batch.own_weights) kept.take(*lane_.program, lane_.executable.graph);
  const Result truth = run_reference(batch, nullptr);
  if (first_loss_ == 0.0) first_loss_ = std::fabs(truth.loss);
  std::vector<Result> moved{run_moved(batch, batch.seed)};
  std::vector<Deviation> result = compare(batch, truth, moved);
  bool doubtful = !std::all_of(result.begin(), result.end(), explained);
  // Processes that saw other samples must run the same batches.
  if (batch.exchange != nullptr) doubtful = recorded_value(*batch.exchange, doubtful);
  if (doubtful) {
    // If gradients jump, as at a clipped ratio, a single move may underestimate the spread.
    for (uint64_t i = 1; i <= kFurtherMoves; ++i) {
      moved.push_back(run_moved(batch, splitmix64(batch.seed + i)));
    }
    result = compare(batch, truth, moved);
  }
  return result;
}

/// From the weights that the reference has now, which it gets back.
TrainingProbe::Result TrainingProbe::run_moved(const Batch& batch, uint64_t seed) const {
  KeptVariables kept(*reference_.program, reference_.executable.graph);
  kept.move(precision_.variables, seed + 1);
  return run_reference(batch, &precision_.inputs, seed);
}

std::vector<Deviation> TrainingProbe::compare(const Batch& batch, const Result& truth,
                                              std::span<const Result> moved) {
  const double size = std::max(std::fabs(truth.loss), kLearnedLoss * first_loss_);
  const auto loss_error = [&](double loss) {
    return loss == truth.loss ? 0.0 : std::fabs(loss - truth.loss) / size;
  };
  const double own_loss = lane_.program->read_scalar(lane_.executable.loss);
  Deviation loss{.step = batch.step, .of = Deviation::Of::loss, .n = 1};
  if (std::isfinite(truth.loss)) {
    loss.broken = std::isfinite(own_loss) ? 0 : 1;
    if (loss.broken == 0) loss.error = loss_error(own_loss);
    for (const Result& each : moved) loss.spread = std::fmax(loss.spread, loss_error(each.loss));
  }
  std::vector<Deviation> result{loss};

  const double scale = lane_.state.scaler.scale;
  double all = 0.0, elements = 0.0;
  std::vector<std::vector<float>> own;
  for (size_t i = 0; i < gradients_.size(); ++i) {
    own.push_back(lane_.program->read(gradients_[i].lane).data);
    // The step is skipped, and the next one may have another scale; the step rows show that.
    if (!all_finite(own.back()) && lane_.config.scaler.kind != LossScalerConfig::Kind::none) {
      return result;
    }
    all += energy(truth.gradients[i]);
    elements += static_cast<double>(truth.gradients[i].size());
  }
  DeviationMeter all_differences;
  std::vector<DeviationMeter> all_spreads(moved.size());
  for (size_t i = 0; i < gradients_.size(); ++i) {
    const std::vector<float>& right = truth.gradients[i];
    if (!all_finite(right)) continue;
    all_differences.add(own[i], right, scale);
    Deviation gradient{
        .step = batch.step, .of = Deviation::Of::gradient, .name = gradients_[i].path};
    DeviationMeter difference;
    difference.add(own[i], right, scale);
    difference.write(gradient);
    const double usual = kLeastGradient * kLeastGradient * all * static_cast<double>(right.size()) /
                         std::max(elements, 1.0);
    rescale(gradient, difference.truth_energy(), usual);
    Deviation twin;
    for (size_t k = 0; k < moved.size(); ++k) {
      all_spreads[k].add(moved[k].gradients[i], right);
      DeviationMeter spread;
      spread.add(moved[k].gradients[i], right);
      Deviation once;
      spread.write(once);
      rescale(once, spread.truth_energy(), usual);
      keep_further(twin, once);
    }
    gradient.spread = twin.error;
    gradient.ratio_spread = twin.ratio;
    result.push_back(std::move(gradient));
  }
  Deviation whole{.step = batch.step, .of = Deviation::Of::gradient}, twin;
  all_differences.write(whole);
  for (const DeviationMeter& each : all_spreads) {
    Deviation once;
    each.write(once);
    keep_further(twin, once);
  }
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

InferenceProbe::Slices InferenceProbe::find_slices(const Output& output, int64_t batch,
                                                   int64_t samples, bool has_batch_axis) {
  Slices found;
  SlicedOutput sliced{.shape = output.kept_truth.shape,
                      .own = output.kept_own.data,
                      .truth = output.kept_truth.data,
                      .moved = {},
                      .moved_in_fp32 = output.moved_in_fp32.data};
  const bool by_sample = has_batch_axis && !sliced.shape.empty() && sliced.shape[0] == batch;
  if (!output.real || !by_sample || sliced.own.size() != sliced.truth.size()) return found;
  for (const Tensor& moved : output.moved) {
    if (moved.data.size() != sliced.truth.size()) return found;
    sliced.moved.push_back(moved.data);
  }
  sliced.shape[0] = samples;
  find_worst_sample(sliced, found.sample);
  find_worst_channel(sliced, found.channel);
  found.differences = compare_differences(sliced);
  return found;
}

/// Leaves the reference's outputs in its program, to be read.
void InferenceProbe::run_moved(uint64_t seed, Ulp ulp, const Feeder& feed) const {
  KeptVariables kept(*reference_.program, reference_.executable.graph);
  kept.move(precision_.variables, seed + 1, ulp);
  feed(*reference_.program);
  move_inputs(*reference_.program, reference_.executable, precision_.inputs, seed, ulp);
  reference_.program->run(Entry::eval, {});
}

void InferenceProbe::move(int64_t batch, int64_t samples, bool has_batch_axis, uint64_t seed,
                          const Feeder& feed) {
  const auto measure = [&](DeviationMeter& meter, const Output& output, const Tensor& x) {
    add(meter, output, x, output.kept_truth, batch, samples, has_batch_axis);
  };
  run_moved(seed, Ulp::of_lane, feed);
  std::vector<Slices> found;
  bool doubtful = false;
  for (Output& output : outputs_) {
    output.moved = {reference_.program->read(output.reference)};
    measure(output.spread, output, output.moved.front());
    found.push_back(find_slices(output, batch, samples, has_batch_axis));
    DeviationMeter difference;
    measure(difference, output, output.kept_own);
    Deviation own;
    difference.write(own);
    doubtful = doubtful || found.back().sample.suspicious() || found.back().channel.suspicious() ||
               found.back().differences.suspicious() || (output.real && own.error > kDoubtfulError);
  }
  if (doubtful) {
    // One move may miss a slice by chance, because only a few numbers decide about it.
    for (uint64_t i = 1; i <= kFurtherMoves; ++i) {
      run_moved(splitmix64(seed + i), Ulp::of_lane, feed);
      for (Output& output : outputs_) {
        output.moved.push_back(reference_.program->read(output.reference));
      }
    }
    run_moved(seed, Ulp::of_fp32, feed);
    for (Output& output : outputs_) {
      output.moved_in_fp32 = reference_.program->read(output.reference);
      if (output.real) measure(output.noise, output, output.moved_in_fp32);
    }
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    Output& output = outputs_[i];
    if (doubtful) found[i] = find_slices(output, batch, samples, has_batch_axis);
    keep_worse(output.sample, found[i].sample);
    keep_worse(output.channel, found[i].channel);
    keep_worse(output.differences, found[i].differences);
    output.kept_own = output.kept_truth = output.moved_in_fp32 = {};
    output.moved.clear();
  }
}

std::vector<Deviation> InferenceProbe::results(int64_t steps) const {
  std::vector<Deviation> result;
  for (const Output& output : outputs_) {
    Deviation deviation{.step = steps, .of = Deviation::Of::output, .name = output.name};
    output.difference.write(deviation);
    Deviation moved, noise;
    output.spread.write(moved);
    output.noise.write(noise);
    deviation.spread = moved.error;
    deviation.ratio_spread = moved.ratio;
    deviation.noise = noise.error;
    if (deviation.noise > kNoise) {
      deviation.error = deviation.ratio = std::numeric_limits<double>::quiet_NaN();
      result.push_back(std::move(deviation));
      continue;
    }
    deviation.worst = output.sample.error;
    deviation.worst_spread = output.sample.spread;
    deviation.worst_channel = output.channel.error;
    deviation.worst_channel_spread = output.channel.spread;
    deviation.differences = output.differences.error;
    deviation.differences_spread = output.differences.spread;
    deviation.channel_axis = output.channel.axis;
    deviation.channel = output.channel.index;
    result.push_back(std::move(deviation));
  }
  return result;
}

namespace {

/// Movement of a variable from its initial value, in both lanes.
struct WeightChange {
  std::string path;
  Deviation::Of of;
  std::vector<float> own, right;
};

/// Returns the movement from the lane's own initial values: twins have their own, rounded to the
/// format that the lane stores them in.
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
  const NamedTensors own_start = moved_start(lane.executable.graph, start, lane.config);
  const NamedTensors other_start = moved_start(reference.executable.graph, start, reference.config);
  for (const auto& each : start) {
    const std::string& path = each.first;
    const auto in = [&path](const Executable& executable) {
      for (const Variable& variable : executable.graph.variables()) {
        if (variable.path == path) return variable.value;
      }
      return kNone;
    };
    const ValueId own = in(lane.executable), right = in(reference.executable);
    if (own == kNone || right == kNone) continue;
    result.push_back(
        {path, Deviation::Of::weight,
         less(lane.program->read(own), own_start.at(path), format_in(lane, own)),
         less(reference.program->read(right), other_start.at(path), format_in(reference, right))});
  }
  for (const AveragedVariable& average : lane.executable.averages) {
    if (!start.contains(average.path)) continue;
    for (const AveragedVariable& other : reference.executable.averages) {
      if (other.path != average.path) continue;
      result.push_back({average.path, Deviation::Of::average,
                        less(lane.program->read(average.average), own_start.at(average.path),
                             format_in(lane, average.average)),
                        less(reference.program->read(other.average), other_start.at(average.path),
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
    // If a tensor hardly moves, neither the direction nor the length says much.
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
