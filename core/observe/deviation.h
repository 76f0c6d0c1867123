// SPDX-License-Identifier: MIT
// The two measurements behind every verdict: how far results are from the truth, and how far
// correct results are from each other. analysis/rules/harm.h decides what they mean.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "core/lower/lower.h"
#include "core/observe/recording.h"

namespace halfscope {

/// Accumulates the deviation of one result over any number of batches.
class DeviationMeter {
 public:
  /// Compares `x / factor` with `truth`; both have the same size.
  void add(std::span<const float> x, std::span<const float> truth, double factor = 1.0);
  /// Compares numbers that count or select. A different number is simply wrong, however near it is;
  /// `error` is the square root of the share of different numbers.
  void add_indices(std::span<const float> x, std::span<const float> truth);

  /// Fills in n, broken, error and ratio; numbers that select have no ratio.
  void write(Deviation& deviation) const;
  /// Returns the sum of squares of the truth.
  double truth_energy() const noexcept { return truth_; }
  int64_t count() const noexcept { return n_; }

 private:
  bool counts_ = false;
  int64_t n_ = 0, compared_ = 0, broken_ = 0;           // compared: finite in the truth
  double difference_ = 0.0, truth_ = 0.0, size_ = 0.0;  // sums of squares
};

/// Significand bits of the least precise format in which a lane reads a variable or an input.
struct ReadPrecision {
  std::map<std::string, int> variables;  ///< by path
  std::map<std::string, int> inputs;     ///< by name; real inputs only, without targets
};
ReadPrecision read_precision(const Executable& executable);

/// Moves values by one ulp of a format with `significand_bits` bits (without the leading one) and
/// any exponent, up or down by a random bit of `key`. Zero and non-finite values stay. So do
/// numbers of at most 8 bits that leave three bits of the format unused, if they are at least half
/// of the nonzero values: masks, counts and constants are exact on purpose, while a few such
/// numbers among others are coincidence.
void move_by_ulp(std::span<float> values, int significand_bits, uint64_t key);

}  // namespace halfscope
