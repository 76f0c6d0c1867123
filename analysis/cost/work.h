// SPDX-License-Identifier: MIT
// Counts what the nodes of a lane compute and move in one step, as a framework runs them: one
// kernel per operator, which reads each operand and writes each result once, in its own format.
//
//   Views, and operands with a scale per block that a product reads as codes, move nothing more.
//   What only this program measures (accuracy, updates) is left out.
//   Intermediate results of fused operators stay in registers.
//   Inference computes nothing that is known before any input, such as codes of weights.
//   The optimizer is one kernel over all variables, as fused and multi-tensor optimizers are.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/lower/lower.h"

namespace halfscope {

/// The memory behind the values of a graph.
class Storage {
 public:
  explicit Storage(const Graph& graph);
  /// Returns the value whose memory this one is: of a view its operand, of a variable's next value
  /// the variable, of block-scaled operands that only products read their codes.
  ValueId root(ValueId value) const;
  /// Returns all memory behind a value: its root, and the scales of block-scaled codes.
  std::vector<ValueId> parts(ValueId value) const;
  /// Returns whether a kernel of several operators keeps the value in registers: an intermediate
  /// result (core/graph/unrounded.h) that is read in its own phase only.
  bool in_registers(ValueId value) const;
  /// Returns the bytes of a root.
  int64_t bytes(ValueId root) const;
  /// Returns whether the node's result is its operand's memory.
  bool is_view(const Node& node) const;

 private:
  const Graph& graph_;
  std::map<ValueId, ValueId> roots_;
  std::set<ValueId> registers_;
};

/// The work of one node, or of the optimizer.
struct NodeWork {
  NodeId node = kNone;  ///< kNone for the optimizer
  std::string layer{};  ///< path of the forward node that it belongs to
  std::string op{};     ///< of that node
  Phase phase = Phase::forward;
  int64_t flops = 0;   ///< of products: two per multiplication and addition
  int64_t bytes = 0;   ///< read and written
  bool cast = false;   ///< changes the format of a value, and nothing else
  bool fused = false;  ///< part of its reader's kernel
  /// Products: M, N, K of each, and how many there are side by side (a batch, or the groups of a
  /// convolution).
  std::array<int64_t, 3> sizes{};
  int64_t products = 0;

  bool is_product() const noexcept { return products > 0; }
};

/// Returns the work of a training step with one micro-batch, or of a forward pass for executables
/// of lower_inference(), in execution order.
std::vector<NodeWork> work_of(const Executable& executable);

}  // namespace halfscope
