// SPDX-License-Identifier: MIT
// Distances between two lanes at one sampled step, prepared for the viewer.
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

/// All comparisons between `lane` and `other` at one step.
class LaneErrors {
 public:
  /// Returns the lanes that a lane was compared with, in order.
  static std::vector<int> others(const RunView& run, int lane);
  /// Returns the errors at the sampled step nearest to `step` (the earlier of two); empty without
  /// samples.
  static std::optional<LaneErrors> nearest(const RunView& run, int lane, int other, int64_t step);

  int64_t step() const noexcept { return step_; }
  const SiteError* find(int site) const noexcept;
  /// Returns the first tensor in execution order that differs; null if all are equal.
  const SiteError* first_differing() const noexcept;
  /// Returns the layers' errors in tensors of that role, in forward order, for gradients, too.
  std::vector<DepthError> by_depth(const RunView& run, const LaneModel& model, Role role) const;

 private:
  std::span<const SiteError> rows_{};  ///< of the step, against any lane
  int lane_ = -1, other_ = -1;
  int64_t step_ = 0;
};

/// Returns the comparison of the lane's kernel with the emulator on the same operands, at the
/// checked step nearest to `step`; null if the kernel was not checked.
const KernelCheck* kernel_check(const RunView& run, int lane, int site, int64_t step) noexcept;
/// Returns "matches the emulator bit for bit" or "98% match the emulator bit for bit, all
/// explained".
std::string kernel_text(const KernelCheck& check);
/// Returns whether the kernel is at fault: sums that no order explains, or different bits in an
/// operator that does not sum.
bool is_kernel_fault(const KernelCheck& check) noexcept;

/// Returns the local error, against exact arithmetic if that was measured; NaN if not measured.
double local_error(const SiteError& error) noexcept;
/// Returns the total error; NaN if no element is finite in both lanes, because a norm over nothing
/// would look like agreement.
double total_error(const SiteError& error) noexcept;

}  // namespace halfscope::gui
