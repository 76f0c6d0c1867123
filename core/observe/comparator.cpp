// SPDX-License-Identifier: MIT
#include "core/observe/comparator.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "core/numeric/statistics/ulp.h"
#include "core/ops/ops.h"

namespace halfscope {
namespace {

constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Accumulates ||x - f|| / ||f|| over the elements where both are finite; 0 if f and x agree,
/// infinity if only f is zero.
class RelativeNorm {
 public:
  void add(double x, double f) noexcept {
    if (!std::isfinite(x) || !std::isfinite(f)) return;
    difference_ += (x - f) * (x - f);
    size_ += f * f;
  }
  void add(std::span<const float> x, std::span<const float> f) noexcept {
    RelativeNorm sums = *this;  // a local copy, so that the sums stay in registers
    for (size_t i = 0; i < x.size(); ++i) {
      sums.add(static_cast<double>(x[i]), static_cast<double>(f[i]));
    }
    *this = sums;
  }
  double value() const noexcept {
    if (difference_ == 0.0) return 0.0;
    return size_ == 0.0 ? std::numeric_limits<double>::infinity() : std::sqrt(difference_ / size_);
  }

 private:
  double difference_ = 0.0, size_ = 0.0;
};

/// A faster ulp_distance() with precomputed constants of the format, for values that are or round
/// to its numbers. Other values are passed to that function.
class UlpDistance {
 public:
  explicit UlpDistance(const FloatFormat& format)
      : format_(format),
        shift_(static_cast<uint32_t>(23 - format.mantissa_bits)),
        smallest_(std::max(std::bit_cast<uint32_t>(static_cast<float>(format.min_normal())),
                           kSmallestNormal)),
        largest_(std::bit_cast<uint32_t>(static_cast<float>(format.max_finite()))),
        below_((smallest_ >> shift_) - (uint32_t{1} << format.mantissa_bits)) {
    // Below the smallest normal number, values are multiples of the smallest subnormal, which is
    // the last place of the float 2^23 times as large.
    const int exponent = format.min_exponent() - format.mantissa_bits + 23;
    const bool flushes = format.flush_in || format.flush_out;
    if (flushes || format.mantissa_bits == 0 || format.min_exponent() < -126 || exponent > 127) {
      tiny_ = smallest_;
    } else {
      last_place_ = static_cast<float>(FloatFormat::power_of_two(exponent));
    }
  }

  /// `x` is a value of the format.
  int64_t operator()(float x, float other) const noexcept {
    const uint32_t a = std::bit_cast<uint32_t>(x), b = std::bit_cast<uint32_t>(other);
    const uint32_t magnitude_a = a & kMagnitude, exact_b = b & kMagnitude;
    const uint32_t magnitude_b = exact_b < smallest_ ? exact_b : rounded(exact_b);
    const bool usual =
        magnitude_a - tiny_ <= largest_ - tiny_ && magnitude_b - tiny_ <= largest_ - tiny_;
    if (!usual) return ulp_distance(x, other, format_);
    const bool across_zero = ((a ^ b) & ~kMagnitude) != 0;
    if (across_zero && tiny_ > 0) return ulp_distance(x, other, format_);
    // Values of one sign count upwards like their codes.
    const int64_t place_a = place(magnitude_a), place_b = place(magnitude_b);
    if (across_zero) return place_a + place_b;
    return place_a < place_b ? place_b - place_a : place_a - place_b;
  }

 private:
  static constexpr uint32_t kMagnitude = 0x7fffffffu;
  static constexpr uint32_t kSmallestNormal = 0x00800000u;  // fp32's: steps differ below

  /// Rounds to the format's mantissa, ties to even; correct for results that are normal numbers of
  /// it.
  uint32_t rounded(uint32_t magnitude) const noexcept {
    if (shift_ == 0) return magnitude;
    // Without mantissa bits every significand is odd, whatever the exponent.
    const uint32_t odd = shift_ == 23 ? 1u : (magnitude >> shift_) & 1;
    const uint32_t half = (1u << (shift_ - 1)) - 1 + odd;
    return (magnitude + half) & ~((1u << shift_) - 1);
  }

