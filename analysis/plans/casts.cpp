// SPDX-License-Identifier: MIT
#include "analysis/plans/casts.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/graph/op_def.h"
#include "core/graph/unrounded.h"
#include "core/lower/narrow.h"

namespace halfscope {
namespace {

class CastFinder {
 public:
  explicit CastFinder(const Executable& executable)
      : executable_(executable), graph_(executable.graph) {
    for (const Constant& constant : graph_.constants()) constants_.insert(constant.value);
    for (const Input& input : graph_.inputs()) names_[input.value] = "input " + input.name;
    for (const Node& node : graph_.nodes()) {
      if (node.phase == Phase::backward) differentiated_.insert(node.forward);
    }
    for (const Variable& variable : graph_.variables()) {
      names_[variable.value] = variable.path;
      weights_.insert(variable.value);
    }
  }

  std::vector<ValueCast> run() {
    for (const NodeId id : executable_.entry(executable_.forward)) visit(id);
    for (const NodeId id : executable_.entry(Entry::update)) visit_update(graph_.node(id));
    return std::move(casts_);
  }

 private:
  bool converts(const Node& node) const {
    return node.op == "Cast" || node.op == "Quantize" || node.op == "Dequantize" ||
           node.op == "ScaleUpdate" || node.path.starts_with("metrics/");
  }

  void visit(NodeId id) {
    const Node& node = graph_.node(id);
    if (converts(node)) return;
    const size_t end = std::min(node.inputs.size(), find_op(node.op).stored_inputs_from);
    for (size_t i = 0; i < end; ++i) {
      if (node.inputs[i] == kNone || is_scaled(node.inputs[i])) continue;
      const ValueId stored = before_narrowing(graph_, node.inputs[i]);
      const Value& value = graph_.value(stored);
      const FloatFormat read = read_format(graph_, node, i);
      if (value.type != ElementType::real || value.format == read || constants_.contains(stored) ||
          is_unrounded(graph_, stored)) {
        continue;
      }
      // Products round to tf32 on their own, and batch normalizations with fp32 parameters read
      // narrower activations.
      if (read == kTf32 || value.format == kTf32 || reads_narrow(node, value.format)) continue;
      // The scalars of a step (loss scale, learning rate ...) are arguments of kernels.
      if (value.shape.empty() && value.producer == kNone) continue;
      add(stored, read);
      // A gradient of a widened value is narrowed again, by each reader.
      if (read.contains(value.format) && value.producer != kNone && differentiated_.contains(id)) {
        casts_.push_back({.value = name_of(stored) + " (gradient)",
                          .from = read,
                          .to = value.format,
                          .elements = element_count(value.shape),
                          .readers = 1});
      }
    }
  }

  /// Returns whether it is a batch normalization with fp32 parameters whose activations have this
  /// format, or its gradient.
  bool reads_narrow(const Node& node, const FloatFormat& activations) const {
    const Node& forward = node.forward == kNone ? node : graph_.node(node.forward);
    return forward.op == "BatchNormalization" && forward.plan.read == kFp32 &&
           forward.plan.write == activations && activations != kFp32;
  }

  /// Gradients are converted to the format of their variable. Everything else in an update is
  /// converted in registers.
  void visit_update(const Node& node) {
    ValueId variable = kNone, gradient = kNone;
    for (const ValueId input : node.inputs) {
      if (input == kNone) continue;
      const Value& value = graph_.value(input);
      if (variable == kNone && weights_.contains(input)) variable = input;
      if (value.producer != kNone && graph_.node(value.producer).phase == Phase::backward)
        gradient = input;
    }
    if (variable == kNone || gradient == kNone) return;
    weights_.insert(gradient);
    const FloatFormat& wanted = graph_.value(variable).format;
    const FloatFormat& format = graph_.value(gradient).format;
    if (format != wanted && format != kTf32) add(gradient, wanted);
  }

  /// Returns whether the operand is codes with a scale.
  bool is_scaled(ValueId input) const {
    const NodeId producer = graph_.value(input).producer;
    return producer != kNone &&
           (graph_.node(producer).op == "Quantize" || graph_.node(producer).op == "Dequantize");
  }

  void add(ValueId value, const FloatFormat& to) {
    const auto [found, is_new] =
        index_.try_emplace(std::pair(value, format_name(to)), casts_.size());
    if (!is_new) {
      ++casts_[found->second].readers;
      return;
    }
    const Value& stored = graph_.value(value);
    casts_.push_back({.value = name_of(value),
                      .from = stored.format,
                      .to = to,
                      .elements = element_count(stored.shape),
                      .readers = 1,
                      .weight = weights_.contains(value)});
  }

  std::string name_of(ValueId value) const {
    if (const auto found = names_.find(value); found != names_.end()) return found->second;
    const Node& node = graph_.node(graph_.value(value).producer);
    return node.path + (node.phase == Phase::forward ? "" : " (gradient)");
  }

  const Executable& executable_;
  const Graph& graph_;
  std::set<ValueId> constants_, weights_;
  std::set<NodeId> differentiated_;  // forward nodes with gradient nodes
  std::map<ValueId, std::string> names_;
  std::map<std::pair<ValueId, std::string>, size_t> index_;
  std::vector<ValueCast> casts_;
};

}  // namespace

int64_t ValueCast::bytes() const noexcept { return elements * (from.bits() + to.bits()) / 8; }

std::vector<ValueCast> value_casts(const Executable& executable) {
  return CastFinder(executable).run();
}

CastTotals total(const std::vector<ValueCast>& casts) {
  CastTotals totals;
  for (const ValueCast& cast : casts) {
    ++totals.casts;
    ++(cast.to.bits() < cast.from.bits() ? totals.to_fewer_bits : totals.to_more_bits);
    totals.of_weights += cast.weight ? 1 : 0;
    totals.kernels_by_reader += cast.weight ? 1 : cast.readers;
    totals.bytes += cast.bytes();
  }
  return totals;
}

}  // namespace halfscope
