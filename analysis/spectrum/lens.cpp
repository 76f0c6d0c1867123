// SPDX-License-Identifier: MIT
#include "analysis/spectrum/lens.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/numeric/scaling/block_format.h"
#include "core/numeric/statistics/rates.h"

namespace halfscope {
namespace {

int exponent_of(double magnitude) noexcept {
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  return exponent - 1;
}

/// Returns the expected number of elements that are lost in blocks with a scale of their own.
double lost_in_blocks(const TensorStats& stats, const FloatFormat& format, int block_size) {
  const int flush = exponent_of(range_limits(format).flush);
  const int range = format.max_exponent() - flush;  // of a kept element below the block's largest
  const double finite = static_cast<double>(stats.n - stats.non_finite());
  // Share of elements up to each exponent; zeros are below all.
  std::array<double, kExponentBins> up_to{};
  double sum = static_cast<double>(stats.zero);
  for (size_t bin = 0; bin < stats.exponents.size(); ++bin) {
    sum += static_cast<double>(stats.exponents[bin]);
    up_to[bin] = sum / finite;
  }
  double lost = 0.0;
  for (size_t bin = 0; bin < stats.exponents.size(); ++bin) {
    if (stats.exponents[bin] == 0) continue;
    const size_t edge = bin + static_cast<size_t>(std::max(range, 0));
    if (edge >= up_to.size()) break;
    const double kept = std::pow(up_to[edge], block_size - 1);
    lost += static_cast<double>(stats.exponents[bin]) * (1.0 - kept);
  }
  return lost;
}

}  // namespace

std::optional<Lens> parse_lens(std::string_view text) {
  Lens lens;
  if (text.empty()) return lens;
  constexpr std::string_view kTensor = "/tensor";
  if (text.ends_with(kTensor)) {
    text.remove_suffix(kTensor.size());
    lens.scale = LensScale::tensor;
  }
  lens.format = parse_format(text);
  if (lens.format) return lens;
  const std::optional<BlockFormat> block =
      parse_block_format(text == "mxfp8" ? "mxfp8_e4m3" : text);
  if (!block || lens.scale == LensScale::tensor) return std::nullopt;
  lens.format = block->element;
  lens.scale = LensScale::block;
  lens.block_size = block->block_size;
  return lens;
}

void LossCount::add(const LossCount& other) noexcept {
  values += other.values;
  low += other.low;
  high += other.high;
  overflow += other.overflow;
  estimate = estimate || other.estimate;
}

int lens_shift(const TensorStats& stats, const FloatFormat& own, const Lens& lens) noexcept {
  if (lens.scale == LensScale::none || !(stats.max_abs > 0.0f)) return 0;
  const FloatFormat& format = lens.format ? *lens.format : own;
  const double largest = static_cast<double>(stats.max_abs);
  int shift = format.max_exponent() - exponent_of(largest);
  // The largest value must not overflow.
  if (std::ldexp(largest, shift) > format.max_finite()) --shift;
  return shift;
}

LossCount lens_loss(const TensorStats& stats, const FloatFormat& own, const Lens& lens,
                    double shift) noexcept {
  const FloatFormat& format = lens.format ? *lens.format : own;
  LossCount count{.values = non_zero_values(stats)};
  if (lens.scale == LensScale::block) {
    count.estimate = true;
    count.low = count.high = lost_in_blocks(stats, format, lens.block_size);
    return count;
  }
  const double factor = lens.scale == LensScale::tensor ? lens_shift(stats, own, lens) : shift;
  const WhatIf answer = what_if(stats, own, format, factor);
  count.low = static_cast<double>(answer.overflow.low + answer.underflow.low);
  count.high = static_cast<double>(answer.overflow.high + answer.underflow.high);
  count.overflow = static_cast<double>(answer.overflow.high);
  count.estimate = !answer.recorded;
  return count;
}

ExponentWindow exponent_window(const FloatFormat& format) noexcept {
  const RangeLimits limits = range_limits(format);
  const double flush = std::log2(limits.flush);
  return {.flush = flush,
          .normal = format.evenly_spaced() ? flush : std::log2(format.min_normal()),
          .overflow = std::log2(limits.overflow)};
}

}  // namespace halfscope
