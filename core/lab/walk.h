// SPDX-License-Identifier: MIT
// Arithmetic step by step: every step as a sentence and a few binary numbers below each other,
// with the bits that are lost. The results equal those of core/numeric/sums and
// core/numeric/formats.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/lab/exact_bits.h"
#include "core/numeric/formats/float_format.h"
#include "core/numeric/sums/accumulation.h"

namespace halfscope::lab {

struct BitRow {
  static constexpr int kNoCut = std::numeric_limits<int>::min();
  std::string name{};   ///< "a \u00d7 b"
  std::string value{};  ///< as a decimal
  ExactBits bits{};
  int cut = kNoCut;     ///< bits below 2^cut are lost
  bool result = false;  ///< what the step computes
};
struct WalkStep {
  std::string title{}, text{};
  std::vector<BitRow> rows{};
};
struct Walk {
  std::vector<WalkStep> steps{};
  std::string problem{};  ///< why there are no steps
  float result = 0.0f;    ///< of the last step; of fma_walk, of the fused operation
  float separate = 0.0f;  ///< of fma_walk: with two roundings
  double exact = 0.0;     ///< the exact result for the rounded operands, as a double
};

/// a * b + c in the format: with one rounding, and as a multiplication and an addition.
Walk fma_walk(const FloatFormat& format, float a, float b, float c);

/// One block of a tensor core: as many products as its step has, or fewer. `arch` is a name of
/// tensor_core_archs(). c is rounded to fp32.
Walk tensor_core_walk(std::string_view arch, const FloatFormat& input, std::span<const float> a,
                      std::span<const float> b, float c);

/// A dot product, one term per step: the sum of the first k products under this accumulation, with
/// operands rounded to spec.read.
Walk dot_walk(const SumSpec& spec, std::span<const double> a, std::span<const double> b);
inline constexpr size_t kMostDotTerms = 64;

}  // namespace halfscope::lab
