// SPDX-License-Identifier: MIT
// Moving averages of the weights (EMA): state next to the optimizer's, updated in every step that
// is not skipped (core/ops/training.cpp has the formulas). The plan decides their formats.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/graph/graph.h"

namespace halfscope {

struct WeightAverage {
  enum class Form : uint8_t {
    lerp,     ///< e + (1 - decay) (w - e)
    average,  ///< decay e + (1 - decay) w
  };
  double decay = 0.999;  ///< above 0, below 1
  Form form = Form::lerp;
  /// Formats for lanes whose plans have none for averages; see Plan.
  std::optional<FloatFormat> format = std::nullopt, compute = std::nullopt;

  friend bool operator==(const WeightAverage&, const WeightAverage&) = default;
};

/// Parses "0.999", with options after a colon: "0.9999:form=average,format=bf16,compute=bf16".
/// Throws Error (usage).
WeightAverage parse_weight_average(std::string_view text);
/// Returns the text that parse_weight_average reads.
std::string weight_average_text(const WeightAverage& average);

/// Returns the path of the variable that stores a variable's average: "fc1.weight.ema".
std::string average_path(const std::string& variable);

struct AverageValues {
  ValueId average = kNone;  ///< the variable that stores it
  ValueId next = kNone;     ///< its new value
  ValueId update = kNone;   ///< the amount that was to be added to it
};

/// Adds the average of graph.variables()[variable], whose `next` is set. It is stored in `format`;
/// every operation on the way is rounded to `compute`.
AverageValues add_weight_average(Graph& graph, size_t variable, const WeightAverage& average,
                                 const FloatFormat& format, const FloatFormat& compute);

}  // namespace halfscope
