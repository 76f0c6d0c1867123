// SPDX-License-Identifier: MIT
// Advice for TensorFlow's automatic mixed precision, a graph rewrite with lists of operator types
// (tensorflow/core/grappler/optimizers/auto_mixed_precision_lists.h): an operator of the deny list
// computes in float32, and no operator may be on two lists.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "analysis/fixes/places.h"
#include "analysis/fixes/targets.h"
#include "core/policy/grappler/training_graph.h"

namespace halfscope::fixes {
namespace {

using Names = std::vector<std::string>;

/// Returns TensorFlow's operators for each of ours, including gradients.
const std::map<std::string, Names, std::less<>>& operators() {
  static const std::map<std::string, Names, std::less<>> names{
      {"Add", {"Add", "AddV2"}},
      {"AveragePool", {"AvgPool", "AvgPoolGrad"}},
      {"BatchNormalization", {"FusedBatchNormV3", "FusedBatchNormGradV3"}},
      {"Conv", {"Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput"}},
      {"ConvGradInput", {"Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput"}},
      {"CumSum", {"Cumsum"}},
      {"Div", {"RealDiv"}},
      {"Elu", {"Elu", "EluGrad"}},
      {"Erf", {"Erf"}},
      {"Exp", {"Exp"}},
      {"Gemm", {"MatMul"}},
      {"LeakyRelu", {"LeakyRelu", "LeakyReluGrad"}},
      {"Log", {"Log"}},
      {"LogSoftmax", {"LogSoftmax"}},
      {"MatMul", {"MatMul", "BatchMatMul", "BatchMatMulV2"}},
      {"MaxPool", {"MaxPool", "MaxPoolGrad"}},
      {"Mul", {"Mul"}},
      {"Pow", {"Pow"}},
      {"Reciprocal", {"Reciprocal"}},
      {"ReduceMean", {"Mean"}},
      {"ReduceSum", {"Sum"}},
      {"Relu", {"Relu", "ReluGrad"}},
      {"Sigmoid", {"Sigmoid", "SigmoidGrad"}},
      {"Softmax", {"Softmax"}},
      {"Softplus", {"Softplus", "SoftplusGrad"}},
      {"Sqrt", {"Sqrt"}},
      {"Sub", {"Sub"}},
      {"Tanh", {"Tanh", "TanhGrad"}},
  };
  return names;
}

/// Returns the layers that TensorFlow computes in float16 under these options, in a forward pass.
std::set<std::string> painted_layers(const grappler::TfTraining& network,
                                     grappler::AmpOptions options) {
  options.preserve.insert(network.fetched.begin(), network.fetched.end());
  const grappler::AmpPainting painting = grappler::paint(network.graph, options);
  std::set<std::string> painted;
  for (const grappler::TfLayer& layer : network.layers) {
    if (std::any_of(layer.forward.begin(), layer.forward.end(),
                    [&](size_t node) { return painting.node_changed(node); })) {
      painted.insert(layer.path);
    }
  }
  return painted;
}

/// Returns "a, b and 3 more".
std::string shown(const std::vector<std::string>& paths) {
  constexpr size_t kShown = 8;
  std::string names;
  for (size_t i = 0; i < std::min(paths.size(), kShown); ++i)
    names += (i == 0 ? "" : ", ") + paths[i];
  if (paths.size() > kShown) names += fmt::format(" and {} more", paths.size() - kShown);
  return names;
}

/// Paints the network with and without the edits, and says which layers they move to float32 that
/// were not asked for.
std::string moved_text(const LaneInfo& lane, const std::vector<ModulePlace>& kept,
                       const std::set<std::string>& denied) {
  const grappler::TfTraining network = grappler::tf_forward_graph(lane.layers);
  const auto options_with = [&](bool deny) {
    grappler::AmpOptions options;
    for (const std::string& op : denied) {
      for (const grappler::AmpList list :
           {grappler::AmpList::allow, grappler::AmpList::infer, grappler::AmpList::clear})
        options.edits.push_back({list, false, op});
      if (deny) options.edits.push_back({grappler::AmpList::deny, true, op});
    }
    return options;
  };
  const std::set<std::string> before = painted_layers(network, {});
  const auto others = [&](bool deny) {
    const std::set<std::string> after = painted_layers(network, options_with(deny));
    std::vector<std::string> moved;
    for (const LayerInfo& layer : lane.layers) {
      const bool asked = std::any_of(kept.begin(), kept.end(), [&](const ModulePlace& place) {
        return place.path == layer.path;
      });
      if (!asked && before.contains(layer.path) && !after.contains(layer.path))
        moved.push_back(layer.path);
    }
    return moved;
  };
  const std::vector<std::string> moved = others(true), without = others(false);
  if (moved.empty()) return "";
  std::string text = comment(
      "Warning: these lists apply to operator types. Denial also spreads to infer and clear "
      "operators "
      "that follow. These layers stay in float32, too, and do not need it: " +
      shown(moved) + ". Use --fix-as keras to keep single layers.");
  if (without.size() < moved.size()) {
    text += comment(
        without.empty()
            ? std::string("Without \"DENYLIST_ADD\" in the loop, denial does not spread, and no "
                          "other layer moves.")
            : fmt::format("Without \"DENYLIST_ADD\" in the loop, denial does not spread, and only "
                          "{} of these {} move: {}.",
                          without.size(), moved.size(), shown(without)));
  }
  return text;
}

}  // namespace

std::string tensorflow_text(const LaneInfo& lane, const PlanEdit& edit) {
  const std::vector<ModulePlace> kept =
      places_of(edit, lane, {FixKind::operator_fp32, FixKind::store_fp32});
  std::set<std::string> denied;
  std::string unknown;
  for (const ModulePlace& place : kept) {
    const auto found = operators().find(place.op);
    if (found == operators().end()) {
      unknown +=
          comment(fmt::format("{} ({}): TensorFlow splits this into several operators. "
                              "Use --fix-as keras to keep the layer in float32.",
                              place.path, place.op.empty() ? "unknown operator" : place.op));
      continue;
    }
    denied.insert(found->second.begin(), found->second.end());
  }
  std::string text;
  if (!denied.empty()) {
    std::string list;
    for (const std::string& op : denied) list += (list.empty() ? "" : ",") + op;
    text += "import os\n\n";
    text += comment(
        "Run this before you import TensorFlow. It edits the lists of TensorFlow's automatic mixed "
        "precision (a graph rewrite); Keras's mixed_float16 does not read them.");
    text += "DENIED = " + python_string(list) + "\n" +
            "for edit in (\"ALLOWLIST_REMOVE\", \"INFERLIST_REMOVE\", \"CLEARLIST_REMOVE\", "
            "\"DENYLIST_ADD\"):\n"
            "    os.environ[\"TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_\" + edit] = DENIED\n";
    text += moved_text(lane, kept, denied);
  }
  text += unknown;
  text += not_expressed("TensorFlow's graph rewrite", edit,
                        {FixKind::nothing, FixKind::operator_fp32, FixKind::store_fp32});
  return text.empty() ? "# Nothing to change.\n" : text;
}

}  // namespace halfscope::fixes
