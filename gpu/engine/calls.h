// SPDX-License-Identifier: MIT
// The calls that run an entry's nodes: one list for recorded steps and one for plain steps
// (writes.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/backend/backend.h"
#include "gpu/engine/function_tables.h"
#include "gpu/engine/library_steps.h"
#include "gpu/engine/node_call.h"
#include "gpu/engine/program_memory.h"
#include "gpu/engine/tap_counters.h"
#include "gpu/engine/writes.h"

namespace halfscope::gpu {

/// Makes the step of a node. Throws Error for an operator without bodies.
template <class X, class T>
Step make_step(const NodeCall<X, T>& call) {
  for (Step (*family)(const NodeCall<X, T>&) :
       {integer_step<X, T>, movement_step<X, T>, function_step<X, T>, index_step<X, T>,
        product_step<X, T>, reduction_step<X, T>, normalization_step<X, T>, update_step<X, T>}) {
    if (Step step = family(call)) return step;
  }
  throw Error(call.node->path + " (" + call.node->op + "): not supported on a GPU backend");
}

/// An output that is finished after its node's step: measured, rounded or both.
struct Unfinished {
  In<float> exact;  ///< written by the step, or a Cast's operand
  Destination to;   ///< without memory: it is there already, and is only measured
  int64_t count;
  ValueId value;
  RoundingChoice rounding;
  int tap;
};

struct Call {
  NodeId node = kNone;
  Step step;  ///< empty if the output is already there
  std::vector<Unfinished> outputs{};
  ValueId wide = kNone;  ///< a scalar that the step computes in double
};

template <class X>
class CallMaker {
 public:
  /// The arguments outlive the calls. Without `libraries`, our own kernels compute every product.
  CallMaker(X& executor, const Executable& executable, const ProgramMemory<X>& memory,
            const TapCounters<X>& taps, const LibraryCall* libraries)
      : executor_(executor),
        graph_(executable.graph),
        memory_(memory),
        taps_(taps),
        libraries_(libraries) {}

  /// Returns the calls of a node in each way.
  std::array<Call, kWays> make(Entry entry, NodeId id) {
    working_.push_back(std::make_unique<WorkingMemory>(
        [this](size_t bytes) { return executor_.allocate(bytes); }));
    std::array<Call, kWays> calls;
    for (const Way way : {Way::recorded, Way::plain}) {
      working_.back()->rewind();
      calls[static_cast<size_t>(way)] = make(entry, id, way);
    }
    return calls;
  }

  /// Kernels of products, by node.
  const std::map<NodeId, KernelChoice>& kernels() const { return kernels_; }
  /// Returns where the node's scalar is in double, or null.
  double* wide_place(ValueId value) const {
    const auto found = wide_places_.find(value);
    return found == wide_places_.end() ? nullptr : found->second;
  }

 private:
  Call make(Entry entry, NodeId id, Way way) {
    const Node& node = graph_.node(id);
    KernelChoice kernel;
    NodeCall<X, float> c = call_of(entry, node, kernel);
    Call call{.node = id, .step = {}};
    bool there = false;  // a view's output, or a Cast's, which only rounds
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (!memory_.is_real(node.outputs[i])) continue;
      const Write write = write_of(graph_, memory_.layout(), node, i);
      there = there || write.in_place || write.is_cast;
      add_output(node, i, write, way, c, call);
    }
    if (node.op == "GradientNorm") {
      double*& place = wide_places_[node.outputs[0]];
      if (place == nullptr) place = memory_.template allocate<double>(1);
      c.wide = place;
      call.wide = node.outputs[0];
    }
    if (!there) call.step = make_step(c);
    if (!kernel.text.empty()) kernels_[id] = kernel;
    return call;
  }

  /// Returns the arguments of a node's step, except for its real outputs.
  NodeCall<X, float> call_of(Entry entry, const Node& node, KernelChoice& kernel) {
    NodeCall<X, float> c{.executor = &executor_,
                         .graph = &graph_,
                         .node = &node,
                         .in = {},
                         .index_in = {},
                         .out = {},
                         .index_out = {},
                         .memory = working_.back().get(),
                         .libraries = libraries_,
                         .tables = &tables_,
                         .kernel = &kernel};
    for (ValueId value : node.inputs) {
      const bool is_real = value != kNone && memory_.is_real(value);
      c.in.push_back(is_real ? memory_.real(value) : In<float>(nullptr));
      c.index_in.push_back(value == kNone || is_real ? nullptr : memory_.index(value));
    }
    for (ValueId value : node.outputs) {
      c.out.push_back(nullptr);
      c.index_out.push_back(memory_.is_real(value) ? nullptr : memory_.index(value));
      const int tap = taps_.tap_of(value);
      // The first output of such a node is the variable; the counter belongs to the update.
      const bool update = find_op(node.op).rounds_itself && value != node.outputs[0];
      if (update && tap >= 0) c.lost = taps_.lost(entry, tap);
    }
    return c;
  }

  void add_output(const Node& node, size_t i, const Write& write, Way way, NodeCall<X, float>& c,
                  Call& call) const {
    const ValueId value = node.outputs[i];
    const Value& output = graph_.value(value);
    const Destination to = memory_.destination(value);
    float* const exact = bytes_of(to.storage) < 4
                             ? memory_.exact() + memory_.layout().exact_place(graph_, node, i) / 4
                             : static_cast<float*>(to.memory);
    c.out[i] = write.by_node ? Out<float>(exact, to, way == Way::plain) : Out<float>(exact);
    const int tap = taps_.tap_of(value);
    if (!write.finishes(way, tap >= 0)) return;
    const In<float> made = write.is_cast    ? memory_.real(node.inputs[0])
                           : write.in_place ? memory_.real(value)
                                            : In<float>(exact);
    Destination finished = to;
    if (!write.stores) finished.memory = nullptr;
    call.outputs.push_back({.exact = made,
                            .to = finished,
                            .count = element_count(output.shape),
                            .value = value,
                            .rounding = output.rounding,
                            .tap = tap});
  }

  X& executor_;
  const Graph& graph_;
  const ProgramMemory<X>& memory_;
  const TapCounters<X>& taps_;
  const LibraryCall* libraries_;
  std::vector<std::unique_ptr<WorkingMemory>> working_;
  std::map<NodeId, KernelChoice> kernels_;
  FunctionTables tables_;
  std::map<ValueId, double*> wide_places_;
};

}  // namespace halfscope::gpu
