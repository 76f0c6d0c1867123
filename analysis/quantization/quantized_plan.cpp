// SPDX-License-Identifier: MIT
#include "analysis/quantization/quantized_plan.h"

#include <fmt/format.h>

namespace halfscope {
namespace {

TensorScale scale_of(const ProductRanges& product, size_t operand, const QuantizationSpec& spec) {
  if (product.known[operand] && spec.by_channel) return {.kind = TensorScale::Kind::channel};
  return {.kind = TensorScale::Kind::divided,
          .factor = static_scale(range_of(product, operand, spec), spec.format)};
}

/// "activations up to 2.9 (of 4.1 seen)"
std::string reason(const ProductRanges& product, const QuantizationSpec& spec) {
  constexpr const char* kOperands[] = {"first operand", "second operand"};
  const bool several = !product.known[0] && !product.known[1];
  std::string text;
  for (size_t i = 0; i < 2; ++i) {
    if (product.known[i]) continue;
    const float range = range_of(product, i, spec), seen = product.seen[i].largest();
    text += fmt::format("{}{} up to {:.3g}", text.empty() ? "" : ", ",
                        several ? kOperands[i] : "activations", range);
    if (range < seen) text += fmt::format(" (of {:.3g} seen)", seen);
  }
  return text;
}

}  // namespace

float range_of(const ProductRanges& product, size_t operand, const QuantizationSpec& spec) {
  const MagnitudeHistogram& seen = product.seen[operand];
  return product.known[operand] ? seen.largest() : chosen_range(seen, spec.method, spec.format);
}

Plan quantized_plan(const QuantizationSpec& spec, std::span<const ProductRanges> products,
                    const std::set<ProductKey>& kept) {
  Plan plan = spec.base;
  plan.name = format_name(spec.format) + "-" + range_method_name(spec.method);
  for (const ProductRanges& product : products) {
    if (kept.contains(key_of(product))) continue;
    PlanRule rule{.path = exact_glob(product.path), .op = product.op, .read = spec.format};
    rule.scale = scale_of(product, 0, spec);
    const TensorScale second = scale_of(product, 1, spec);
    if (second != *rule.scale) rule.second_scale = second;
    if (spec.format.evenly_spaced()) rule.accumulation = Accumulation::fp64;
    rule.why = reason(product, spec);
    plan.rules.push_back(std::move(rule));
  }
  return plan;
}

}  // namespace halfscope
