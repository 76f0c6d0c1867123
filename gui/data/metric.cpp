// SPDX-License-Identifier: MIT
// The texts are next to the arithmetic, so that the tooltips match it.
#include "gui/data/metric.h"

#include <algorithm>

#include "analysis/rules/text.h"

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
      return "The largest of three shares: overflow (of all values), underflow and lost updates "
             "(of non-zero values). NaN and Inf are striped instead, because they spread from "
             "where they start.";
    case Metric::overflow:
      return "Share of all values that are finite before rounding but too large for the format.";
    case Metric::underflow:
      return "Share of the non-zero values that become 0 when rounded.";
    case Metric::subnormal:
      return "Share of the non-zero values that are subnormal after rounding and have fewer bits.";
    case Metric::non_finite:
      return "Share of all values that are NaN or infinite after rounding, whether they overflow "
             "here or came in that way.";
    case Metric::lost_updates:
      return "Share of the non-zero updates that leave the weight unchanged.";
  }
  return "";
}

const char* metric_whole(Metric metric) noexcept {
  switch (metric) {
    case Metric::worst:
      return "of values";
    case Metric::overflow:
    case Metric::non_finite:
      return kOfAllValues;
    case Metric::underflow:
    case Metric::subnormal:
      return kOfNonZeroValues;
    case Metric::lost_updates:
      return kOfNonZeroUpdates;
  }
  return "";
}

double metric_share(const Rates& rates, Metric metric) noexcept {
  switch (metric) {
    case Metric::worst:
      return std::max({rates.overflow, rates.underflow, rates.lost});
    case Metric::overflow:
      return rates.overflow;
    case Metric::underflow:
      return rates.underflow;
    case Metric::subnormal:
      return rates.subnormal;
    case Metric::non_finite:
      return rates.non_finite();
    case Metric::lost_updates:
      return rates.lost;
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
