// SPDX-License-Identifier: MIT
// Model: a network as a graph, with named values for training and inference.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/graph.h"

namespace halfscope {

/// Label of rows that do not count, unless a loss names another one: the default of PyTorch.
inline constexpr int32_t kIgnoredLabel = -100;

struct NamedValue {
  std::string name;
  ValueId value = kNone;
};

/// A network from a model builder or an importer: the forward graph, up to the loss if it has one.
struct Model {
  std::string name;
  Graph graph;
  ValueId input = kNone;   ///< real, [batch, ...]; if missing, the first real input
  ValueId labels = kNone;  ///< index, [rows of logits]
  ValueId logits = kNone;  ///< [rows, classes]; without logits there is no accuracy
  int32_t ignored_label = kIgnoredLabel;
  /// A binary cross-entropy has scores and, in the same shape, an input of targets.
  ValueId binary_scores = kNone, binary_targets = kNone;
  ValueId loss = kNone;  ///< scalar; without a loss only inference is possible
  /// First of the nodes that compute the loss from the network's outputs. They compute in fp32
  /// unless a rule names their path, and always in evaluations. kNone: the loss consists of
  /// ordinary nodes.
  NodeId first_loss_node = kNone;
  std::vector<NamedValue> outputs;  ///< outputs of inference; by default the logits
  NamedTensors initial;             ///< initial values of variables that are not drawn at random
};

}  // namespace halfscope
