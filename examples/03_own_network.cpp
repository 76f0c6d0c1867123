// SPDX-License-Identifier: MIT
// Builds your own network as a graph and lowers it under a plan. Prints the format and shape of
// every recorded tensor, gradients included, without training.
#include <cstdio>

#include "halfscope/core/lower/lower.h"
#include "halfscope/core/policy/policy.h"

int main() {
  using namespace halfscope;
  Model model;
  model.name = "tiny";
  Graph& graph = model.graph;
  model.input = graph.add_input("input", {8, 20});
  model.labels = graph.add_input("labels", {8}, ElementType::index);
  const ValueId w1 = graph.add_variable("hidden.weight", {16, 20}, {0.2});
  const ValueId b1 = graph.add_variable("hidden.bias", {16}, {0.2});
  const ValueId w2 = graph.add_variable("head.weight", {4, 16}, {0.25});
  const Attributes transposed{{"transB", int64_t{1}}};
  const ValueId hidden = graph.add1("Gemm", "hidden", {model.input, w1, b1}, transposed);
  const ValueId positive = graph.add1("Relu", "positive", {hidden});
  model.logits = graph.add1("Gemm", "head", {positive, w2}, transposed);
  model.loss = graph.add1("SoftmaxCrossEntropyLoss", "loss", {model.logits, model.labels});

  Plan plan = *preset_plan("mixed_float16");
  keep_fp32(plan, "head");
  const Executable executable = lower(model, plan, {});
  for (const Tap& tap : executable.taps) {
    std::printf("%-24s %-10s %s\n", tap.site.name().c_str(), format_name(tap.site.format).c_str(),
                to_string(tap.site.shape).c_str());
  }
}
