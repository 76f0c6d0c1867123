// SPDX-License-Identifier: MIT
// A network of ours as the graph that TensorFlow would train: forward, backward and updates, in
// TensorFlow's operators. And back: the painting of that graph as a plan.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/graph/model.h"
#include "core/plan/plan.h"
#include "core/policy/grappler/paint.h"

namespace halfscope::grappler {

/// A node of the forward pass and the TensorFlow nodes that stand for it.
struct TfLayer {
  std::string path, op;                   ///< ours
  std::vector<size_t> forward, backward;  ///< indices of TfGraph::nodes, in execution order
};

struct TfTraining {
  TfGraph graph;
  std::vector<TfLayer> layers;        ///< in execution order
  std::vector<std::string> expanded;  ///< composites that a plan must make stagewise
  std::vector<std::string> fetched;   ///< nodes that the pass must not change
};

/// Returns the network as TensorFlow's operators: Conv is Conv2D and BiasAdd, its gradients are
/// Conv2DBackpropInput, Conv2DBackpropFilter and BiasAddGrad, and so on. A network without a loss
/// has a forward pass only. Operators that TensorFlow does not have are functions, which the pass
/// never changes.
TfTraining tf_training_graph(const Model& model);

/// Returns the forward pass of a recorded lane, of which only operators and edges are known.
/// Products have a bias.
TfTraining tf_forward_graph(std::span<const LayerInfo> layers);

/// Counts of layers whose painting a plan cannot express, beside those of all.
struct TfPlanCounts {
  size_t layers = 0;   ///< of the forward pass
  size_t painted = 0;  ///< computed in the target type
  size_t partly = 0;   ///< their TensorFlow nodes have different colours in the forward pass
  size_t backward_differs = 0;  ///< the backward pass has another colour
};

/// Returns the plan that computes each layer in the type that TensorFlow's pass gives it. Each rule
/// names one path, with its reason and what would change it. Variables stay float32. Gradients have
/// the format of their layer; where TensorFlow paints them differently, the reason says so.
Plan tf_amp_plan(const Model& model, const AmpOptions& options, TfPlanCounts* counts = nullptr);

}  // namespace halfscope::grappler
