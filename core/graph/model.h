// SPDX-License-Identifier: MIT
// Model: a network as a graph, with the values that training and inference ask for by name.
#pragma once

#include <string>
#include <vector>

#include "core/graph/graph.h"

namespace halfscope {

struct NamedValue {
  std::string name;
  ValueId value = kNone;
};

/// What a model builder or an importer returns: the forward graph, up to the loss if it has one.
struct Model {
  std::string name;
  Graph graph;
  ValueId input = kNone;   ///< real, [batch, ...]; may be left out: then the first real input
  ValueId labels = kNone;  ///< index, [rows of logits]
  ValueId logits = kNone;  ///< [rows, classes]; without them there is no accuracy
  ValueId loss = kNone;    ///< scalar; without it there is only inference
  /// Nodes from this one on make the loss of the network's outputs: they compute in fp32 unless a
  /// rule names their path, in evaluations always. kNone: the loss is nodes like others.
  NodeId first_loss_node = kNone;
  std::vector<NamedValue> outputs;  ///< what inference is asked for; by default the logits
  NamedTensors initial;             ///< starting values of variables that are not drawn at random
};

}  // namespace halfscope