  /// Returns the position of a rounded normal number, or of any smaller magnitude, which is rounded
  /// here.
  int64_t place(uint32_t magnitude) const noexcept {
    if (magnitude >= smallest_) return (magnitude >> shift_) - below_;
    const float sum = std::bit_cast<float>(magnitude) + last_place_;
    return std::bit_cast<uint32_t>(sum) - std::bit_cast<uint32_t>(last_place_);
  }

  const FloatFormat& format_;
  uint32_t shift_, smallest_, largest_;
  uint32_t below_;     ///< code of the smallest normal number, minus its position
  uint32_t tiny_ = 0;  ///< smallest magnitude for which this works
  float last_place_ = 0.0f;
};

size_t ulp_bin(int64_t distance) noexcept {
  if (distance == kUlpUnordered) return SiteError::kBins - 1;
  return std::min<size_t>(std::bit_width(static_cast<uint64_t>(distance)), SiteError::kBins - 1);
}

/// Returns whether the node is a primitive of a stagewise normalization that reads an updated
/// buffer; the fused one's output does not depend on its buffers.
bool reads_moved_buffer(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  if (find_op(node.op).statistics_from != OpDef::kAllInputs) return false;
  return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
    const Variable* variable = input == kNone ? nullptr : graph.variable_of(input);
    return variable != nullptr && variable->buffer;
  });
}

/// Returns the node that computed codes of this value, or nullptr.
const Node* quantizer_of(const Graph& graph, ValueId value) {
  const NodeId producer = graph.value(value).producer;
  return producer != kNone && graph.node(producer).op == "Quantize" ? &graph.node(producer)
                                                                    : nullptr;
}

}  // namespace

NodeId rerunnable_node(const Executable& executable, const Tap& tap) {
  const NodeId node = executable.graph.value(tap.value).producer;
  // A buffer's new value overwrites the old one.
  if (node == kNone || tap.site.role == Role::state || reads_moved_buffer(executable.graph, node)) {
    return kNone;
  }
  return node;
}

SiteError compare_values(std::span<const float> x, std::span<const float> other, double factor,
                         const FloatFormat& format) {
  constexpr size_t kChunk = 1024;  // stays in the cache between the two loops
  SiteError error;
  error.n = static_cast<int64_t>(x.size());
  RelativeNorm total;
  const UlpDistance distance_of(format);
  int64_t equal = 0, differing = 0, sign_flips = 0, farthest = 0;
  std::array<float, kChunk> scaled;
  for (size_t first = 0; first < x.size(); first += kChunk) {
    const std::span<const float> mine = x.subspan(first, std::min(kChunk, x.size() - first));
    std::span<const float> theirs = other.subspan(first, mine.size());
    if (factor != 1.0) {
      for (size_t i = 0; i < mine.size(); ++i) {
        scaled[i] = static_cast<float>(static_cast<double>(theirs[i]) * factor);
      }
      theirs = std::span<const float>(scaled).first(mine.size());
    }
    total.add(mine, theirs);
    for (size_t i = 0; i < mine.size(); ++i) {
      sign_flips += (mine[i] > 0.0f) != (theirs[i] > 0.0f);
      if (mine[i] == theirs[i]) {
        ++equal;
        continue;
      }
      const bool finite = std::isfinite(mine[i]);
      const bool both_finite = finite && std::isfinite(theirs[i]);
      const int64_t distance = distance_of(mine[i], theirs[i]);
      // Rounded to the format, a large value of the other lane may also be infinite. An overflow in
      // this lane must not pass for agreement with it.
      const bool overflowed = !finite && std::isfinite(theirs[i]);
      const bool counts_bits = both_finite || (distance == 0 && !overflowed);
      ++error.ulps[counts_bits ? ulp_bin(distance) : SiteError::kBins - 1];
      differing += distance != 0 || overflowed;
      if (both_finite) farthest = std::max(farthest, distance);
    }
  }
  error.ulps[0] += equal;
  error.differing = differing;
  error.sign_flips = sign_flips;
  error.max_ulps = static_cast<double>(farthest);
  error.total = total.value();
  return error;
}

