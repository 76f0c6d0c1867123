// SPDX-License-Identifier: MIT
// From measured ranges to a plan in which products read codes with static scales.
#pragma once

#include <set>
#include <span>
#include <string>
#include <utility>

#include "analysis/quantization/product_ranges.h"
#include "core/plan/plan.h"

namespace halfscope {

struct QuantizationSpec {
  FloatFormat format = kInt8Format;
  RangeMethod method{};  ///< of the ranges of activations; weights keep their largest magnitude
  /// Known operands have a scale for each output channel; else one for the whole tensor.
  bool by_channel = true;
  Plan base{};  ///< for everything that is not quantized
};

/// Path and operator of a product.
using ProductKey = std::pair<std::string, std::string>;
inline ProductKey key_of(const ProductRanges& product) { return {product.path, product.op}; }

/// Returns the range of an operand.
float range_of(const ProductRanges& product, size_t operand, const QuantizationSpec& spec);

/// Returns the base plan with a rule for each product that is not in `kept`. Integers are summed in
/// double, because integer units sum them exactly.
Plan quantized_plan(const QuantizationSpec& spec, std::span<const ProductRanges> products,
                    const std::set<ProductKey>& kept);

}  // namespace halfscope
