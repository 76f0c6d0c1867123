// SPDX-License-Identifier: MIT
// Who writes an output of a node, in the two ways in which a step runs:
//
//   output                           recorded step                      plain step
//   is stored as it is made (fp32)   node; the tap measures it          node
//   is rounded to nearest, first     node, exact; the tap measures and  node, rounded
//                                    rounds it, or Round without a tap
//   is rounded in another way, or    node, exact; likewise              node, exact; then Round
//   not the first
//   Cast                             the tap or Round, from the operand Round, from the operand
//   shares its operand's memory      is there; the tap measures it      is there
//   integers                         node                               node
//
// "Exact" is fp32 memory that all nodes use in turn. Both ways give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/lower/execution.h"
#include "core/ops/ops.h"
#include "gpu/engine/layout.h"

namespace halfscope::gpu {

enum class Way : uint8_t { plain, recorded };
inline constexpr size_t kWays = 2;

/// A row of the table above.
struct Write {
  bool is_cast = false;
  bool in_place = false;  ///< shares its operand's memory
  bool stores = false;    ///< gets into its memory by rounding, narrowing or moving
  bool by_node = false;   ///< the node stores it in a plain step

  /// Returns whether something has to be launched after the node's step.
  bool finishes(Way way, bool has_tap) const {
    return way == Way::recorded ? stores || has_tap : stores && !by_node;
  }
};

/// Returns who writes the real output `i` of a node.
inline Write write_of(const Graph& graph, const Layout& layout, const Node& node, size_t i) {
  const ValueId value = node.outputs[i];
  const Value& output = graph.value(value);
  const OpDef& op = find_op(node.op);
  const auto shares = [&] { return layout.place(node.inputs[0]) == layout.place(value); };
  Write write{.is_cast = node.op == "Cast"};
  write.in_place = is_view(node) && shares();
  const bool rounds = !op.rounds_itself && needs_rounding(graph, node, output);
  const bool moves = write.is_cast && !shares();
  const bool narrow = bytes_of(layout.storage(value)) < 4;
  write.stores = (rounds || narrow || moves) && !write.in_place;
  const bool nearest = output.rounding.mode == RoundingMode::nearest_even;
  write.by_node = i == 0 && write.stores && nearest && !write.is_cast && !op.rounds_itself;
  return write;
}

}  // namespace halfscope::gpu
