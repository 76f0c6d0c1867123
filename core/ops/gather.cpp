// SPDX-License-Identifier: MIT
// Gather(x, indices): slices of x along `axis`, and GatherElements(x, indices): single elements
// along `axis`, as in ONNX, for reals or indices; a negative index counts from the end. Their
// gradients (ours, with attribute `shape`) are sums: elements that were read several times are
// added in ascending order of the positions in `indices`. Imported networks use them to scatter, so
// they have gradients of their own, which read the added elements again.
//
// With attribute labels = 1 (ours), GatherElements reads one index [n] for each row of x [n, c]. A
// negative one means "ignore this row": it reads 0, and its gradient row is 0.
#include "core/ops/definitions.h"
#include "core/ops/samples.h"

namespace halfscope {

bool takes_labels(const Node& node) { return int_attribute(node, "labels", 0) != 0; }

namespace ops {
namespace {

void check_operands(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 2, "needs two inputs");
  check_index(graph, node, 1);
}

std::vector<OutputType> infer_gather(const Graph& graph, const Node& node) {
  check_operands(graph, node);
  const Shape& x = graph.value(node.inputs[0]).shape;
  const Shape& indices = graph.value(node.inputs[1]).shape;
  const int64_t axis = axis_attribute(node, x.size(), 0);
  Shape shape(x.begin(), x.begin() + axis);
  shape.insert(shape.end(), indices.begin(), indices.end());
  shape.insert(shape.end(), x.begin() + axis + 1, x.end());
  return {{shape, graph.value(node.inputs[0]).type}};
}

std::vector<OutputType> infer_elements(const Graph& graph, const Node& node) {
  check_operands(graph, node);
  const Shape& x = graph.value(node.inputs[0]).shape;
  const Shape& indices = graph.value(node.inputs[1]).shape;
  if (takes_labels(node)) {
    check_node(node, x.size() == 2 && indices == Shape{x[0]},
               "needs x [n, c] and one index per row");
    check_real(graph, node, 0);
    return {{Shape{x[0], 1}}};
  }
  const size_t axis = static_cast<size_t>(axis_attribute(node, x.size(), 0));
  check_node(node, indices.size() == x.size(), "indices need as many dimensions as x");
  for (size_t i = 0; i < x.size(); ++i) {
    check_node(node, i == axis || indices[i] <= x[i],
               "indices " + to_string(indices) + " exceed " + to_string(x));
  }
  return {{indices, graph.value(node.inputs[0]).type}};
}

std::vector<OutputType> infer_grad(const Graph& graph, const Node& node) {
  check_operands(graph, node);
  check_real(graph, node, 0);
  return {{ints_attribute(node, "shape")}};
}

Attributes with_shape(GradientContext& c) {
  Attributes attributes = c.node().attributes;
  attributes["shape"] = c.input_shape(0);
  return attributes;
}

std::vector<ValueId> gather_gradient(GradientContext& c) {
  return {c.add("GatherGrad", {c.output_gradient(0), c.input(1)}, with_shape(c)), kNone};
}

std::vector<ValueId> elements_gradient(GradientContext& c) {
  return {c.add("GatherElementsGrad", {c.output_gradient(0), c.input(1)}, with_shape(c)), kNone};
}

/// Reads an axis again: Gather or GatherElements.
template <bool Elements>
std::vector<ValueId> sums_gradient(GradientContext& c) {
  const Attributes axis{{"axis", int_attribute(c.node(), "axis", 0)}};
  const char* op = Elements ? "GatherElements" : "Gather";
  return {c.add(op, {c.output_gradient(0), c.input(1)}, axis), kNone};
}

/// Every sample selects rows of a table, or the same rows are selected from every sample.
SampleResult gather_keeps_samples(const SampleNode& n) {
  const size_t axis = n.axis(n.rank(0), 0), indices = n.rank(1);
  if (n.place(0) && n.place(1))
    return samples::mixes("it picks from each sample for the others, too");
  if (n.place(1)) return samples::at(SamplePlace{axis + n.place(1)->axis, n.place(1)->before});
  SamplePlace place = n.place(0).value();
  if (place.axis == axis) return samples::mixes("it picks samples");
  if (place.axis > axis) place.axis += indices - 1;
  return samples::at(place);
}

/// Every sample's indices select from that sample; data or indices shared by all samples are
/// copied.
SampleResult elements_keep_samples(const SampleNode& n) {
  const auto x = n.place(0), indices = n.place(1);
  const SamplePlace place = x ? *x : indices.value();
  if (takes_labels(n.node()) || (x && indices && x != indices) ||
      n.shape(0)[place.axis] != n.shape(1)[place.axis])
    return samples::unfit("its operands have the samples in different places");
  if (n.axis(n.rank(0), 0) == place.axis) return samples::mixes("it picks samples");
  SampleResult result = samples::at(place);
  if (!x || !indices) result.copies.push_back({x ? size_t{1} : size_t{0}, place});
  return result;
}

}  // namespace

const std::vector<OpDef>& gather() {
  static const std::vector<OpDef> defs{
      {.name = "Gather",
       .domain = "",
       .infer = infer_gather,
       .gradient = gather_gradient,
       .autocast = Autocast::follow,
       .onnx = {.written = true, .attributes = {{"axis"}}},
       .keeps_samples = gather_keeps_samples,
       .selects = true,
       .moves = {0, 1},
       .picks = Picks::rows},
      {.name = "GatherGrad",
       .domain = "halfscope",
       .infer = infer_grad,
       .gradient = sums_gradient<false>,
       .autocast = Autocast::promote,
       .picks = Picks::rows_of_result},
      {.name = "GatherElements",
       .domain = "",
       .infer = infer_elements,
       .gradient = elements_gradient,
       .autocast = Autocast::follow,
       .keeps_samples = elements_keep_samples,
       .selects = true,
       .moves = {0, 1},
       .picks = Picks::rows},
      {.name = "GatherElementsGrad",
       .domain = "halfscope",
       .infer = infer_grad,
       .gradient = sums_gradient<true>,
       .autocast = Autocast::promote,
       .picks = Picks::rows_of_result},
  };
  return defs;
}

}  // namespace ops
}  // namespace halfscope
