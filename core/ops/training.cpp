// SPDX-License-Identifier: MIT
// The part of a training step after the gradients. Arithmetic is fp32 inside, each operation
// rounded to fp32; a state is rounded to its storage format before anything reads it, as where it
// is kept in memory in that format. With g' = (g * inverse_scale) * clip, negated with the
// attribute maximize, + weight_decay * w if that is not zero and not decoupled:
//
// GradientNorm(g_1, ..., g_n): sum of squares over all elements, in double; it is finite exactly if
//   every element is. Element i of a chunk of 4096 goes to partial i % 16, the partials are added
//   as a balanced tree; the sums of all chunks of all g in one row are added likewise, until one is
//   left. With the attribute finite_only: 0 if every element is finite, else infinity.
// GradientSum(sum, g, keep): keep ? sum + g : g
// RankGradients(stack, g, rank): the stack of the ranks' gradients with row `rank` replaced by g.
//   With the attribute folds, a backend may put sums of ranks into the stack instead, unless its
//   values are kept; RankReduction then adds the rest, with the same bits. The node's plan.write is
//   the format that is sent.
// RankReduction(stack, takes_part): the mean over its rows as an all-reduce makes it
//   (core/numeric/sums/reduction.h), attributes algorithm and average; what is sent and stored on
//   the way is rounded to the result's format. Rows r with takes_part[r] = 0 count as zeros.
//   With the attribute exchanged, the only row is the mean already, computed by several processes.
// Assign(x): x
// Momentum(w, g, inverse_scale, clip, v[, share[, momentum]]): momentum * v + share * g'; the share
//   is 1 without dampening, and the momentum an attribute unless it changes by step
// SgdUpdate(w, g, inverse_scale, clip, learning_rate[, v']) -> w', update
//   update = -(learning_rate * (v' or g')); w' = w + update     (torch.optim.SGD)
//   Nesterov's momentum passes momentum * v' + g' as v'.
// AdamMoments(w, g, inverse_scale, clip, m, v[, b1, 1 - b1]) -> m', v'
//   m' = b1 m + (1 - b1) g'; v' = b2 v + (1 - b2) g'^2; b1 is an attribute unless it changes by
//   step
// AdamUpdate(w, m', v', learning_rate, correction_1, correction_2) -> w', update
//   step = -(learning_rate / correction_1) * m' / (sqrt(v') / sqrt(correction_2) + eps)
//   with correction_i = 1 - b_i^t; w' = w (1 - learning_rate * decoupled_decay) + step;
//   update = step - learning_rate * decoupled_decay * w   (torch.optim.Adam, AdamW)
//   With amsgrad, v' is the largest v' so far, which a Max keeps.
// SquareAverage(w, g, inverse_scale, clip, s): alpha s + (1 - alpha) g'^2
// RmsMomentum(w, g, inverse_scale, clip, s', v[, momentum]): momentum * v + g' / (sqrt(s') + eps)
// RmsUpdate(w, g, inverse_scale, clip, learning_rate, s'[, v']) -> w', update
//   update = -learning_rate * (v' or g' / (sqrt(s') + eps)); w' = w + update
//                                                         (torch.optim.RMSprop)
//   If it is centered, s' is the average square minus the squared average, made by AdamMoments
//   with b1 = b2 = alpha, Mul and Sub.
// WeightAverage(e, w') -> e', update: a moving average of a weight, attributes decay d and lerp
//   lerp: e' = e + (1 - d) (w' - e)      else: e' = d e + (1 - d) w'
//   update = (1 - d) (w' - e). Each operation but the one that makes e' is rounded to the node's
//   write format, to nearest even; d and 1 - d are fp32 scalars.
#include "core/ops/definitions.h"
#include "core/ops/rank_reduction.h"

