// SPDX-License-Identifier: MIT
// Lens: a format, and a way of scaling, through which recorded histograms are counted again: "would
// this network fit into fp8?" Like what_if() it estimates: histograms know values up to a factor of
// two, and the training would have had other values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/what_if.h"
#include "core/numeric/formats/float_format.h"

namespace halfscope {

enum class LensScale : uint8_t {
  none,    ///< values as they are; gradients with their loss scale
  tensor,  ///< a power of two for each tensor, which brings its largest value to the top
  block,   ///< a power of two for each block of neighbouring elements
};

/// The default lens counts what was recorded: each tensor in its own format.
struct Lens {
  std::optional<FloatFormat> format{};  ///< empty: each tensor's own
  LensScale scale = LensScale::none;
  int block_size = 0;  ///< elements that share a scale; only with LensScale::block

  friend bool operator==(const Lens&, const Lens&) = default;
};

/// Parses a format or a block format ("fp16", "e5m3", "mxfp8_e4m3", "nvfp4"); "mxfp8" is
/// mxfp8_e4m3, and "FORMAT/tensor" scales every tensor. Returns nothing for anything else; "" is
/// the default lens.
std::optional<Lens> parse_lens(std::string_view text);

/// A smaller share of lost values gets no number in pictures.
inline constexpr double kShownLoss = 0.0005;

/// Values that rounding would lose: finite ones that are not zero and become zero, infinite, NaN or
/// the largest number.
struct LossCount {
  int64_t values = 0;            ///< finite and not zero
  double low = 0.0, high = 0.0;  ///< bounds on the number of lost values
  double overflow = 0.0;         ///< part of `high` that overflows
  bool estimate = false;         ///< not counted by the run itself

  double share_low() const noexcept { return share(low); }
  double share_high() const noexcept { return share(high); }
  /// Returns the middle of the bounds as a share.
  double share() const noexcept { return share((low + high) / 2.0); }
  void add(const LossCount& other) noexcept;

 private:
  double share(double part) const noexcept {
    return values > 0 ? part / static_cast<double>(values) : 0.0;
  }
};

/// Returns the power of two that the lens multiplies a tensor with: 0 unless it scales tensors. A
/// block's scale differs from block to block; the tensor's stands for it in pictures.
int lens_shift(const TensorStats& stats, const FloatFormat& own, const Lens& lens) noexcept;

/// Counts what a tensor loses through the lens. `own` is its recorded format; `shift` is log2 of
/// the factor on its values, such as another loss scale (ignored if the lens scales tensors).
/// Blocks: the values of a tensor are assumed to lie in random places. An element e is lost if the
/// largest of its block exceeds it by more than the format's range, which for blocks of B elements
/// has the probability 1 - F^(B-1), with F the share of elements that do not.
LossCount lens_loss(const TensorStats& stats, const FloatFormat& own, const Lens& lens,
                    double shift) noexcept;

/// Edges of a format's range as powers of two: zero below `flush`, subnormal below `normal`, lost
/// from `overflow` on.
struct ExponentWindow {
  double flush = 0.0, normal = 0.0, overflow = 0.0;
  friend bool operator==(const ExponentWindow&, const ExponentWindow&) = default;
};
/// Returns the window of a format. Integers have no subnormal numbers.
ExponentWindow exponent_window(const FloatFormat& format) noexcept;

}  // namespace halfscope
