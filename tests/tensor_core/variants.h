// SPDX-License-Identifier: MIT
// The block formula once more, in doubles and with knobs for what it could have been: tests turn
// one and expect differences, so that agreement with a GPU says something. Exact for finite
// operands of the usual sizes: sums stay far below 2^53 units.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "core/numeric/formats/round.h"
#include "core/numeric/sums/tensor_core.h"

namespace halfscope::test {

struct Variant {
  int more_bits = 0;             ///< added to F
  bool half_block = false;       ///< G / 2
  bool normalised = false;       ///< products renormalised to [1, 2) before they are aligned
  bool late_c = false;           ///< c added after the block, nearest even
  bool floor_terms = false;      ///< two's complement truncation of the terms
  bool floor_output = false;     ///< the same of the result
  bool nearest_output = false;   ///< fp32 results to nearest even
  bool double_rounding = false;  ///< fp16 results through fp32
};

namespace detail {

inline int raw_exponent(double x, const FloatFormat& format) {
  return std::max(std::ilogb(x), format.min_exponent());
}

inline double round_result(double sum, BlockOutput output, const Variant& variant) {
  if (sum == 0.0) return 0.0;
  const bool fp16 = output == BlockOutput::rne_fp16;
  if (fp16 && !variant.double_rounding) return round_to_format(sum, kFp16).value;
  const int bits = output == BlockOutput::rz_e8m13 ? 13 : 23;
  const int quantum = std::max(std::ilogb(sum), -126) - bits;
  const double units = std::ldexp(sum, -quantum);
  const double kept = variant.nearest_output ? std::nearbyint(units)
                      : variant.floor_output ? std::floor(units)
                                             : std::trunc(units);
  const double result = std::ldexp(kept, quantum);
  return fp16 ? round_to_format(result, kFp16).value : result;
}

inline double block(const TensorCoreProfile& profile, std::span<const float> a,
                    std::span<const float> b, double c, const Variant& variant) {
  const FloatFormat& accumulator = profile.accumulator;
  const int fraction_bits = profile.dot.fraction_bits + variant.more_bits;
  std::vector<double> terms;
  std::vector<int> exponents;
  for (size_t k = 0; k < a.size(); ++k) {
    const double product = static_cast<double>(a[k]) * static_cast<double>(b[k]);
    if (product == 0.0) continue;
    terms.push_back(product);
    exponents.push_back(variant.normalised ? std::ilogb(product)
                                           : raw_exponent(a[k], profile.a_format) +
                                                 raw_exponent(b[k], profile.b_format));
  }
  if (c != 0.0 && !variant.late_c) {
    terms.push_back(c);
    exponents.push_back(raw_exponent(c, accumulator));
  }
  double sum = 0.0;
  if (!terms.empty()) {
    const int top = *std::max_element(exponents.begin(), exponents.end());
    for (const double term : terms) {
      const double units = std::ldexp(term, fraction_bits - top);
      sum += variant.floor_terms ? std::floor(units) : std::trunc(units);
    }
    sum = std::ldexp(sum, top - fraction_bits);
  }
  const double result = round_result(sum, profile.dot.output, variant);
  if (!variant.late_c) return result;
  return round_to_format(result + c, accumulator).value;
}

}  // namespace detail

/// A chain of blocks on the native path; a short last block stays short.
inline float variant_dot(const TensorCoreProfile& profile, std::span<const float> a,
                         std::span<const float> b, float c, const Variant& variant) {
  const size_t products = static_cast<size_t>(profile.dot.products) / (variant.half_block ? 2 : 1);
  double sum = round_to_format(c, profile.accumulator).value;
  for (size_t k = 0; k < a.size(); k += products) {
    const size_t n = std::min(products, a.size() - k);
    sum = detail::block(profile, a.subspan(k, n), b.subspan(k, n), sum, variant);
  }
  return static_cast<float>(sum);
}

}  // namespace halfscope::test