namespace halfscope::ops {
namespace {

std::vector<OutputType> infer_norm(const Graph&, const Node&) { return {{Shape{}}}; }

/// Returns outputs with the first input's shape, which all other inputs share except the scalars.
std::vector<OutputType> same_shapes(const Graph& graph, const Node& node, size_t least, size_t most,
                                    size_t outputs) {
  check_node(node, node.inputs.size() >= least && node.inputs.size() <= most,
             "has the wrong number of inputs");
  const Shape& shape = graph.value(node.inputs[0]).shape;
  for (ValueId input : node.inputs) {
    check_node(node, graph.value(input).shape == shape || graph.value(input).shape.empty(),
               "variable, gradient and state differ in shape");
  }
  return std::vector<OutputType>(outputs, OutputType{shape});
}

template <size_t kLeast, size_t kMost, size_t kOutputs>
std::vector<OutputType> infer_same(const Graph& graph, const Node& node) {
  return same_shapes(graph, node, kLeast, kMost, kOutputs);
}

std::vector<OutputType> infer_rank_gradients(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 3, "has the wrong number of inputs");
  const Shape& stack = graph.value(node.inputs[0]).shape;
  const Shape& gradient = graph.value(node.inputs[1]).shape;
  check_node(node, !stack.empty() && Shape(stack.begin() + 1, stack.end()) == gradient,
             "the stack has no row for the gradient");
  return {{stack}};
}

std::vector<OutputType> infer_rank_reduction(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 2, "has the wrong number of inputs");
  const Shape& stack = graph.value(node.inputs[0]).shape;
  check_node(node, !stack.empty() && graph.value(node.inputs[1]).shape == Shape{stack[0]},
             "needs one flag per rank");
  return {{Shape(stack.begin() + 1, stack.end())}};
}

OpDef update_def(const char* name, std::vector<OutputType> (*infer)(const Graph&, const Node&),
                 bool rounds_itself = false) {
  return {.name = name,
          .domain = "halfscope",
          .infer = infer,
          .autocast = Autocast::internal,
          .rounds_itself = rounds_itself};
}

}  // namespace

const std::vector<OpDef>& training() {
  static const std::vector<OpDef> defs{
      {.name = "GradientNorm",
       .domain = "halfscope",
       .infer = infer_norm,
       .autocast = Autocast::internal,
       .stored_inputs_from = 0},
      update_def("GradientSum", infer_same<3, 3, 1>),
      {.name = "RankGradients",
       .domain = "halfscope",
       .infer = infer_rank_gradients,
       .autocast = Autocast::internal,
       .rounds_itself = true,
       .stored_inputs_from = 0},
      {.name = "RankReduction",
       .domain = "halfscope",
       .infer = infer_rank_reduction,
       .autocast = Autocast::internal,
       .stored_inputs_from = 0},
      {.name = "Assign",
       .domain = "halfscope",
       .infer = infer_same<1, 1, 1>,
       .autocast = Autocast::internal,
       .selects = true},
      update_def("Momentum", infer_same<5, 7, 1>),
      update_def("SgdUpdate", infer_same<5, 6, 2>, true),
      update_def("AdamMoments", infer_same<6, 8, 2>),
      update_def("AdamUpdate", infer_same<6, 6, 2>, true),
      update_def("SquareAverage", infer_same<5, 5, 1>),
      update_def("RmsMomentum", infer_same<6, 7, 1>),
      update_def("RmsUpdate", infer_same<6, 7, 2>, true),
      update_def("WeightAverage", infer_same<2, 2, 2>, true),
  };
  return defs;
}

}  // namespace halfscope::ops

namespace halfscope {

Attributes reduction_attributes(const Reduction& reduction) {
  return {{"algorithm", static_cast<int64_t>(reduction.algorithm)},
          {"average", static_cast<int64_t>(reduction.average)}};
}

Reduction reduction_of(const Node& node) {
  Reduction reduction;
  reduction.algorithm = static_cast<Reduction::Algorithm>(int_attribute(node, "algorithm", 0));
  reduction.average = static_cast<Reduction::Average>(int_attribute(node, "average", 0));
  return reduction;
}

Attributes folding_attributes(const Reduction& reduction) {
  Attributes attributes = reduction_attributes(reduction);
  const bool in_order = reduction.algorithm == Reduction::Algorithm::ring ||
                        reduction.algorithm == Reduction::Algorithm::all_to_all;
  attributes["folds"] = int64_t{in_order && reduction.vote == Reduction::Vote::all ? 1 : 0};
  return attributes;
}

bool may_fold(const Node& node) { return int_attribute(node, "folds", 0) != 0; }

bool is_exchanged(const Node& node) { return int_attribute(node, "exchanged", 0) != 0; }

}  // namespace halfscope
