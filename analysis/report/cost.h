// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "analysis/report/report.h"

namespace halfscope::report {

/// Keeping `layers` of the lane in fp32, with the layers that follow their inputs' format.
Cost cost_of_fp32(const LaneInfo& lane, const std::vector<std::string>& layers);
/// Keeping all variables and the optimizer's state in fp32.
Cost cost_of_fp32_storage(const LaneInfo& lane);

}  // namespace halfscope::report
