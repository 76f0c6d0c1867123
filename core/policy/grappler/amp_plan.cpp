// SPDX-License-Identifier: MIT
// The painting of a network's training graph as a plan.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/graph/op_def.h"
#include "core/plan/own_path.h"
#include "core/policy/grappler/training_graph.h"

namespace halfscope::grappler {
namespace {

/// Colours of some nodes. The first of each explains it.
struct Colors {
  size_t painted = 0, plain = 0;
  size_t first_painted = SIZE_MAX, first_plain = SIZE_MAX;  // indices of paints

  bool all() const { return painted > 0 && plain == 0; }
  bool any() const { return painted > 0; }
};

class PlanOfPainting {
 public:
  PlanOfPainting(const TfTraining& training, const AmpPainting& painting)
      : training_(training), painting_(painting) {
    paint_of_.assign(training.graph.nodes.size(), SIZE_MAX);
    for (size_t i = painting.paints.size(); i-- > 0;) {
      // The attribute of the operands; that of statistics (U) stays float32 by design.
      const AmpPaint& paint = painting.paints[i];
      if (paint.is_float && paint.attr != "U" && paint.attr != tf_type_name(kTfFloat))
        paint_of_[paint.node] = i;
    }
    trials_ = trials(training.graph, painting);
  }

  PlanRule rule_of(const TfLayer& layer, TfPlanCounts& counts) const {
    const bool half = painting_.options.target() == kTfHalf;
    const FloatFormat low = half ? kFp16 : kBf16;
    const Colors forward = colors_of(layer.forward), backward = colors_of(layer.backward);
    PlanRule rule{.path = own_path_glob(layer.path), .op = ""};
    // A product that is painted without its bias reads the low format and adds in float32.
    const bool reads_low = forward.all() || (forward.any() && first_is_painted(layer));
    rule.read = reads_low ? low : kFp32;
    rule.write = forward.all() ? low : kFp32;
    // Constants are rounded as well. Composites that are one operator in TensorFlow stay whole.
    if (find_op(layer.op).expand == nullptr) rule.stagewise = true;
    const size_t told = forward.all() ? forward.first_painted : forward.first_plain;
    ++counts.layers;
    if (forward.all()) ++counts.painted;
    if (told != SIZE_MAX) {
      rule.why = reason_of(training_.graph, painting_, told);
      rule.change = change_of(painting_, trials_, told);
      const std::string variables = change_variables(painting_, trials_, told);
      if (!variables.empty()) rule.change += " Set " + variables;
    } else {
      rule.why = "TensorFlow has no floating-point operator for it.";
    }
    if (forward.any() && !forward.all()) {
      ++counts.partly;
      rule.why +=
          fmt::format(" In TensorFlow it is several nodes, and {} of {} are {}.", forward.painted,
                      forward.painted + forward.plain, painting_.options.target_name());
    }
    const bool differs = forward.all() ? backward.plain > 0 : backward.painted > 0;
    if (differs) {
      ++counts.backward_differs;
      const size_t other = forward.all() ? backward.first_plain : backward.first_painted;
      rule.why += fmt::format(" In its backward pass, TensorFlow computes {} in {}: {}",
                              training_.graph.nodes[painting_.paints[other].node].op,
                              forward.all() ? "float32" : painting_.options.target_name(),
                              reason_of(training_.graph, painting_, other));
    }
    return rule;
  }

 private:
  Colors colors_of(const std::vector<size_t>& nodes) const {
    Colors colors;
    for (const size_t node : nodes) {
      const size_t paint = paint_of_[node];
      const std::string& op = training_.graph.nodes[node].op;
      if (paint == SIZE_MAX || op == "Const" || op == "VarHandleOp") continue;
      const bool changed = painting_.paints[paint].changed;
      size_t& first = changed ? colors.first_painted : colors.first_plain;
      ++(changed ? colors.painted : colors.plain);
      if (first == SIZE_MAX) first = paint;
    }
    return colors;
  }

  bool first_is_painted(const TfLayer& layer) const {
    for (const size_t node : layer.forward) {
      const size_t paint = paint_of_[node];
      if (paint != SIZE_MAX && training_.graph.nodes[node].op != "Const")
        return painting_.paints[paint].changed;
    }
    return false;
  }

  const TfTraining& training_;
  const AmpPainting& painting_;
  std::vector<size_t> paint_of_;  // by node
  std::vector<AmpTrial> trials_;
};

}  // namespace

Plan tf_amp_plan(const Model& model, const AmpOptions& options, TfPlanCounts* counts) {
  const TfTraining training = tf_training_graph(model);
  AmpOptions all = options;
  all.preserve.insert(training.fetched.begin(), training.fetched.end());
  const AmpPainting painting = paint(training.graph, all);
  Plan plan;
  plan.name = options.mode == AmpMode::cpu_bfloat16 ? "tf-amp-bf16" : "tf-amp";
  plan.why = "TensorFlow's graph rewrite changes only nodes that it paints.";
  for (const std::string& path : training.expanded)
    plan.rules.push_back({.path = own_path_glob(path), .op = "", .stagewise = true});
  TfPlanCounts own;
  const PlanOfPainting make(training, painting);
  std::map<std::string, int> uses;
  for (const TfLayer& layer : training.layers) ++uses[layer.path];
  for (const TfLayer& layer : training.layers) {
    plan.rules.push_back(make.rule_of(layer, counts != nullptr ? *counts : own));
    if (uses[layer.path] > 1) plan.rules.back().op = layer.op;
  }
  // A module's path also selects its nodes ("layer1.0" and "layer1.0:add"), so it goes first.
  std::stable_partition(plan.rules.begin(), plan.rules.end(), [](const PlanRule& rule) {
    return rule.path.find(':') == std::string::npos;
  });
  return plan;
}

}  // namespace halfscope::grappler
