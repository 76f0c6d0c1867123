// SPDX-License-Identifier: MIT
// The sums that `halfscope fprev` can look into: our product kernel under every accumulation, the
// model of tensor cores with any plan of K, and the matrix product of any backend.
#pragma once

#include <string>
#include <vector>

#include "core/numeric/sum_orders/summation_tree.h"
#include "core/numeric/sums/tensor_core.h"

namespace halfscope {

struct FprevChoice {
  std::string model = "fp32";  ///< an accumulation, or an architecture of tensor cores
  std::string input, output;   ///< formats for tensor cores; "" for the first
  TensorCorePlan plan;
  bool has_plan = false;              ///< a flag of the plan was given
  std::string backend;                ///< whose matrix product it is; "" for none
  int64_t rows = 128, columns = 128;  ///< size of that product
};

struct FprevModel {
  DotProducts dot;
  FprevValues values;
  std::string input, accumulator;  ///< formats
  int most = 0;                    ///< summands that the values can tell apart
  std::string kernel{};            ///< kernel of a backend's product
  TensorCorePlan plan{};           ///< as asked for, by flags or in the name
};

/// Throws Error (usage) for an unknown model, and for formats or a plan that it does not have.
/// `n` summands are to be looked at: a backend may choose its kernel by it.
FprevModel make_fprev_model(const FprevChoice& choice, int n);

/// Names, in the order of --help.
std::vector<std::string> fprev_model_names();

}  // namespace halfscope
