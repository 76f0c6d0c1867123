// SPDX-License-Identifier: MIT
// How far results are from the truth, and how far right results are from each other: the two
// measurements behind every verdict. What to make of them is decided in analysis/rules/harm.h.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "core/lower/lower.h"
#include "core/observe/recording.h"

namespace halfscope {

/// Sums up one result over any number of batches.
class DeviationMeter {
 public:
  /// Compares `x / factor` with `truth`, which are of one size.
  void add(std::span<const float> x, std::span<const float> truth, double factor = 1.0);
  /// Compares numbers that count or select: one that differs is as wrong as any other, and `error`
  /// is the square root of their share.
  void add_indices(std::span<const float> x, std::span<const float> truth);

  /// Fills in n, broken, error and ratio; of numbers that select no ratio.
  void write(Deviation& deviation) const;
  /// Sum of squares of the truth.
  double truth_energy() const noexcept { return truth_; }
  int64_t count() const noexcept { return n_; }

 private:
  bool counts_ = false;
  int64_t n_ = 0, compared_ = 0, broken_ = 0;           // compared: finite in the truth
  double difference_ = 0.0, truth_ = 0.0, size_ = 0.0;  // sums of squares
};

/// Significand bits of the narrowest format in which a lane reads a variable or an input.
struct ReadPrecision {
  std::map<std::string, int> variables;  ///< by path
  std::map<std::string, int> inputs;     ///< by name; reals only, targets left out
};
ReadPrecision read_precision(const Executable& executable);

/// Moves values by one ulp of a format with `significand_bits` bits (the leading one not counted)
/// and any exponent, up or down by a random bit of `key`. Zero and values that are not finite stay.
/// So do numbers of at most 8 bits that leave three bits of the format unused, where they are at
/// least half of the values that are not zero: masks, counts and constants are exact on purpose,
/// while a few such numbers among others are there by chance.
void move_by_ulp(std::span<float> values, int significand_bits, uint64_t key);

}  // namespace halfscope
