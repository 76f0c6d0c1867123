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

}  // namespace

std::string tensorflow_text(const LaneInfo& lane, const PlanEdit& edit) {
  const std::vector<ModulePlace> kept =
      places_of(edit, lane, {FixKind::operator_fp32, FixKind::store_fp32});
  std::set<std::string> ops, denied;
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
    ops.insert(place.op);
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
    std::vector<std::string> others;
    for (const LayerInfo& layer : lane.layers) {
      const bool asked = std::any_of(kept.begin(), kept.end(), [&](const ModulePlace& place) {
        return place.path == layer.path;
      });
      if (ops.contains(layer.op) && !asked) others.push_back(layer.path);
    }
    if (!others.empty()) {
      constexpr size_t kShown = 8;
      std::string names;
      for (size_t i = 0; i < std::min(others.size(), kShown); ++i)
        names += (i == 0 ? "" : ", ") + others[i];
      if (others.size() > kShown) names += fmt::format(" and {} more", others.size() - kShown);
      text += comment(
          "Warning: these lists apply to operator types. They also keep layers in float32 that do "
          "not need it: " +
          names + ". Use --fix-as keras to keep single layers.");
    }
  }
  text += unknown;
  text += not_expressed("TensorFlow's graph rewrite", edit,
                        {FixKind::nothing, FixKind::operator_fp32, FixKind::store_fp32});
  return text.empty() ? "# Nothing to change.\n" : text;
}

}  // namespace halfscope::fixes
