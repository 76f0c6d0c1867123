// SPDX-License-Identifier: MIT
#include "core/lower/plan_paths.h"

#include <algorithm>
#include <string>

#include "core/error.h"
#include "core/plan/own_path.h"

namespace halfscope {
namespace {

/// Returns whether a path of a plan selects the node by a name other than its path: the module that
/// contains it ("layer1.0" for "layer1.0:add"), or its name in an imported file.
bool matches_other_name(const std::string& glob, const Node& node) {
  if (is_own_path(glob)) return false;
  const size_t part = node.path.find(':');
  return (part != std::string::npos && glob_match(glob, node.path.substr(0, part))) ||
         (!node.alias.empty() && glob_match(glob, node.alias));
}

}  // namespace

Plan by_paths(const Plan& plan, const Graph& graph) {
  Plan result = plan;
  result.rules.clear();
  for (const PlanRule& rule : plan.rules) {
    result.rules.push_back(rule);
    if (rule.path.empty()) continue;
    for (const Node& node : graph.nodes()) {
      if (glob_match(rule.path, node.path) || !matches_other_name(rule.path, node)) continue;
      result.rules.push_back(rule);
      result.rules.back().path = exact_glob(node.path);
    }
  }
  return result;
}

void check_paths(const Graph& graph, const Graph& expanded, const Plan& plan) {
  for (const PlanRule& rule : plan.rules) {
    if (rule.path.empty()) continue;
    const auto matches = [&](const Node& node) {
      return glob_match(rule.path, node.path) || matches_other_name(rule.path, node);
    };
    if (std::any_of(graph.nodes().begin(), graph.nodes().end(), matches) ||
        std::any_of(expanded.nodes().begin(), expanded.nodes().end(), matches)) {
      continue;
    }
    std::string paths;
    for (const Node& node : graph.nodes()) paths += (paths.empty() ? "" : ", ") + node.path;
    throw usage_error("no layer matches '" + rule.path + "'", "layers: " + paths)
        .about({"fp32", "lanes", "plan"});
  }
}

}  // namespace halfscope
