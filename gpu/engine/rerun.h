// SPDX-License-Identifier: MIT
// Runs one node again for comparison, in fp32 or in double, on copies of its operands from the last
// run, taken before they were narrowed for it.
#pragma once

#include <algorithm>
#include <vector>

#include "core/lower/narrow.h"
#include "gpu/bodies/elementwise.h"
#include "gpu/engine/calls.h"

namespace halfscope::gpu {

template <class X>
class Rerun {
 public:
  Rerun(X& executor, const Graph& graph, const ProgramMemory<X>& memory)
      : executor_(executor), graph_(graph), memory_(memory) {}
  Rerun(const Rerun&) = delete;
  Rerun& operator=(const Rerun&) = delete;
  ~Rerun() {
    for (void* each : temporary_) executor_.release(each);
  }

  /// Returns the node's outputs, computed by bodies of type U and unrounded. Index outputs are
  /// empty.
  template <class U>
  std::vector<std::vector<double>> run(NodeId id, Accumulation accumulation,
                                       const RandomSource& random) {
    Node node = graph_.node(id);
    node.plan.accumulation = accumulation;
    WorkingMemory working([this](size_t bytes) { return allocate(bytes); });
    NodeCall<X, U> c{.executor = &executor_,
                     .graph = &graph_,
                     .node = &node,
                     .in = {},
                     .index_in = {},
                     .out = {},
                     .index_out = {},
                     .unrounded = true,
                     .memory = &working};
    std::vector<U*> operands, results;
    for (ValueId value : node.inputs) {
      const bool is_real = value != kNone && memory_.is_real(value);
      const bool is_index = value != kNone && !is_real;
      if (is_index && !memory_.is_there(value)) throw memory_.not_computed(value);
      c.index_in.push_back(is_index ? memory_.index(value) : nullptr);
      operands.push_back(is_real ? copy_of<U>(value) : nullptr);
      c.in.push_back(In<U>(operands.back()));
    }
    for (ValueId value : node.outputs) {
      const int64_t count = count_of(value);
      const bool is_real = memory_.is_real(value);
      results.push_back(is_real ? get<U>(count) : nullptr);
      c.out.push_back(Out<U>(results.back()));
      c.index_out.push_back(is_real ? nullptr : get<int32_t>(count));
    }
    if (node.op == "Cast") {
      results[0] = operands[0];
    } else {
      make_step(c)(RunState{random, false});
    }
    std::vector<std::vector<double>> exact;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const size_t count = static_cast<size_t>(count_of(node.outputs[i]));
      std::vector<U> values(results[i] != nullptr ? count : 0);
      if (!values.empty()) executor_.download(values.data(), results[i], count * sizeof(U));
      exact.emplace_back(values.begin(), values.end());
    }
    if (node.op == "Quantize" && !node.plan.scale.by_block()) {
      requantize<U>(node, operands[0], exact[0]);
    }
    return exact;
  }

 private:
  int64_t count_of(ValueId value) const { return element_count(memory_.description(value).shape); }

  void* allocate(size_t bytes) {
    temporary_.push_back(executor_.allocate(bytes));
    return temporary_.back();
  }
  template <class U>
  U* get(int64_t count) {
    return static_cast<U*>(allocate(static_cast<size_t>(std::max<int64_t>(count, 1)) * sizeof(U)));
  }

  template <class U>
  U* copy_of(ValueId value) {
    U* const copy = get<U>(count_of(value));
    memory_.copy_to(before_narrowing(graph_, value), copy);
    return copy;
  }

  /// Computes codes with that run's scale; delayed scaling has replaced the current one since then.
  template <class U>
  void requantize(const Node& node, const U* operand, std::vector<double>& codes) {
    float scale;
    executor_.download(&scale, memory_.plain(node.outputs[1]), sizeof scale);
    std::vector<U> x(codes.size());
    executor_.download(x.data(), operand, x.size() * sizeof(U));
    const double factor = 1.0 / static_cast<double>(scale);
    for (size_t i = 0; i < x.size(); ++i) {
      codes[i] = static_cast<double>(static_cast<U>(static_cast<double>(x[i]) * factor));
    }
  }

  X& executor_;
  const Graph& graph_;
  const ProgramMemory<X>& memory_;
  std::vector<void*> temporary_;
};

}  // namespace halfscope::gpu
