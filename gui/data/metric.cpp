// SPDX-License-Identifier: MIT
// The words for people stand beside the arithmetic, so that tooltips cannot mean something else.
#include "gui/data/metric.h"

#include <algorithm>

namespace halfscope::gui {

const char* metric_name(Metric metric) noexcept {
  switch (metric) {
    case Metric::worst:
      return "Worst";
    case Metric::overflow:
      return "Overflow";
    case Metric::underflow:
      return "Underflow";
    case Metric::subnormal:
      return "Subnormal";
    case Metric::non_finite:
      return "NaN / Inf";
    case Metric::lost_updates:
      return "Lost updates";
  }
  return "";
}

const char* metric_meaning(Metric metric) noexcept {
  switch (metric) {
    case Metric::worst:
      return "The largest of overflow, underflow and lost updates: what an operator loses itself. "
             "NaN and Inf, which spread from where they arise, are striped.";
    case Metric::overflow:
      return "Share of elements whose exact result is finite, but too large for the format.";
    case Metric::underflow:
      return "Share of elements that are not zero before rounding and zero after.";
    case Metric::subnormal:
      return "Share of elements that are rounded to a subnormal number, which has fewer bits.";
    case Metric::non_finite:
      return "Share of elements that are NaN or infinite before rounding.";
    case Metric::lost_updates:
      return "Share of weight updates that are not zero, yet left the weight as it was.";
  }
  return "";
}

TensorCounts counts_of(const TensorStats& stats) noexcept {
  return {.n = stats.n,
          .zero = stats.zero,
          .pos_inf = stats.pos_inf,
          .neg_inf = stats.neg_inf,
          .nan = stats.nan,
          .overflow = stats.overflow,
          .underflow = stats.underflow,
          .subnormal = stats.subnormal,
          .lost = stats.lost};
}

double metric_share(const TensorCounts& counts, Metric metric) noexcept {
  if (counts.n <= 0) return 0.0;
  const double n = static_cast<double>(counts.n);
  switch (metric) {
    case Metric::worst:
      return static_cast<double>(std::max({counts.overflow, counts.underflow, counts.lost})) / n;
    case Metric::overflow:
      return static_cast<double>(counts.overflow) / n;
    case Metric::underflow:
      return static_cast<double>(counts.underflow) / n;
    case Metric::subnormal:
      return static_cast<double>(counts.subnormal) / n;
    case Metric::non_finite:
      return static_cast<double>(counts.non_finite()) / n;
    case Metric::lost_updates:
      return static_cast<double>(counts.lost) / n;
  }
  return 0.0;
}

const char* role_view_name(RoleView view) noexcept {
  switch (view) {
    case RoleView::all:
      return "All";
    case RoleView::weights:
      return "Weights";
    case RoleView::activations:
      return "Activations";
    case RoleView::gradients:
      return "Gradients";
    case RoleView::updates:
      return "Updates";
  }
  return "";
}

bool shows(RoleView view, Role role) noexcept {
  switch (view) {
    case RoleView::all:
      return true;
    case RoleView::weights:
      return role == Role::weight || role == Role::state;
    case RoleView::activations:
      return role == Role::input || role == Role::activation;
    case RoleView::gradients:
      return role == Role::activation_grad || role == Role::weight_grad;
    case RoleView::updates:
      return role == Role::update;
  }
  return false;
}

}  // namespace halfscope::gui
