// SPDX-License-Identifier: MIT
// Absorption: decides which infinities of a forward pass are harmless. A mask of -1e9 is -infinity
// in fp16, and the softmax that reads it gives the same 0 as in fp32: nothing is wrong. A variance
// that overflows makes every output 0 just as quietly, and everything is wrong. So an infinity
// counts as harmless only if all values that are computed from it become finite again, and there
// - the tensor agrees with the full-precision lane's, where they were compared,
// - the operator gives the same for anything beyond the format's range (exp of -65504 is 0 in fp32,
//   too), and no comparison shows that the tensor is far from the full-precision lane's, or
// - a recording's tensor looks like a mask, and the loss is finite in some step.
// Where the mask meets values that are not finite for another reason, the full-precision lane
// decides: it gives 0 as often as the mask is infinite.
// In training, lanes drift apart, so only the first comparison after the infinity begins counts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "analysis/rules/lane_facts.h"

namespace halfscope {

/// Returns whether the site is a constant of the network as an operator reads it.
bool is_constant(const SiteInfo& site);

/// Returns the operators that give 0 in the reference as often as a constant mask is infinite in
/// the lane: they also give 0 for its infinities. Empty if another operator reads these, or the
/// step does not show it. Unlike the lane's own values, this is also known where the lane adds the
/// mask to values that are already not finite.
std::vector<int> zeroing_nodes(const LaneFacts& lane, int site, int64_t step);

/// Returns whether a recorded tensor is infinite as a mask or log(0) is: all infinities are
/// negative, and all other values are far from the end of the range. A recording does not know
/// where the infinities came from.
bool looks_masked(const LaneFacts& lane, const SiteInfo& site, const TensorStats& stats);

class Absorption {
 public:
  /// `lane` needs its graph, not yet its recorded steps.
  explicit Absorption(const LaneFacts& lane);

  /// Learns which tensors of a recording are masks, from a step with a finite loss. Call it for all
  /// steps before sort_out().
  void learn_masks(const RecordedStep& step);

  /// Moves harmless sites from `bad` to `absorbed`, and lists in `silent` those that no output
  /// shows. Call it for ascending steps.
  void sort_out(RecordedStep& step);

 private:
  /// Consequences of an infinity along all paths from it.
  struct Fate {
    bool reaches_end = false;  ///< the loss or an output is not finite
    bool unlike = false;       ///< a tensor where it ends may differ from fp32's
    bool unsaturated = false;  ///< the same, if operators that saturate are not trusted

    void merge(const Fate& other) noexcept;
  };
  struct Pass;

  Fate fate_at(int node, int64_t step);
  std::optional<double> difference(int site, int64_t step) const;
  bool agrees(int site, int64_t step) const;
  bool outputs_agree(int64_t step) const;

  const LaneFacts* lane_;
  double tolerance_;
  /// By site: relative difference from the reference at each compared step.
  std::map<int, std::map<int64_t, double>> differences_;
  std::map<int, int64_t> begins_;  ///< by node where infinities end: the first step
  std::set<int> masks_;            ///< sites of recordings whose infinities did no harm in a step
};

}  // namespace halfscope
