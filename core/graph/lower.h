// SPDX-License-Identifier: MIT
// lower(): source graph + plan + optimizer -> executable graph of one lane.
//
//   source graph --expand stagewise composites--> primitives
//     --settle the forward formats--> --differentiate--> --append norm and updates-->
//     --one Cast per (value, format) where an operand is read narrower than it is stored-->
//     entry points grad / update / eval, taps, layer table
//
// Formats of gradients: the gradient that a node makes for its input v is written in v's format
// where the node reads v in a format that holds all of v's values (so it is rounded once), else
// in the node's read format, as frameworks deliver it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/plan/plan.h"
#include "core/train/optimizer.h"

namespace halfscope {

/// What a model builder returns: the forward graph up to the loss.
struct Model {
  std::string name;
  Graph graph;
  ValueId input = kNone;   ///< real, [batch, ...]
  ValueId labels = kNone;  ///< index, [batch]
  ValueId logits = kNone;  ///< [batch, classes]
  ValueId loss = kNone;    ///< scalar
};

enum class Entry : uint8_t { grad, update, eval };
inline constexpr size_t kEntryCount = 3;

/// A value to be measured, and the site it is.
struct Tap {
  ValueId value = kNone;
  SiteInfo site;
};

struct Executable {
  Graph graph;
  std::array<std::vector<NodeId>, kEntryCount> entries;  ///< nodes in execution order
  std::vector<Tap> taps;                                 ///< taps[i].site.order == i
  std::vector<LayerInfo> layers;

  // Written by the caller.
  ValueId input = kNone, labels = kNone;
  ValueId loss_scale = kNone, inverse_scale = kNone, learning_rate = kNone;
  ValueId correction_1 = kNone, correction_2 = kNone;  ///< Adam's 1 - beta^t
  // Read by the caller.
  ValueId loss = kNone, accuracy = kNone, eval_loss = kNone, logits = kNone;
  ValueId gradient_norm = kNone;  ///< sum of squares of all (scaled) weight gradients

  const std::vector<NodeId>& entry(Entry which) const { return entries[static_cast<size_t>(which)]; }
};

/// Throws Error (usage) if a path of the plan matches no node.
Executable lower(const Model& model, const Plan& plan, const Optimizer& optimizer);

}  // namespace halfscope
