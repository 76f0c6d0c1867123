// SPDX-License-Identifier: MIT
// One operator, forward and backward, on the emulator and another backend.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/graph/autodiff.h"
#include "tests/gpu/lockstep.h"
#include "tests/support/op_cases.h"

namespace halfscope::test {

/// An operand of noise().
inline Operand noisy(const Shape& shape, uint64_t seed) {
  return {Tensor{shape, noise(element_count(shape), seed)}};
}

struct Variant {
  FloatFormat format;
  Accumulation accumulation;
  RoundingMode rounding = RoundingMode::nearest_even;
  std::optional<FloatFormat> stored = std::nullopt;  ///< format of the operands, if not `format`
};

/// y = op(operands), weighted and summed, and the gradients of all operands; everything is tapped.
class OpLockstep {
 public:
  OpLockstep(const OpCase& op, const Variant& variant, const Backend& backend) {
    Graph& graph = executable_.graph;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const Operand& operand = op.operands[i];
      const std::string name = "x" + std::to_string(i);
      values_.push_back(operand.labels ? graph.add_input(name, operand.shape(), ElementType::index)
                                       : graph.add_variable(name, operand.real.shape, {}));
    }
    ValueId y = graph.add(op.op, op.name, values_, op.attributes).front();
    if (graph.value(y).type == ElementType::index) {
      y = graph.add1("IndexToReal", "number", {y});
    }
    const ValueId upstream = graph.add_constant(distinct(graph.value(y).shape, 0.25f));
    const ValueId weighted = graph.add1("Mul", "probe", {y, upstream});
    const ValueId loss = graph.add1("ReduceSum", "loss", {weighted}, {{"keepdims", int64_t{0}}});
    differentiate(graph, loss, graph.add_constant(1.0f));
    adjust(variant);
    lockstep_ = std::make_unique<Lockstep>(executable_, backend);
    for (size_t i = 0; i < values_.size(); ++i) {
      if (op.operands[i].labels) {
        lockstep_->write(values_[i], std::span<const int32_t>(*op.operands[i].labels));
      } else {
        write(i, op.operands[i].real.data);
      }
    }
    lockstep_->set_random(3, 4);
  }

  void write(size_t operand, const std::vector<float>& data) {
    lockstep_->write(values_[operand], std::span<const float>(data));
  }
  Lockstep& operator*() { return *lockstep_; }
  const Graph& graph() const { return executable_.graph; }

 private:
  void adjust(const Variant& variant) {
    Graph& graph = executable_.graph;
    for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
      NodePlan& plan = graph.node(id).plan;
      plan.read = plan.write = variant.format;
      plan.accumulation = variant.accumulation;
      executable_.entries[static_cast<size_t>(Entry::grad)].push_back(id);
    }
    for (ValueId id = 0; id < static_cast<ValueId>(graph.values().size()); ++id) {
      Value& value = graph.value(id);
      if (value.type != ElementType::real) continue;
      const bool constant = value.producer == kNone && graph.variable_of(id) == nullptr;
      const bool operand = std::find(values_.begin(), values_.end(), id) != values_.end();
      if (!constant)
        value.format = operand ? variant.stored.value_or(variant.format) : variant.format;
      value.rounding.mode = variant.rounding;
      Tap tap;
      tap.value = id;
      tap.site.shape = value.shape;
      tap.site.format = value.format;
      tap.site.order = static_cast<int>(executable_.taps.size());
      if (!constant) executable_.taps.push_back(tap);
    }
  }

  Executable executable_;
  std::vector<ValueId> values_;
  std::unique_ptr<Lockstep> lockstep_;
};

}  // namespace halfscope::test
