// SPDX-License-Identifier: MIT
// Zeros that an operator reads although fp32 does not have them there: where they come from.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/rules/lane_facts.h"

namespace halfscope {

/// The reason why a node reads zeros that fp32 does not have.
struct Zeros {
  std::vector<int> way{};  ///< from the node where they begin to the one that reads them; or none
  int underflows = -1;     ///< the site where values were flushed
  std::vector<int> made_of{};  ///< nodes; where nothing was flushed, a difference was rounded away

  bool found() const noexcept { return !way.empty(); }
};

/// Returns where the zeros come from that a node reads in a step.
Zeros zeros_before(const LaneFacts& lane, int node, int64_t step);

}  // namespace halfscope
