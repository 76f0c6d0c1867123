// SPDX-License-Identifier: MIT
// The mean of the ranks' gradients, computed by processes that exchange parts of sums
// (exchange_plan.h). The numbers are on the host.
#pragma once

#include <span>

#include "core/exchange/exchange.h"
#include "core/numeric/formats/float_format.h"
#include "core/numeric/sums/reduction.h"

namespace halfscope {

/// A tensor that the ranks reduce, on this rank.
template <class T>
struct RankTensor {
  FloatFormat format;  ///< of numbers that are sent and stored; ignored in double
  std::span<T> own;    ///< this rank's numbers; overwritten
  std::span<T> mean;   ///< gets the mean before it is stored, as reduce_rows() gives it
  /// Whether `mean` may be rounded to the format already. Then it is sent in the format's codes.
  bool rounded = false;
};

/// Reduces the tensors over all ranks. Every rank passes the same sizes and formats.
template <class T>
void exchange_means(Exchange& exchange, const Reduction& how,
                    std::span<const RankTensor<T>> tensors);

}  // namespace halfscope
