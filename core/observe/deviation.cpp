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

/// A sample's truth counts as at least this share of the usual one: next to nothing is hard to hit.
constexpr double kLeastRow = 0.1;

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

void DeviationMeter::add_row(double difference, double truth) {
  difference_ += difference;
  truth_ += truth;
  rows_.emplace_back(difference, truth);
}

void DeviationMeter::add(std::span<const float> x, std::span<const float> truth, int64_t rows,
                         double factor) {
  const size_t length = rows > 0 ? truth.size() / static_cast<size_t>(rows) : truth.size();
  n_ += static_cast<int64_t>(truth.size());
  for (size_t first = 0; length > 0 && first < truth.size(); first += length) {
    double difference = 0.0, energy = 0.0;
    for (size_t i = first; i < first + length; ++i) {
      const double right = static_cast<double>(truth[i]);
      const double value = static_cast<double>(x[i]) / factor;
      if (!std::isfinite(right)) continue;
      if (!std::isfinite(value)) {
        ++broken_;
        continue;
      }
      difference += (value - right) * (value - right);
      energy += right * right;
      size_ += value * value;
    }
    add_row(difference, energy);
  }
}

void DeviationMeter::add_indices(std::span<const float> x, std::span<const float> truth,
                                 int64_t rows) {
  const size_t length = rows > 0 ? truth.size() / static_cast<size_t>(rows) : truth.size();
  n_ += static_cast<int64_t>(truth.size());
  for (size_t first = 0; length > 0 && first < truth.size(); first += length) {
    double differing = 0.0;
    for (size_t i = first; i < first + length; ++i) differing += x[i] == truth[i] ? 0.0 : 1.0;
    add_row(differing, static_cast<double>(length));
  }
  counts_ = true;
}

void DeviationMeter::write(Deviation& deviation) const {
  deviation.n = n_;
  deviation.broken = broken_;
  if (n_ == 0 || broken_ == n_) return;
  deviation.error = relative(difference_, truth_);
  if (counts_) return;  // numbers that select have no size
  deviation.ratio = size_ == truth_ ? 1.0 : relative(size_, truth_);
  const double usual = truth_ / static_cast<double>(rows_.size());
  deviation.worst = 0.0;
  for (const auto& [difference, truth] : rows_) {
    deviation.worst = std::max(
        deviation.worst, relative(difference, std::max(truth, kLeastRow * kLeastRow * usual)));
  }
}

namespace {

/// The readers of each value in the forward pass.
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

  /// Of the value itself, and of what only moves its elements.
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
    // Moved targets would move the loss by as much as they are hard to hit.
    if (!real || input.name == "targets" || input.value == executable.labels) continue;
    result.inputs[input.name] = finder.bits(input.value);
  }
  return result;
}

void move_by_ulp(std::span<float> values, int significand_bits, uint64_t key) {
  const int dropped = std::clamp(23 - significand_bits, 0, 23);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t code = std::bit_cast<uint32_t>(values[i]);
    if ((code & 0x7fffffffu) == 0 || !std::isfinite(values[i])) continue;
    const bool up = (splitmix64(key + i) & 1) != 0;
    if (dropped == 0) {
      values[i] = std::bit_cast<float>(up ? code + 1 : code - 1);
      continue;
    }
    // 2^(exponent - significand bits), with the exponent of the value.
    const float ulp = std::ldexp(1.0f, std::ilogb(values[i]) - significand_bits);
    values[i] += up ? ulp : -ulp;
  }
}

}  // namespace halfscope
