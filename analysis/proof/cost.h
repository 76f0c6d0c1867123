// SPDX-License-Identifier: MIT
// Cost: extra bytes and multiply-adds that a change of a lane's plan takes, computed from the
// shapes and formats recorded in the run. Searches prefer the cheaper of two cures; reports and the
// viewer show it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/observe/recording.h"
#include "core/plan/plan_edit.h"

namespace halfscope {

/// Cost of a change.
struct Cost {
  int64_t weight_bytes = 0;              ///< extra bytes to store or to read per pass
  int64_t activation_bytes = 0;          ///< extra bytes of one batch kept for the backward pass
  double weight_share = 0.0;             ///< share of all weight elements kept in fp32
  std::optional<double> multiply_share;  ///< share of the forward pass's multiply-adds in fp32
  std::vector<std::string> followers;    ///< layers that run in fp32 because they follow
};

/// Returns the number of elements if the tensor is a weight of its layer, or a constant tensor that
/// stands for one in a frozen network, else 0. A constant of one number is a setting.
int64_t weights_in(const SiteInfo& site);
/// Returns how many weights a layer reads: those recorded under its path, or those its node reads
/// under other names if they are more. `read` is LayerInfo::parameters.
int64_t parameters_of(int64_t recorded, int64_t read);

/// Returns the cost of keeping `layers` of the lane in fp32, with the layers that follow their
/// inputs' format.
Cost cost_of_fp32(const LaneInfo& lane, const std::vector<std::string>& layers);
/// Returns the cost of keeping all variables and the optimizer's state in fp32.
Cost cost_of_fp32_storage(const LaneInfo& lane);
/// Returns the cost of an edit. Changes of formats, sums and constants cost nothing.
Cost cost_of(const LaneInfo& lane, const PlanEdit& edit);

/// Returns whether `a` takes fewer multiply-adds in fp32 than `b`, or as many and fewer bytes.
bool is_cheaper(const Cost& a, const Cost& b);
/// Returns "12% of the multiply-adds in fp32, 3.2 MB more memory"; "" if it costs nothing.
std::string cost_words(const Cost& cost);

}  // namespace halfscope
