// SPDX-License-Identifier: MIT
// Arguments from which an operator's step is made: its node, and where its operands and outputs are
// on the device. make_step() is called when a program is compiled, once for recorded and once for
// plain steps; the step then launches bodies whenever the node runs. T is float, or double when a
// node is rerun for comparison.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/graph/graph.h"
#include "core/lower/execution.h"
#include "core/lower/narrow.h"
#include "core/numeric/sums/accumulate.h"
#include "core/numeric/sums/chain.h"
#include "core/ops/ops.h"
#include "gpu/bodies/normalization.h"
#include "gpu/bodies/stored.h"
#include "gpu/engine/channel_order.h"
#include "gpu/engine/padded_rows.h"
#include "gpu/engine/working_memory.h"

namespace halfscope::gpu {

/// State that is known only when an entry runs.
struct RunState {
  RandomSource random{};
  bool measured = false;  ///< statistics are requested
};

using Step = std::function<void(const RunState&)>;

struct LibraryCall;
struct SoftmaxParts;   // chain_parts.h
struct SharedRowSums;  // quick_lines.h
class FunctionTables;

/// The kernel that computes a product.
struct KernelChoice {
  std::string text;
  bool by_library = false;
  bool channels_last = false;  ///< a convolution of tensors with channels last
};

template <class X, class T>
struct NodeCall {
  X* executor = nullptr;
  const Graph* graph = nullptr;
  const Node* node = nullptr;
  std::vector<In<T>> in;                 ///< null for index inputs and omitted inputs
  std::vector<const int32_t*> index_in;  ///< null for real inputs
  std::vector<Out<T>> out;               ///< later steps may read all but the first with exact()
  std::vector<int32_t*> index_out;
  bool unrounded = false;    ///< outputs are requested as for fp32
  uint64_t* lost = nullptr;  ///< counter of lost updates
  double* wide = nullptr;    ///< destination of scalars that need double's range
  WorkingMemory* memory = nullptr;
  const LibraryCall* libraries = nullptr;  ///< null: own kernels only
  FunctionTables* tables = nullptr;        ///< null: functions are not looked up
  KernelChoice* kernel = nullptr;          ///< receives the kernel of a product; may be null
  const ChannelOrder* order = nullptr;     ///< null: no value has its channels last
  /// Work on the first output in the same launch; null: it is only written.
  const Afterwards<float>* then = nullptr;
  /// Gets the fp32 elements of the first output rounded, which itself may be null then; without
  /// memory: there is no such Cast.
  Destination cast{};
  /// Steps of other nodes around a Softmax or SoftmaxGrad; null: none. Outputs are the chain's.
  const SoftmaxParts* softmax = nullptr;
  /// Padded rows of inputs and of the first output (padded_rows.h). In plain steps `in` and `out`
  /// are these rows already.
  std::vector<PaddedRows> in_rows{};
  PaddedRows out_rows{};
  bool* cannot_pad = nullptr;  ///< set if the output cannot have padded rows
  bool is_plain = false;       ///< a plain step
  /// For what a loss and its gradient have in common in plain steps; null: recorded steps, and
  /// other nodes.
  SharedRowSums* row_sums = nullptr;
  /// Nodes of the same operator that the same step runs, too (grouping.h), in a step that is never
  /// measured.
  std::vector<const NodeCall*> others{};

