// SPDX-License-Identifier: MIT
// The mean of the ranks' gradients, computed by processes that exchange parts of sums. It has the
// bits of the simulation in one process (core/numeric/sums/reduction.h): the same additions in the
// same order, each rounded where it is computed.
//
//   own gradients --rounded, divided--> parts of sums --a hop each: sent, added, rounded--> sums
//     --each from the rank that has it--> means on all ranks
#pragma once

#include <cstdint>
#include <span>
#include <vector>

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

/// Elements [begin, begin + count) of a tensor, which are summed in one order.
struct RankPart {
  size_t tensor = 0;
  int64_t begin = 0, count = 0;
  int owner = 0;  ///< the rank that gets the sum
  std::vector<RankAddition> additions{};
};

/// Returns the parts of tensors of these sizes, each with its additions. A ring has `ranks` parts.
/// Halving has a part for each rank that takes part in the exchanges, so that each of them keeps
/// its share of the elements: the partners of an exchange add the same two numbers, and the order
/// of two operands does not matter. A tree has one part. In all-to-all, part r belongs to rank r,
/// and `additions` is empty.
std::vector<RankPart> rank_parts(Reduction::Algorithm algorithm, int64_t ranks,
                                 std::span<const int64_t> sizes);

/// Reduces the tensors over all ranks. Every rank passes the same sizes and formats.
template <class T>
void exchange_means(Exchange& exchange, const Reduction& how,
                    std::span<const RankTensor<T>> tensors);

}  // namespace halfscope
