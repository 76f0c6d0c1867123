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
#include "gpu/engine/bytes.h"
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
  /// Returns the sum's specification without the key of stochastic sums, which sums_step() adds.
  SumSpec sum_spec() const { return sum_spec_of(*graph, *node, unrounded); }
  /// Returns how the first output will be rounded, for bodies that must know. The key of a
  /// stochastic rounding is missing; rounded_items_step() adds it. fp32 is not rounded.
  RoundingChoice result_rounding() const {
    return out_format(0) == kFp32 ? RoundingChoice{} : graph->value(node->outputs[0]).rounding;
  }

  template <class U>
  U* working_memory(int64_t count) const {
    return static_cast<U*>(
        memory->get(static_cast<size_t>(std::max<int64_t>(count, 1)) * sizeof(U)));
  }
};

/// A step that launches one body. It keeps the body as bytes: code that makes, copies and destroys
/// steps is compiled once, not for each of hundreds of bodies.
template <class X>
struct BodyStep {
  /// Launches the body, for a run.
  using Launch = void (*)(const BodyStep&, const RunState&);

  X* executor;
  Launch launch;
  Bytes body;
  int64_t n;  ///< items
  /// Random choices of the run: of a rounding, or of sums.
  RoundingChoice rounding;
  ValueId value;
  uint64_t* lost;  ///< counter of lost updates

  void operator()(const RunState& state) const { launch(*this, state); }
};

/// Returns the step of a body: a copy of it that launch() runs with these arguments.
template <class X>
Step body_step(X* executor, typename BodyStep<X>::Launch launch, ByteView body, int64_t n,
               const RoundingChoice& rounding = {}, ValueId value = kNone,
               uint64_t* lost = nullptr) {
  return BodyStep<X>{executor, launch, Bytes(body), n, rounding, value, lost};
}

/// Returns a step that launches these items.
template <class X, class Body>
Step items_step(X& executor, int64_t n, const Body& body) {
  const auto launch = [](const BodyStep<X>& step, const RunState&) {
    step.executor->items(step.n, step.body.template as<Body>());
  };
  return body_step(&executor, launch, body, n);
}

/// Returns a step that launches these blocks.
template <class X, class Body>
Step blocks_step(X& executor, const Body& body) {
  const auto launch = [](const BodyStep<X>& step, const RunState&) {
    step.executor->blocks(step.body.template as<Body>());
  };
  return body_step(&executor, launch, body, 0);
}

/// Returns a step that launches these items with the rounding of that run as body.rounding.
template <class X, class T, class Body>
Step rounded_items_step(const NodeCall<X, T>& c, int64_t n, const Body& body) {
  const auto launch = [](const BodyStep<X>& step, const RunState& state) {
    Body now = step.body.template as<Body>();
    now.rounding = rounding_now(step.rounding, step.value, state.random);
    step.executor->items(step.n, now);
  };
  return body_step(c.executor, launch, body, n, c.result_rounding(), c.node->outputs[0]);
}

/// Returns a step that launches items of a body that sums. How{}(body) is the ChainSpec that gets
/// the key of stochastic sums in that run.
template <class X, class T, class Body, class How>
Step sums_step(const NodeCall<X, T>& c, int64_t n, const Body& body, How) {
  const auto launch = [](const BodyStep<X>& step, const RunState& state) {
    Body now = step.body.template as<Body>();
    How{}(now).key = sum_key(step.rounding, step.value, state.random);
    step.executor->items(step.n, now);
  };
  return body_step(c.executor, launch, body, n, c.node->plan.accumulation.rounding,
                   c.node->outputs[0]);
}

/// Same for a body of blocks.
template <class X, class T, class Body, class How>
Step block_sums_step(const NodeCall<X, T>& c, const Body& body, How) {
  const auto launch = [](const BodyStep<X>& step, const RunState& state) {
    Body now = step.body.template as<Body>();
    How{}(now).key = sum_key(step.rounding, step.value, state.random);
    step.executor->blocks(now);
  };
  return body_step(c.executor, launch, body, 0, c.node->plan.accumulation.rounding,
                   c.node->outputs[0]);
}
template <class X, class T, class Body>
Step block_sums_step(const NodeCall<X, T>& c, const Body& body) {
  return block_sums_step(c, body, [](Body& each) -> ChainSpec& { return each.how; });
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
