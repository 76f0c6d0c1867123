// SPDX-License-Identifier: MIT
// The calls that run an entry's nodes: one list for recorded steps and one for plain steps
// (writes.h). Plain steps keep channels last where they can (channel_order.h) and run some nodes
// together: chains of them (fusion.h), and independent ones of one kind (grouping.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/backend/backend.h"
#include "gpu/bodies/quick_lines.h"
#include "gpu/engine/chain_parts.h"
#include "gpu/engine/function_tables.h"
#include "gpu/engine/fusion.h"
#include "gpu/engine/group_steps.h"
#include "gpu/engine/grouping.h"
#include "gpu/engine/library_steps.h"
#include "gpu/engine/node_call.h"
#include "gpu/engine/padded_rows.h"
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
            const TapCounters<X>& taps, FunctionTables& tables, const LibraryCall* libraries)
      : executor_(executor),
        executable_(executable),
        graph_(executable.graph),
        memory_(memory),
        taps_(taps),
        tables_(tables),
        libraries_(libraries) {
    // Only a library that may write 16 bits writes padded rows.
    if (libraries == nullptr || !libraries->library->fast()) return;
    for (size_t entry = 0; entry < kEntryCount; ++entry) {
      pitches_[entry] = find_padded_rows(executable, static_cast<Entry>(entry), memory.layout());
    }
  }

  /// Returns the calls of an entry's recorded steps.
  std::vector<Call> recorded(Entry entry) {
    std::vector<Call> calls;
    for (NodeId id : executable_.entry(entry)) calls.push_back(make(entry, id, Way::recorded));
    return calls;
  }
  /// Settles which values have their channels last in plain steps. All recorded steps are made.
  void settle_order() {
    std::set<NodeId> convolutions;
    for (const auto& [id, kernel] : kernels_) {
      if (kernel.channels_last) convolutions.insert(id);
    }
    order_ = ChannelOrder(executable_, convolutions);
  }
  /// Returns the calls of an entry's plain steps. The order is settled.
  std::vector<Call> plain(Entry entry) {
    const std::vector<Chain> chains = find_chains(executable_, entry);
    const auto chain_of = [&](NodeId id) {
      return std::find_if(chains.begin(), chains.end(),
                          [id](const auto& each) { return each.contains(id); });
    };
    // A chain's first nodes run late, and so must all that read their outputs.
    const auto kind = [&](NodeId id) {
      for (ValueId value : graph_.node(id).inputs) {
        const NodeId producer = value == kNone ? kNone : graph_.value(value).producer;
        const auto chain = chain_of(producer);
        if (chain != chains.end() && chain->last() != producer) return std::string();
      }
      return chain_of(id) == chains.end() ? kind_of(id) : std::string();
    };
    const std::map<NodeId, std::vector<NodeId>> groups =
        find_groups(executable_, entry, memory_.layout(), kind);
    std::set<NodeId> others;
    for (const auto& [first, rest] : groups) others.insert(rest.begin(), rest.end());
    std::vector<Call> calls;
    row_sums_.clear();
    for (NodeId id : executable_.entry(entry)) {
      const auto chain = chain_of(id);
      if (chain != chains.end()) {
        if (chain->last() == id) calls.push_back(make(entry, *chain));
        continue;
      }
      if (others.contains(id)) continue;
      const auto group = groups.find(id);
      calls.push_back(group == groups.end() ? make(entry, id, Way::plain)
                                            : make(entry, id, group->second));
    }
    return calls;
  }

  const ChannelOrder& order() const { return order_; }
  /// Returns the values that an entry's plain steps do not store.
  const std::vector<ValueId>& left_out(Entry entry) const {
    return left_out_[static_cast<size_t>(entry)];
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
    NodeCall<X, float> c = call_of(entry, id, kernel);
    if (way == Way::plain) {
      c.order = &order_;
      c.row_sums = row_sums(node);
      c.is_plain = true;
    }
    bool cannot_pad = false;
    pad_rows(entry, way, cannot_pad, c);
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
    if (way == Way::plain && c.out_rows.pitch > 0) {
      c.out[0] = Out<float>(nullptr, rows_of(node.outputs[0]), true);
    }
    if (!there) call.step = make_step(c);
    if (cannot_pad) {
      pitches_[static_cast<size_t>(entry)].clear();
      return make(entry, id, way);
    }
    if (way == Way::plain && c.out_rows.pitch > 0) {
      left_out_[static_cast<size_t>(entry)].push_back(node.outputs[0]);
    }
    if (way == Way::plain) leave_out_turned_indices(entry, node);
    if (way == Way::recorded && !kernel.text.empty()) kernels_[id] = kernel;
    return call;
  }

  /// Gives a call the padded rows of its operands and of its output.
  void pad_rows(Entry entry, Way way, bool& cannot_pad, NodeCall<X, float>& c) {
    const RowPitches& pitches = pitches_[static_cast<size_t>(entry)];
    if (pitches.empty()) return;
    c.cannot_pad = &cannot_pad;
    const auto rows = [&](ValueId value) -> PaddedRows {
      const auto found = pitches.find(value);
      if (value == kNone || found == pitches.end()) return {};
      void*& memory = padded_[value];
      const int64_t elements = graph_.value(value).shape[0] * found->second;
      if (memory == nullptr) memory = memory_.template allocate<uint16_t>(elements);
      return {memory, found->second};
    };
    for (size_t i = 0; i < c.in.size(); ++i) {
      c.in_rows.push_back(rows(c.node->inputs[i]));
      if (way == Way::plain && c.in_rows[i].pitch > 0) {
        c.in[i] = In<float>(c.in_rows[i].memory, c.in[i].storage());
      }
    }
    c.out_rows = rows(c.node->outputs[0]);
  }
  /// Returns where padded rows of a value are written.
  Destination rows_of(ValueId value) const {
    Destination to = memory_.destination(value);
    to.memory = padded_.at(value);
    return to;
  }

  /// Returns the memory that a loss and its gradient share, or null for other nodes.
  SharedRowSums* row_sums(const Node& node) {
    if (node.op != "SoftmaxCrossEntropyLoss" && node.op != "SoftmaxCrossEntropyLossGrad") return {};
    const int64_t rows = graph_.value(node.inputs[0]).shape[0];
    SharedRowSums& shared =
        row_sums_[{node.inputs[0], node.inputs[1], int_attribute(node, "ignore_index", -1)}];
    if (shared.sums.sum == nullptr) {
      shared.sums = {memory_.template allocate<double>(rows),
                     memory_.template allocate<double>(rows)};
    }
    return &shared;
  }

  /// Indices of positions in planes (MaxPool) are not readable if they have channels last.
  void leave_out_turned_indices(Entry entry, const Node& node) {
    const auto last = [&](ValueId value) { return value != kNone && order_.last(value); };
    if (!last(node.inputs.empty() ? kNone : node.inputs[0]) && !last(node.outputs[0])) return;
    for (ValueId value : node.outputs) {
      if (!memory_.is_real(value)) left_out_[static_cast<size_t>(entry)].push_back(value);
    }
  }

  /// Makes the call of a chain in plain steps.
  Call make(Entry entry, const Chain& chain) {
    const NodeId core = chain.nodes[chain.core];
    const Node& node = graph_.node(core);
    KernelChoice kernel;
    NodeCall<X, float> c = call_of(entry, core, kernel);
    c.order = &order_;
    Call call{.node = core, .step = {}};
    for (size_t i = 1; i < node.outputs.size(); ++i) {
      add_output(node, i, write_of(graph_, memory_.layout(), node, i), Way::plain, c, call);
    }
    for (NodeId id : chain.nodes) {
      const ValueId value = graph_.node(id).outputs[0];
      if (id == chain.last() || chain.keeps(value)) continue;
      left_out_[static_cast<size_t>(entry)].push_back(value);
    }
    c.cast = cast_of(memory_, graph_, chain);
    if (c.cast.memory == nullptr) {
      c.out[0] = output_of(graph_.node(chain.last()), 0, Way::plain);
    } else if (chain.keeps(node.outputs[0])) {
      c.out[0] = output_of(node, 0, Way::plain);
    }
    Afterwards<float> then;
    SoftmaxParts parts;
    if (node.op == "BatchNormalization") {
      then = normalization_parts(memory_, graph_, chain, c.out[0]);
      c.then = &then;
    } else if (node.op == "Softmax" || node.op == "SoftmaxGrad") {
      parts = softmax_parts(memory_, graph_, chain);
      c.softmax = &parts;
    }
    call.step = make_step(c);
    return call;
  }

  /// Returns what the nodes of a launch have in common, or "" for a node that runs alone: bodies of
  /// groups are made once, so they draw no random words, and write all outputs themselves.
  std::string kind_of(NodeId id) const {
    const Node& node = graph_.node(id);
    if (node.op != "Cast" && !runs_in_groups(node.op)) return "";
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const Value& output = graph_.value(node.outputs[i]);
      if (output.type != ElementType::real) return "";
      if (output.rounding.mode == RoundingMode::stochastic) return "";
      const Write write = write_of(graph_, memory_.layout(), node, i);
      if (write.finishes(Way::plain, false) != write.is_cast) return "";
    }
    return node.op;
  }

  /// Makes the call of several nodes of one kind in plain steps.
  Call make(Entry entry, NodeId first, const std::vector<NodeId>& others) {
    Call call{.node = first, .step = {}};
    KernelChoice kernel;
    std::vector<NodeCall<X, float>> all;
    const auto add = [&](NodeId id) {
      const Node& node = graph_.node(id);
      all.push_back(call_of(entry, id, kernel));
      all.back().order = &order_;
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        add_output(node, i, write_of(graph_, memory_.layout(), node, i), Way::plain, all.back(),
                   call);
      }
    };
    add(first);
    for (NodeId id : others) add(id);
    if (graph_.node(first).op == "Cast") {
      std::vector<Round> rounds;
      for (const Unfinished& each : std::exchange(call.outputs, {})) {
        rounds.push_back(
            {each.exact, each.to, each.count, rounding_now(each.rounding, each.value, {})});
      }
      call.step = group_step<ItemGroup>(all[0], rounds);
    } else {
      for (size_t i = 1; i < all.size(); ++i) all[0].others.push_back(&all[i]);
      call.step = make_step(all[0]);
    }
    return call;
  }

  /// Returns the working memory of a node's steps in this entry.
  WorkingMemory* working(Entry entry, NodeId id) {
    std::unique_ptr<WorkingMemory>& own = working_[{entry, id}];
    if (own == nullptr) {
      own = std::make_unique<WorkingMemory>(
          [this](size_t bytes) { return executor_.allocate(bytes); });
    }
    own->rewind();
    return own.get();
  }

  /// Returns the arguments of a node's step, except for its real outputs.
  NodeCall<X, float> call_of(Entry entry, NodeId id, KernelChoice& kernel) {
    const Node& node = graph_.node(id);
    NodeCall<X, float> c{.executor = &executor_,
                         .graph = &graph_,
                         .node = &node,
                         .in = {},
                         .index_in = {},
                         .out = {},
                         .index_out = {},
                         .memory = working(entry, id),
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

  /// Returns where the node writes its real output `i` unrounded.
  float* exact_of(const Node& node, size_t i) const {
    const Destination to = memory_.destination(node.outputs[i]);
    if (bytes_of(to.storage) == 4) return static_cast<float*>(to.memory);
    return memory_.exact() + memory_.layout().exact_place(graph_, node, i) / 4;
  }
  Out<float> output_of(const Node& node, size_t i, Way way) const {
    float* const exact = exact_of(node, i);
    if (!write_of(graph_, memory_.layout(), node, i).by_node) return Out<float>(exact);
    return Out<float>(exact, memory_.destination(node.outputs[i]), way == Way::plain);
  }

  void add_output(const Node& node, size_t i, const Write& write, Way way, NodeCall<X, float>& c,
                  Call& call) const {
    const ValueId value = node.outputs[i];
    const Value& output = graph_.value(value);
    const Destination to = memory_.destination(value);
    float* const exact = exact_of(node, i);
    c.out[i] = output_of(node, i, way);
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
  const Executable& executable_;
  const Graph& graph_;
  const ProgramMemory<X>& memory_;
  const TapCounters<X>& taps_;
  FunctionTables& tables_;
  const LibraryCall* libraries_;
  ChannelOrder order_;
  std::array<std::vector<ValueId>, kEntryCount> left_out_;
  std::map<std::pair<Entry, NodeId>, std::unique_ptr<WorkingMemory>> working_;
  std::map<NodeId, KernelChoice> kernels_;
  std::map<ValueId, double*> wide_places_;
  std::array<RowPitches, kEntryCount> pitches_;
  std::map<ValueId, void*> padded_;
  /// Row sums of one entry's plain steps, by logits, labels and ignored label.
  std::map<std::tuple<ValueId, ValueId, int64_t>, SharedRowSums> row_sums_;
};

}  // namespace halfscope::gpu
