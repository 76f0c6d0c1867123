// SPDX-License-Identifier: MIT
#include "core/backend/overflow_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace halfscope {
namespace {

/// Partial sums in fp32 may exceed the bound by their rounding errors.
constexpr double kSafe = 0.99 * static_cast<double>(std::numeric_limits<float>::max());

const std::vector<ValueId>& gradients_of(const Executable& executable) {
  const Graph& graph = executable.graph;
  return graph.node(graph.value(executable.gradient_norm).producer).inputs;
}

/// Returns the number of elements of the largest gradient.
double largest_count(const Executable& executable) {
  int64_t most = 1;
  for (const ValueId gradient : gradients_of(executable)) {
    most = std::max(most, element_count(executable.graph.value(gradient).shape));
  }
  return static_cast<double>(most);
}

bool sum_is_finite(const std::vector<float>& gradient) {
  float sum = 0.0f;
  for (const float g : gradient) sum += g;
  return std::isfinite(sum);
}

bool product_is_finite(const std::vector<float>& gradient, float factor) {
  return std::all_of(gradient.begin(), gradient.end(),
                     [&](float g) { return std::isfinite(g * factor); });
}

}  // namespace

bool finds_finite(const LossScalerConfig& config, const LossScalerState& state,
                  const Executable& executable, const Program& program, double sum_sq) {
  if (!std::isfinite(sum_sq)) return false;
  if (!needs_gradients(config)) return true;
  const float factor = unscale_factor(config, state);
  const double norm = std::sqrt(sum_sq);
  const double bound = config.sums ? norm * std::sqrt(largest_count(executable))  // Cauchy, Schwarz
                                   : norm * static_cast<double>(factor);
  if (bound < kSafe) return true;
  const std::vector<ValueId>& gradients = gradients_of(executable);
  return std::all_of(gradients.begin(), gradients.end(), [&](ValueId gradient) {
    const std::vector<float> values = program.read(gradient).data;
    return config.sums ? sum_is_finite(values) : product_is_finite(values, factor);
  });
}

bool can_differ(const LossScalerConfig& config, const Executable& executable) {
  if (!needs_gradients(config)) return false;
  if (!config.sums) return true;
  const Graph& graph = executable.graph;
  const std::vector<ValueId>& gradients = gradients_of(executable);
  return std::any_of(gradients.begin(), gradients.end(), [&](ValueId gradient) {
    const Value& value = graph.value(gradient);
    return static_cast<double>(element_count(value.shape)) * value.format.max_finite() >= kSafe;
  });
}

}  // namespace halfscope