  /// Returns how many elements apart rows of a matrix are in memory.
  int64_t in_pitch(size_t i) const {
    const bool padded = is_plain && i < in_rows.size() && in_rows[i].pitch > 0;
    return padded ? in_rows[i].pitch : in_shape(i)[1];
  }
  const Shape& in_shape(size_t i) const { return graph->value(node->inputs[i]).shape; }
  const Shape& out_shape(size_t i) const { return graph->value(node->outputs[i]).shape; }
  int64_t in_count(size_t i) const { return element_count(in_shape(i)); }
  int64_t out_count(size_t i) const { return element_count(out_shape(i)); }
  FloatFormat out_format(size_t i) const {
    return unrounded ? kFp32 : graph->value(node->outputs[i]).format;
  }
  /// Return whether an operand or output has its channels last.
  bool last_in(size_t i) const { return order != nullptr && order->last(node->inputs[i]); }
  bool last_out(size_t i) const { return order != nullptr && order->last(node->outputs[i]); }
  In<T> optional_in(size_t i) const { return i < in.size() ? in[i] : In<T>(nullptr); }
  /// Returns the sum's specification without the key of stochastic sums, which step_with_key()
  /// adds.
  SumSpec sum_spec() const { return sum_spec_of(*graph, *node, unrounded); }
  /// Returns a step that calls launch(key) with the key of the node's sums in that run.
  template <class Launch>
  Step step_with_key(const Launch& launch) const {
    const RoundingChoice rounding = node->plan.accumulation.rounding;
    const ValueId value = node->outputs[0];
    return [rounding, value, launch](const RunState& state) {
      launch(sum_key(rounding, value, state.random));
    };
  }

  /// Returns how the first output will be rounded, for bodies that must know. The key of a
  /// stochastic rounding is missing; step_with_rounding() adds it. fp32 is not rounded.
  RoundingChoice result_rounding() const {
    return out_format(0) == kFp32 ? RoundingChoice{} : graph->value(node->outputs[0]).rounding;
  }
  /// Returns a step that calls launch(TensorRounding) with the rounding of that run.
  template <class Launch>
  Step step_with_rounding(const Launch& launch) const {
    const RoundingChoice rounding = result_rounding();
    const ValueId value = node->outputs[0];
    return [rounding, value, launch](const RunState& state) {
      launch(rounding_now(rounding, value, state.random));
    };
  }

  template <class U>
  U* working_memory(int64_t count) const {
    return static_cast<U*>(
        memory->get(static_cast<size_t>(std::max<int64_t>(count, 1)) * sizeof(U)));
  }
};

/// Returns a step that launches these items.
template <class X, class Body>
Step items_step(X& executor, int64_t n, const Body& body) {
  return [&executor, n, body](const RunState&) { executor.items(n, body); };
}

/// Returns a step that launches these blocks.
template <class X, class Body>
Step blocks_step(X& executor, const Body& body) {
  return [&executor, body](const RunState&) { executor.blocks(body); };
}

/// Returns a step that runs `steps` in order.
inline Step in_turn(std::vector<Step> steps) {
  return [steps = std::move(steps)](const RunState& state) {
    for (const Step& step : steps) step(state);
  };
}

/// An operator and the function that makes its step.
template <class X, class T>
struct StepRow {
  std::string_view op;
  Step (*make)(const NodeCall<X, T>&);
};

/// Makes the operator's step, or returns nothing if no row is for it.
template <class X, class T, size_t N>
Step step_from(const StepRow<X, T> (&rows)[N], const NodeCall<X, T>& call) {
  for (const StepRow<X, T>& row : rows) {
    if (row.op == call.node->op) return row.make(call);
  }
  return {};
}

template <class T>
T attribute_of(const Node& node, const char* name) {
  return static_cast<T>(real_attribute(node, name, 0.0));
}

// One function per file, which lists its operators. Each returns nothing for other operators.
template <class X, class T>
Step integer_step(const NodeCall<X, T>& call);  // integer_steps.h: integers at run time
template <class X, class T>
Step movement_step(const NodeCall<X, T>& call);  // movement_steps.h: elementwise, shapes
template <class X, class T>
Step index_step(const NodeCall<X, T>& call);  // index_steps.h: gathers, comparisons, choices
template <class X, class T>
Step function_step(const NodeCall<X, T>& call);  // function_steps.h: functions of one element
template <class X, class T>
Step product_step(const NodeCall<X, T>& call);  // product_steps.h
template <class X, class T>
Step reduction_step(
    const NodeCall<X, T>& call);  // reduction_steps.h: reductions, pooling, loss, norm
template <class X, class T>
Step normalization_step(
    const NodeCall<X, T>& call);  // normalization_steps.h: softmax, layer normalization
template <class X, class T>
Step update_step(const NodeCall<X, T>& call);  // update_steps.h: optimizers, scaled operands

}  // namespace halfscope::gpu