Comparator::Comparator(const Executable& lane, const Executable& other, int other_lane)
    : other_lane_(other_lane) {
  std::map<std::string, size_t> others;
  for (size_t i = 0; i < other.taps.size(); ++i) others[other.taps[i].site.name()] = i;
  // Values written by the caller are not results: a loss scale differs by choice.
  std::set<ValueId> written{lane.loss_scale, lane.inverse_scale, lane.learning_rate, lane.clip};
  for (const GroupRate& each : lane.group_rates) written.insert(each.value);
  for (const StepInput& each : lane.step_scalars) written.insert(each.value);
  for (size_t i = 0; i < lane.taps.size(); ++i) {
    const Tap& tap = lane.taps[i];
    const auto found = others.find(tap.site.name());
    if (tap.site.phase == Phase::update || found == others.end()) continue;
    if (other.taps[found->second].site.shape != tap.site.shape) continue;
    Pair pair{i, found->second, rerunnable_node(lane, tap), 0, tap.site.phase == Phase::backward};
    // Codes count in units of their scale; if each block has its own scale, no single number fits.
    const Node* const quantizer = quantizer_of(lane.graph, tap.value);
    const Node* const other_quantizer = quantizer_of(other.graph, other.taps[found->second].value);
    const auto by_block = [](const Node* node) {
      return node != nullptr && node->plan.scale.by_block();
    };
    if (by_block(quantizer) || by_block(other_quantizer)) continue;
    if (quantizer != nullptr) pair.scale = quantizer->outputs[1];
    if (other_quantizer != nullptr) pair.other_scale = other_quantizer->outputs[1];
    if (pair.node != kNone) {
      const Node& node = lane.graph.node(pair.node);
      if (node.phase == Phase::update) continue;  // sums of micro-batches: nothing to run again
      if (node.op == "Cast" && written.contains(node.inputs[0])) continue;
      pair.output = static_cast<size_t>(
          std::find(node.outputs.begin(), node.outputs.end(), tap.value) - node.outputs.begin());
    }
    pairs_.push_back(pair);
  }
}

std::vector<SiteError> Comparator::compare(int64_t step, const ComparedLane& lane,
                                           const ComparedLane& other) const {
  std::vector<SiteError> errors;
  NodeId last = kNone;  // the outputs of a node are adjacent
  std::vector<std::vector<double>> exact, single;
  for (const Pair& pair : pairs_) {
    const Tap& tap = lane.executable.taps[pair.tap];
    const Tap& other_tap = other.executable.taps[pair.other_tap];
    const Tensor x = lane.program.read(tap.value);
    const Tensor theirs = other.program.read(other_tap.value);
    double factor = pair.gradient ? lane.loss_scale / other.loss_scale : 1.0;
    if (pair.scale != kNone) factor /= lane.program.read_scalar(pair.scale);
    if (pair.other_scale != kNone) factor *= other.program.read_scalar(pair.other_scale);
    SiteError error = compare_values(x.data, theirs.data, factor, tap.site.format);
    error.step = step;
    error.site = tap.site.order;
    error.other_lane = other_lane_;
    error.other_site = other_tap.site.order;
    if (tap.site.role != Role::activation) error.sign_flips = 0;
    if (pair.node != kNone) {
      if (pair.node != last) {
        exact = lane.program.rerun(pair.node, Accumulation::fp64);
        single = lane.program.rerun(pair.node, Accumulation::fp32);
        last = pair.node;
      }
      RelativeNorm local_fp64, local_fp32, inherited;
      const NodePlan& plan = lane.executable.graph.node(pair.node).plan;
      const double most = tap.site.format.max_finite();
      bool fails = false;
      for (size_t i = 0; i < x.data.size(); ++i) {
        const double value = static_cast<double>(x.data[i]), result = exact[pair.output][i];
        local_fp64.add(value, result);
        local_fp32.add(value, single[pair.output][i]);
        inherited.add(result, static_cast<double>(theirs.data[i]) * factor);
        fails = fails || (!std::isfinite(value) && std::fabs(result) <= most &&
                          std::fabs(single[pair.output][i]) <= most);
      }
      const Accumulation& sums = plan.accumulation;
      fails = fails && !sums.sums_in_format() && !sums.half_accumulator;
      error.local_fp64 = fails ? kInfinity : local_fp64.value();
      error.local_fp32 = fails ? kInfinity : local_fp32.value();
      error.inherited = fails ? kNotMeasured : inherited.value();
    }
    errors.push_back(error);
  }
  return errors;
}

}  // namespace halfscope
