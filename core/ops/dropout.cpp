// SPDX-License-Identifier: MIT
// Dropout(x): in training, x * m with m = 0 for the share `ratio` of all elements and
// 1 / (1 - ratio) for the others, as PyTorch and Keras compute it (0 * infinity is NaN there, too);
// in inference x. DropoutGrad(dy): dy * m with the same m. The draws of one layer depend on its
// path, the seed and the step, so all lanes drop the same elements. No mask is stored.
#include "core/ops/dropout.h"

#include "core/ops/definitions.h"
#include "core/ops/samples.h"

namespace halfscope {

bool drops_elements(const Node& node) {
  const bool drops = node.op == "Dropout" || node.op == "DropoutGrad";
  return drops && int_attribute(node, "training_mode", 0) != 0;
}

DropoutDraw dropout_of(const Node& node, uint64_t seed, uint64_t step) {
  DropoutDraw draw;
  if (!drops_elements(node)) return draw;
  const double ratio = real_attribute(node, "ratio", 0.5);
  uint64_t site = 0;
  for (const char c : node.path) site = splitmix64(site ^ static_cast<unsigned char>(c));
  draw.key = random_key(seed, step, site);
  draw.dropped = static_cast<uint64_t>(ratio * 0x1p32 + 0.5);
  draw.scale = ratio < 1.0 ? 1.0 / (1.0 - ratio) : 0.0;
  return draw;
}

int64_t switch_dropout_off(Graph& graph) {
  constexpr const char* kMode = "training_mode";
  int64_t count = 0;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    Node& node = graph.node(static_cast<NodeId>(i));
    const bool has_it = node.op == "Dropout" || node.attributes.contains("dropout");
    if (!has_it || int_attribute(node, kMode, 0) == 0) continue;
    node.attributes[kMode] = int64_t{0};
    const double ratio = real_attribute(node, node.op == "Dropout" ? "ratio" : "dropout", 0.5);
    count += ratio > 0.0 ? 1 : 0;
  }
  return count;
}

namespace ops {
namespace {

std::vector<OutputType> infer(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  const double ratio = real_attribute(node, "ratio", 0.5);
  check_node(node, ratio >= 0.0 && ratio <= 1.0, "ratio must be from 0 to 1");
  return {{graph.value(node.inputs[0]).shape}};
}

std::vector<ValueId> gradient(GradientContext& c) {
  const Attributes attributes = c.node().attributes;
  return {c.add("DropoutGrad", {c.output_gradient(0)}, attributes)};
}

}  // namespace

const std::vector<OpDef>& dropout() {
  static const std::vector<OpDef> defs{
      {.name = "Dropout",
       .domain = "",
       .infer = infer,
       .gradient = gradient,
       .autocast = Autocast::follow,
       .keeps_samples = samples::alone},
      {.name = "DropoutGrad",
       .domain = "halfscope",
       .infer = infer,
       .autocast = Autocast::internal},
  };
  return defs;
}

}  // namespace ops
}  // namespace halfscope
