// SPDX-License-Identifier: MIT
// Presets whose steps of a network differ. The policies of several frameworks often decide the
// same, and a comparison of backends learns nothing from a second run of the same arithmetic.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "core/lower/lower.h"
#include "core/lower/optimizer.h"
#include "core/policy/policy.h"

namespace halfscope::test {

/// Returns whether two lowered graphs have the same nodes and values with the same arithmetic.
inline bool same_arithmetic(const Graph& a, const Graph& b) {
  const auto settings = [](const NodePlan& p) {
    return std::tie(p.read, p.write, p.accumulation, p.rounding, p.scale, p.grad_read,
                    p.grad_rounding, p.stagewise, p.clamps, p.prescale);
  };
  const auto same_node = [&](const Node& x, const Node& y) {
    return x.op == y.op && x.inputs == y.inputs && x.outputs == y.outputs &&
           x.attributes == y.attributes && settings(x.plan) == settings(y.plan);
  };
  const auto same_value = [](const Value& x, const Value& y) {
    return x.shape == y.shape && x.type == y.type && x.format == y.format &&
           x.rounding == y.rounding;
  };
  return std::ranges::equal(a.nodes(), b.nodes(), same_node) &&
         std::ranges::equal(a.values(), b.values(), same_value);
}

/// Returns the presets among `names`, without double precision, that train `model` differently from
/// all before them.
inline std::map<std::string, Plan> distinct_presets(
    const Model& model, const std::vector<std::string>& names = preset_names()) {
  const TrainingSpec spec{parse_optimizer("sgd:momentum=0.9"), 1};
  std::map<std::string, Plan> plans;
  std::vector<Executable> seen;
  for (const std::string& name : names) {
    Plan plan = preset_plan(name).value();
    if (plan.double_precision) continue;
    Executable exe = lower(model, plan, spec);
    if (std::ranges::any_of(seen, [&](const Executable& other) {
          return same_arithmetic(exe.graph, other.graph);
        })) {
      continue;
    }
    seen.push_back(std::move(exe));
    plans.emplace(name, std::move(plan));
  }
  return plans;
}

/// Presets for quick comparisons: one for each width of operands, and one that rounds each
/// operation.
inline std::map<std::string, Plan> few_presets(const Model& model) {
  return distinct_presets(model, {"float32", "mixed_float16", "bfloat16_stagewise", "fp8_current"});
}

}  // namespace halfscope::test
