// SPDX-License-Identifier: MIT
// The same value, rounded stochastically again and again, like balls that fall on one of two sides.
// All draws follow from a seed.
#pragma once

#include <cstdint>
#include <vector>

#include "core/lab/rounding_place.h"
#include "core/numeric/formats/float_format.h"

namespace halfscope::lab {

class StochasticDrops {
 public:
  /// Needs a finite value that lies between two numbers of the format; valid() says whether.
  StochasticDrops(double value, const FloatFormat& format, uint64_t seed);
  StochasticDrops() = default;

  bool valid() const noexcept { return valid_; }
  const RoundingPlace& place() const noexcept { return place_; }
  double value() const noexcept { return value_; }

  /// Returns whether ball i is rounded to place().above, away from zero.
  bool goes_away(int64_t i) const noexcept;
  /// Drops balls until there are `count`; never fewer than before.
  void drop_to(int64_t count);
  void clear();

  int64_t count() const noexcept { return count_; }
  int64_t away() const noexcept { return away_; }
  /// Returns the mean of the rounded values; the value itself before the first ball.
  double mean() const noexcept;
  /// Returns the standard deviation of one ball, and of the mean of n balls in theory.
  double deviation() const noexcept;
  double deviation_of_mean(int64_t n) const noexcept;

  /// The mean after some numbers of balls, about evenly spaced in their logarithm.
  struct Point {
    int64_t count;
    double mean;
  };
  const std::vector<Point>& history() const noexcept { return history_; }

 private:
  double value_ = 0.0;
  FloatFormat format_{};
  uint64_t key_ = 0;
  RoundingPlace place_{};
  bool valid_ = false;
  int64_t count_ = 0, away_ = 0, next_point_ = 1;
  std::vector<Point> history_{};
};

}  // namespace halfscope::lab
