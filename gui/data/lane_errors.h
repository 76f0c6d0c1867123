// SPDX-License-Identifier: MIT
// Distances between two lanes at one sampled step, as the viewer shows them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/run_view.h"
#include "gui/data/run_model.h"

namespace halfscope::gui {

/// One layer in the list of errors by depth.
struct DepthError {
  std::string layer{};
  int site = -1;       ///< of its tensors the one with most NaN and Inf, then total error
  double total = 0.0;  ///< not finite where the lanes hold no common finite value
  double local = 0.0;  ///< NaN: not measured
  double inherited = 0.0;
  int64_t n = 0, not_finite = 0;  ///< elements; those NaN or infinite in one of the lanes only
};

/// All that was compared between `lane` and `other` at one step.
class LaneErrors {
 public:
  /// The lanes that a lane was compared with, in order.
  static std::vector<int> others(const RunView& run, int lane);
  /// At the sampled step nearest to `step`, of two the earlier; empty without any.
  static std::optional<LaneErrors> nearest(const RunView& run, int lane, int other, int64_t step);

  int64_t step() const noexcept { return step_; }
  const SiteError* find(int site) const noexcept;
  /// The first tensor in execution order that differs; null if all are equal.
  const SiteError* first_differing() const noexcept;
  /// By their tensors of that role, in the order in which the nodes run forward, of gradients too.
  std::vector<DepthError> by_depth(const RunView& run, const LaneModel& model, Role role) const;

 private:
  std::span<const SiteError> rows_{};  ///< of the step, against any lane
  int lane_ = -1, other_ = -1;
  int64_t step_ = 0;
};

/// What the emulator makes of the operands that the lane's kernel read, at the checked step nearest
/// to `step`; null where the kernel was not checked.
const KernelCheck* kernel_check(const RunView& run, int lane, int site, int64_t step) noexcept;
/// "the emulator's bits"; "98% the emulator's bits, all explained".
std::string kernel_text(const KernelCheck& check);
/// Whether the kernel is to blame: sums that no order explains, other bits of what sums nothing.
bool is_kernel_fault(const KernelCheck& check) noexcept;

/// Against exact arithmetic if that was measured; NaN if neither was.
double local_error(const SiteError& error) noexcept;
/// NaN where no element is finite in both lanes: a norm over nothing would pass for agreement.
double total_error(const SiteError& error) noexcept;

}  // namespace halfscope::gui
