// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "analysis/report/report.h"

namespace halfscope::report {

/// Returns the number of elements if the tensor is a weight of its layer, or a constant tensor that
/// stands for one in a frozen network, else 0. A constant of one number is a setting.
int64_t weights_in(const SiteInfo& site);
/// Returns how many weights a layer reads: those recorded under its path, or what its node reads
/// under other names if that is more. `read` is LayerInfo::parameters.
int64_t parameters_of(int64_t recorded, int64_t read);

/// Keeping `layers` of the lane in fp32, with the layers that follow their inputs' format.
Cost cost_of_fp32(const LaneInfo& lane, const std::vector<std::string>& layers);
/// Keeping all variables and the optimizer's state in fp32.
Cost cost_of_fp32_storage(const LaneInfo& lane);

}  // namespace halfscope::report
