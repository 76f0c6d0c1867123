// SPDX-License-Identifier: MIT
#include "core/lab/puzzle_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/number_text.h"

namespace halfscope::lab {

std::string number_text(const PuzzleNumber& number, double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "infinity" : "-infinity";
  switch (number.of) {
    case PuzzleNumber::Of::error:
      return fmt::format("{:.3g}%", 100.0 * value);
    case PuzzleNumber::Of::moved:
    case PuzzleNumber::Of::distinct:
    case PuzzleNumber::Of::finite:
      return grouped(static_cast<int64_t>(value));
    default:
      return fmt::format("{:.4g}", value);
  }
}

std::string error_text(const zoo::Truth& truth) {
  if (truth.non_finite > 0) return grouped(truth.non_finite) + " not finite";
  return fmt::format("{:.3g}%", 100.0 * truth.error);
}

std::string score_text(int64_t bits, int64_t par) {
  const std::string spent = grouped(bits) + (bits == 1 ? " bit" : " bits");
  if (bits <= par) return fmt::format("at par ({})", spent);
  if (par <= 0) return fmt::format("{}; par is {}", spent, grouped(par));
  return fmt::format("{:.3g} times par ({})", static_cast<double>(bits) / static_cast<double>(par),
                     spent);
}

std::string verdict_of_bits(int64_t bits, int64_t par) {
  if (bits <= par)
    return fmt::format("This is the cheapest answer: {} extra bits (par).", grouped(bits));
  return fmt::format("It costs {} extra bits; par is {}, so a cheaper answer exists.",
                     grouped(bits), grouped(par));
}

std::string why_not(const PuzzleAnswer& answer) {
  const zoo::Truth& truth = answer.truth;
  if (!answer.refused.empty()) return "These choices cannot be combined: " + answer.refused + ".";
  if (truth.non_finite > 0) {
    return fmt::format("{} {} still not finite.", grouped(truth.non_finite),
                       truth.non_finite == 1 ? "result is" : "results are");
  }
  if (truth.harm == zoo::Harm::unclear && truth.moved > 0.5) {
    return "The weights still change differently than in double.";
  }
  return fmt::format("The result is still {:.3g}% off.", 100.0 * truth.error);
}

std::string network_text(const Puzzle& puzzle) {
  const zoo::Setup setup = puzzle.which.make();
  const Graph& graph = setup.model.graph;
  const auto name_of = [&](ValueId id) -> std::string {
    for (const Input& each : graph.inputs()) {
      if (each.value == id) return each.name;
    }
    if (const Variable* variable = graph.variable_of(id)) return variable->path;
    const Value& value = graph.value(id);
    return value.producer == kNone ? "constant" : graph.node(value.producer).path;
  };
  const auto shape_text = [](const Shape& shape) {
    std::string text;
    for (const int64_t each : shape) text += fmt::format("{}{}", text.empty() ? "" : ", ", each);
    return "[" + text + "]";
  };
  std::vector<std::pair<std::string, std::string>> rows;
  size_t longest = 0;
  for (const Node& node : graph.nodes()) {
    std::string call = node.op + "(";
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      call += (i > 0 ? ", " : "") + (node.inputs[i] == kNone ? "-" : name_of(node.inputs[i]));
    }
    longest = std::max(longest, node.path.size());
    rows.emplace_back(node.path, call + ")  " + shape_text(graph.value(node.outputs[0]).shape));
  }
  std::string text;
  for (const auto& [path, call] : rows) text += fmt::format("{:<{}}  {}\n", path, longest, call);
  return text;
}

}  // namespace halfscope::lab
