// SPDX-License-Identifier: MIT
#include "core/observe/deviation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/numeric/formats/rng.h"
#include "core/ops/ops.h"

namespace halfscope {
namespace {

double relative(double difference, double size) {
  if (difference == 0.0) return 0.0;
  return size > 0.0 ? std::sqrt(difference / size) : std::numeric_limits<double>::infinity();
}

}  // namespace

std::optional<Deviation::Of> parse_deviation(std::string_view name) noexcept {
  for (int of = 0; of <= static_cast<int>(Deviation::Of::training); ++of) {
    if (name == deviation_name(static_cast<Deviation::Of>(of))) {
      return static_cast<Deviation::Of>(of);
    }
  }
  return std::nullopt;
}

const char* deviation_name(Deviation::Of of) noexcept {
  switch (of) {
    case Deviation::Of::output:
      return "output";
    case Deviation::Of::loss:
      return "loss";
    case Deviation::Of::gradient:
      return "gradient";
    case Deviation::Of::weight:
      return "weight";
    case Deviation::Of::average:
      return "average";
    case Deviation::Of::buffer:
      return "buffer";
    case Deviation::Of::training:
      return "training";
  }
  return "unknown";
}

void DeviationMeter::add(std::span<const float> x, std::span<const float> truth, double factor) {
  n_ += static_cast<int64_t>(truth.size());
  for (size_t i = 0; i < truth.size(); ++i) {
    const double right = static_cast<double>(truth[i]);
    const double value = static_cast<double>(x[i]) / factor;
    if (!std::isfinite(right)) continue;
    ++compared_;
    if (!std::isfinite(value)) {
      ++broken_;
      continue;
    }
    difference_ += (value - right) * (value - right);
    truth_ += right * right;
    size_ += value * value;
  }
}

void DeviationMeter::add_indices(std::span<const float> x, std::span<const float> truth) {
  const auto count = static_cast<int64_t>(truth.size());
  for (size_t i = 0; i < truth.size(); ++i) difference_ += x[i] == truth[i] ? 0.0 : 1.0;
  truth_ += static_cast<double>(count);
  n_ += count;
  compared_ += count;
  counts_ = true;
}

void DeviationMeter::write(Deviation& deviation) const {
  deviation.n = n_;
  deviation.broken = broken_;
  if (compared_ == broken_) return;
  deviation.error = relative(difference_, truth_);
  if (counts_) return;  // numbers that select have no norm
  deviation.ratio = size_ == truth_ ? 1.0 : relative(size_, truth_);
}

namespace {

/// Finds the readers of each value in the forward pass.
class PrecisionFinder {
 public:
  explicit PrecisionFinder(const Graph& graph) : graph_(graph), readers_(graph.values().size()) {
    for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
      if (graph.node(id).phase != Phase::forward) continue;
      for (const ValueId input : graph.node(id).inputs) {
        if (input != kNone) readers_[static_cast<size_t>(input)].push_back(id);
      }
    }
  }

  /// Returns the bits for the value itself, and for nodes that only move its elements.
  int bits(ValueId value) const {
    int least = graph_.value(value).format.mantissa_bits;
    for (const NodeId id : readers_[static_cast<size_t>(value)]) {
      const Node& node = graph_.node(id);
      const bool narrows = node.op == "Cast" || node.op == "Quantize";
      const bool moves = find_op(node.op).selects && node.inputs[0] == value;
      if (!narrows && !moves) continue;
      const ValueId output = node.outputs[0];
      if (graph_.value(output).type != ElementType::real) continue;
      least = std::min(least, bits(output));
    }
    return least;
  }

 private:
  const Graph& graph_;
  std::vector<std::vector<NodeId>> readers_;
};

}  // namespace

ReadPrecision read_precision(const Executable& executable) {
  const PrecisionFinder finder(executable.graph);
  ReadPrecision result;
  for (const Variable& variable : executable.graph.variables()) {
    result.variables[variable.path] = finder.bits(variable.value);
  }
  for (const NamedValue& input : executable.inputs) {
    const bool real = executable.graph.value(input.value).type == ElementType::real;
    // Moving targets would move the loss more the smaller it is.
    if (!real || input.name == "targets" || input.value == executable.labels) continue;
    result.inputs[input.name] = finder.bits(input.value);
  }
  return result;
}

namespace {

/// Returns the number of bits from the leading one to the last one.
int bits_of(float value) {
  const uint32_t code = std::bit_cast<uint32_t>(value), fraction = code & 0x7fffffu;
  if ((code & 0x7f800000u) == 0) {
    return fraction == 0 ? 0 : std::bit_width(fraction) - std::countr_zero(fraction);
  }
  return fraction == 0 ? 1 : 24 - std::countr_zero(fraction);
}

/// Returns 2^(exponent of the value - significand bits); the value is neither 0 nor an infinity nor
/// NaN.
float ulp_of(float value, int significand_bits) {
  const uint32_t exponent = std::bit_cast<uint32_t>(value) & 0x7f800000u;
  const uint32_t smaller = static_cast<uint32_t>(significand_bits) << 23;
  if (exponent > smaller) return std::bit_cast<float>(exponent - smaller);
  // Near or below the smallest normal number.
  return std::ldexp(1.0f, std::ilogb(value) - significand_bits);
}

bool mostly_exact(std::span<const float> values, int exact_bits) {
  size_t exact = 0, others = 0;
  for (const float value : values) {
    if (value == 0.0f || !std::isfinite(value)) continue;
    ++(bits_of(value) <= exact_bits ? exact : others);
  }
  return exact >= others;
}

}  // namespace

void move_by_ulp(std::span<float> values, int significand_bits, uint64_t key) {
  constexpr int kBitsOnPurpose = 8, kUnusedBits = 3;
  const int exact_bits = std::min(kBitsOnPurpose, significand_bits + 1 - kUnusedBits);
  const int dropped = std::clamp(23 - significand_bits, 0, 23);
  const bool keeps_exact = mostly_exact(values, exact_bits);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t code = std::bit_cast<uint32_t>(values[i]);
    if ((code & 0x7fffffffu) == 0 || !std::isfinite(values[i])) continue;
    if (keeps_exact && bits_of(values[i]) <= exact_bits) continue;
    const bool up = (splitmix64(key + i) & 1) != 0;
    if (dropped == 0) {
      const float moved = std::bit_cast<float>(up ? code + 1 : code - 1);
      values[i] = std::isfinite(moved) ? moved : std::bit_cast<float>(code - 1);
      continue;
    }
    const float ulp = ulp_of(values[i], significand_bits);
    const float moved = values[i] + (up ? ulp : -ulp);
    values[i] = std::isfinite(moved)
                    ? moved
                    : values[i] + (up ? -ulp : ulp);  // the largest number moves inward
  }
}

}  // namespace halfscope
