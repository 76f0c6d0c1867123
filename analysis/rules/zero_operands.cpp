// SPDX-License-Identifier: MIT
#include "analysis/rules/zero_operands.h"

#include <algorithm>
#include <optional>

namespace halfscope {
namespace {

int64_t zeros_of(const TensorCounts& counts) { return counts.zero + counts.underflow; }

/// Returns a node's own operand that it reads as zero, or its output.
int flushed_site(const LaneFacts& lane, int node, int64_t step) {
  for (const SiteInfo& site : lane.info().sites) {
    const bool reads = site.role == Role::input || site.role == Role::weight;
    if (lane.node_of(site.order) != node || site.phase != Phase::forward) continue;
    if (!reads && site.role != Role::activation) continue;
    const std::optional<TensorStats> own = lane.stats(site.order, step);
    if (own && own->underflow > 0) return site.order;
  }
  return -1;
}

}  // namespace

Zeros zeros_before(const LaneFacts& lane, int node, int64_t step) {
  Zeros zeros{.way = {node}};
  bool compared = true;
  for (bool up = true; up && zeros.way.size() < lane.nodes().size();) {
    up = false;
    for (const int input : lane.nodes()[static_cast<size_t>(zeros.way.back())].inputs) {
      const int site = lane.nodes()[static_cast<size_t>(input)].output_site;
      if (site < 0) continue;
      const std::optional<TensorStats> own = lane.stats(site, step);
      const std::optional<TensorCounts> theirs = lane.reference_counts(site, step);
      if (!own || own->zero + own->underflow <= (theirs ? zeros_of(*theirs) : 0)) continue;
      compared = compared && theirs;
      zeros.way.push_back(input);
      zeros.underflows = flushed_site(lane, input, step);
      up = zeros.underflows < 0;  // else they begin here
      break;
    }
  }
  // Zeros that fp32 may have as well need a cause.
  if (zeros.way.size() == 1 || (zeros.underflows < 0 && !compared)) return {};
  if (zeros.underflows < 0) {
    for (const int input : lane.nodes()[static_cast<size_t>(zeros.way.back())].inputs) {
      if (lane.nodes()[static_cast<size_t>(input)].layer >= 0) zeros.made_of.push_back(input);
    }
  }
  std::reverse(zeros.way.begin(), zeros.way.end());
  return zeros;
}

}  // namespace halfscope
