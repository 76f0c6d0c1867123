// SPDX-License-Identifier: MIT
#include "core/lower/rank_gradients.h"

#include <utility>

#include "core/ops/rank_reduction.h"

namespace halfscope {

void add_rank_inputs(Executable& out, const Plan& plan, const TrainingSpec& spec) {
  out.ranks = spec.ranks;
  out.reduction = plan.reduction.value_or(spec.reduction);
  out.exchanged = spec.exchanged;
  out.double_precision = plan.double_precision;
  if (spec.ranks == 1) return;
  out.rank = out.graph.add_input("rank", {});
  out.rank_takes_part =
      out.graph.add_input("rank_takes_part", {spec.exchanged ? int64_t{1} : spec.ranks});
}

ValueId add_rank_sum(Executable& out, size_t variable, ValueId gradient, int64_t parts,
                     std::vector<ValueId>& stores) {
  Graph& graph = out.graph;
  const std::string of = graph.variables()[variable].path;
  const std::string path = of.substr(0, of.rfind('.'));
  const FloatFormat format = graph.value(gradient).format;
  Shape shape = graph.value(gradient).shape;
  shape.insert(shape.begin(), out.exchanged ? int64_t{1} : out.ranks);
  const ValueId stack = graph.add_variable(of + ".rank_grads", shape, {});
  const size_t index = graph.variables().size() - 1;
  const auto add = [&](const char* op, std::vector<ValueId> operands, Attributes attributes) {
    const ValueId result = graph.add1(op, path, std::move(operands), std::move(attributes));
    graph.node(graph.value(result).producer).phase = Phase::update;
    return result;
  };
  const FloatFormat sent = out.reduction.format.value_or(format);
  // Every part stores the sum so far, so only a rank without parts stores its gradient once.
  const bool once = !out.exchanged && parts == 1;
  Attributes attributes =
      once ? folding_attributes(out.reduction) : reduction_attributes(out.reduction);
  const ValueId stored = add("RankGradients", {stack, gradient, out.rank}, attributes);
  graph.node(graph.value(stored).producer).plan.write = sent;
  graph.value(stack).format = graph.value(stored).format = format;
  graph.variables()[index].next = stored;
  stores.push_back(stored);
  ValueId mean = kNone;
  if (out.exchanged) {
    attributes["exchanged"] = int64_t{1};
    mean = graph.add_variable(of + ".rank_mean", shape, {});
  }
  const ValueId reduced = add("RankReduction", {out.exchanged ? mean : stored, out.rank_takes_part},
                              std::move(attributes));
  graph.value(reduced).format = sent;
  out.reduced.push_back({of, stack, reduced, mean});
  return reduced;
}

ValueId add_rank_norm(Executable& out, const std::vector<ValueId>& gradients) {
  out.rank_norm =
      out.graph.add1("GradientNorm", "metrics/rank_norm", gradients, {{"finite_only", int64_t{1}}});
  out.graph.node(out.graph.value(out.rank_norm).producer).phase = Phase::backward;
  return out.rank_norm;
}

}  // namespace halfscope
