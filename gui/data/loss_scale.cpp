// SPDX-License-Identifier: MIT
#include "gui/data/loss_scale.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace halfscope::gui {

LossScale loss_scale_of(const RunView& run, int lane, int64_t first, int64_t last) {
  LossScale scale;
  const std::span<const StepRow> rows = run.steps(lane);
  auto row_at = std::lower_bound(rows.begin(), rows.end(), first,
                                 [](const StepRow& row, int64_t step) { return row.step < step; });
  for (; row_at != rows.end() && row_at->step <= last && !scale.varies; ++row_at) {
    const StepRow& row = *row_at;
    if (!(row.loss_scale > 0.0) || !std::isfinite(row.loss_scale)) continue;
    const double log2 = std::log2(row.loss_scale);
    scale.varies |= scale.known && log2 != scale.log2;
    scale.log2 = log2;
    scale.known = true;
  }
  return scale;
}

const char* unscaled_kind(const SiteInfo& site) noexcept {
  switch (site.role) {
    case Role::input:
      return "inputs";
    case Role::activation:
      return "activations";
    case Role::weight:
      return "weights";
    case Role::state:
      return "state variables";
    case Role::update:
      return "updates";
    case Role::activation_grad:
    case Role::weight_grad:
      break;  // unscaled before the optimizer, or with its own scale
  }
  return "this tensor";
}

}  // namespace halfscope::gui
