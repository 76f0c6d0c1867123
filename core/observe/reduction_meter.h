// SPDX-License-Identifier: MIT
// Measures what a reduction over data-parallel ranks does to gradients, compared with their exact
// mean. It takes blocks of elements, so the gradients of many ranks need not be in memory at once.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/numeric/sums/reduction.h"
#include "core/observe/recording.h"

namespace halfscope {

class ReductionMeter {
 public:
  /// Rounds `count` numbers in place to the format of the reduction.
  using Round = std::function<void(float* numbers, int64_t count)>;
  /// Returns a rank's gradients from the first element of the block on.
  using Rows = std::function<const float*(int64_t rank)>;

  /// Measures a tensor of n elements, reduced over at least two ranks.
  ReductionMeter(const Reduction& how, int64_t ranks, int64_t n, Round round);

  /// Adds elements begin .. end of the tensor.
  void add(int64_t begin, int64_t end, const Rows& rows);
  /// Returns the result for the elements so far. `step` and `site` are not set.
  ReductionError result() const;

 private:
  struct Distance {
    double difference = 0.0, norm = 0.0;
    void add(double x, double truth);
    double error() const;
  };

  void add_block(int64_t begin, int64_t end, const Rows& rows, int64_t offset);
  void reduce(const Reduction& how, int64_t begin, int64_t end, const Rows& rows, int64_t offset,
              ReductionError* counts, std::vector<float>& out);

  const Reduction how_, once_;  ///< `once_`: summed in fp32 and stored once
  const int64_t ranks_, n_;
  const Round round_;
  const std::vector<RankAddition> additions_, chain_;
  ReductionError seen_{};
  Distance reduced_, stored_;
  std::vector<double> mean_;     ///< of this block
  std::vector<int32_t> finite_;  ///< whether the mean is
  std::vector<float> result_, best_, sums_;
};

}  // namespace halfscope
