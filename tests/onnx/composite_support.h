// SPDX-License-Identifier: MIT
// Helpers for the tests of composites: the operators that a file was imported as, and its weight
// gradients.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/models/loss.h"
#include "core/policy/policy.h"
#include "tests/onnx/network_support.h"

namespace halfscope::test {

/// "attend Attention" of every node.
inline std::vector<std::string> node_list(const Model& model) {
  std::vector<std::string> result;
  for (const Node& node : model.graph.nodes()) result.push_back(node.path + " " + node.op);
  return result;
}

inline Plan float_plan(bool stagewise) {
  Plan plan = preset_plan("float32").value();
  plan.defaults.stagewise = stagewise;
  return plan;
}

/// The mean squared distance of output y from input `targets`, as "loss", and the gradients of all
/// weights by their names in the file.
inline std::map<std::string, Tensor> weight_gradients(
    Model model, const std::map<std::string, std::vector<float>>& inputs, const Plan& plan) {
  std::map<std::string, std::string> aliases;
  for (const Variable& variable : model.graph.variables()) aliases[variable.path] = variable.alias;
  add_loss(model, parse_loss("mse:y"));
  const Executable exe = lower(model, plan, {});
  const auto program = emulation_backend().compile(exe);
  write_weights(*program, exe.graph, starting_weights(model, 1, {}), {});
  for (const NamedValue& input : exe.inputs)
    program->write(input.value, std::span<const float>(inputs.at(input.name)));
  program->write_scalar(exe.loss_scale, 1.0);
  program->run(Entry::grad, {});
  std::map<std::string, Tensor> result{{"loss", program->read(exe.loss)}};
  for (const Tap& tap : exe.taps) {
    if (tap.site.role != Role::weight_grad) continue;
    for (const auto& [path, alias] : aliases) {
      if (tap.site.name().starts_with(path)) result[alias] = program->read(tap.value);
    }
  }
  return result;
}

}  // namespace halfscope::test
