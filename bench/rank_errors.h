// SPDX-License-Identifier: MIT
// The error of reductions over many data-parallel ranks, on the gradients of a small network.
#pragma once

#include <cstdint>
#include <string>

namespace halfscope {

struct RankErrorOptions {
  std::string model = "mlp:784-16-10";
  int64_t ranks = 4096;  ///< the most; a power of two
  int64_t samples = 4;   ///< of a rank
  int64_t steps = 100;   ///< of training before the gradients are computed
  double loss_scale = 1024.0;
  int64_t known = 64;  ///< estimates for more ranks are made from the errors up to these
};

/// Prints Markdown tables: for each format and place of the division, by number of ranks and
/// reduction, the relative error against the exact mean, the share of additions that change
/// nothing, and the share of values that overflow. Then it compares estimates for more ranks with
/// the simulation. Repeats print the same.
void print_rank_errors(const RankErrorOptions& options);

}  // namespace halfscope
