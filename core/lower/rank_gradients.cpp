// SPDX-License-Identifier: MIT
#include "core/lower/rank_gradients.h"

#include "core/ops/rank_reduction.h"

namespace halfscope {

RankSum add_rank_sum(Graph& graph, size_t variable, ValueId gradient, const RankInputs& inputs,
                     int64_t ranks, const Reduction& how) {
  const std::string of = graph.variables()[variable].path;
  const std::string path = of.substr(0, of.rfind('.'));
  const FloatFormat format = graph.value(gradient).format;
  Shape shape = graph.value(gradient).shape;
  shape.insert(shape.begin(), ranks);
  RankSum sum;
  sum.stack = graph.add_variable(of + ".rank_grads", shape, {});
  const size_t index = graph.variables().size() - 1;
  const auto add = [&](const char* op, std::vector<ValueId> operands, Attributes attributes) {
    const ValueId result = graph.add1(op, path, std::move(operands), std::move(attributes));
    graph.node(graph.value(result).producer).phase = Phase::update;
    return result;
  };
  sum.stored = add("RankGradients", {sum.stack, gradient, inputs.rank}, {});
  graph.value(sum.stack).format = graph.value(sum.stored).format = format;
  graph.variables()[index].next = sum.stored;
  sum.reduced = add("RankReduction", {sum.stored, inputs.takes_part}, reduction_attributes(how));
  graph.value(sum.reduced).format = how.format.value_or(format);
  return sum;
}

}  // namespace halfscope
