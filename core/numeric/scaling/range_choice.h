// SPDX-License-Identifier: MIT
// Calibration of static scales: from the magnitudes that a tensor had, which of them the format's
// largest value stands for. Larger ones are clipped; the smaller this range, the finer the steps.
//
//   max            the largest: nothing is clipped
//   percentile:P   P percent of all magnitudes are no larger
//   mse            the one with the least mean squared error
//   entropy        the one that changes the distribution of the values least, measured by the
//                  Kullback-Leibler divergence (S. Migacz, "8-bit Inference with TensorRT", GTC
//                  2017: 2048 bins, of which at least 128 are kept)
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/numeric/formats/float_format.h"

namespace halfscope {

/// Counts magnitudes in 2048 bins for each power of two, so that one pass over the data serves
/// every range. Zeros, and values that are not finite, are counted on their own.
class MagnitudeHistogram {
 public:
  void add(std::span<const float> values);

  struct Bin {
    float smallest = 0, middle = 0, largest = 0;  ///< the first and the last number that belong
    int64_t count = 0;
  };
  /// Returns the bins that are not empty, ascending.
  std::vector<Bin> bins() const;

  int64_t count() const noexcept { return count_; }  ///< of finite values, zeros included
  int64_t zeros() const noexcept { return zeros_; }
  int64_t not_finite() const noexcept { return not_finite_; }
  float largest() const noexcept { return largest_; }  ///< finite magnitude
  /// Returns the share of the finite values whose magnitude is above `range`, without those in the
  /// bin of `range`.
  double share_above(float range) const;

 private:
  static constexpr int kBinBits = 11;
  static constexpr int kBins = 1 << kBinBits;

  std::array<std::vector<int64_t>, 255> binades_;  ///< by biased exponent; empty until needed
  int64_t count_ = 0, zeros_ = 0, not_finite_ = 0;
  float largest_ = 0;
};

struct RangeMethod {
  enum class Kind : uint8_t { max, percentile, mse, entropy };
  Kind kind = Kind::max;
  double percentile = 99.99;  ///< above 0, at most 100

  friend bool operator==(const RangeMethod&, const RangeMethod&) = default;
};

/// Returns "max", "percentile:99.9", "mse", "entropy".
std::string range_method_name(const RangeMethod& method);
/// Parses that text, and "percentile" for 99.99; returns nothing for any other.
std::optional<RangeMethod> parse_range_method(std::string_view text);

/// Returns the magnitude that the largest value of `format` is to stand for; 0 if there are only
/// zeros.
float chosen_range(const MagnitudeHistogram& seen, const RangeMethod& method,
                   const FloatFormat& format);

/// Returns the scale by which values are divided so that `range` becomes the format's largest
/// value, an fp32 number; 1 for a range of 0.
float static_scale(float range, const FloatFormat& format) noexcept;

}  // namespace halfscope
