// SPDX-License-Identifier: MIT
// Metrics that colour a tensor, and roles that select tensors.
#pragma once

#include <array>
#include <cstdint>

#include "core/numeric/statistics/rates.h"
#include "core/observe/recording.h"

namespace halfscope::gui {

/// A rate of a tensor, 0 to 1 (core/numeric/statistics/rates.h).
enum class Metric : uint8_t { worst, overflow, underflow, subnormal, non_finite, lost_updates };
inline constexpr std::array<Metric, 6> kMetrics{Metric::worst,      Metric::overflow,
                                                Metric::underflow,  Metric::subnormal,
                                                Metric::non_finite, Metric::lost_updates};
const char* metric_name(Metric metric) noexcept;     // "Underflow"
const char* metric_meaning(Metric metric) noexcept;  // for tooltips
const char* metric_whole(Metric metric) noexcept;    // what it is a share of: "of all values"

/// Returns the rate that the metric shows. `worst` is the largest of overflow, underflow and lost
/// updates. It excludes NaN and infinities, since they spread to innocent layers.
double metric_share(const Rates& rates, Metric metric) noexcept;

/// Selection of a layer's tensors.
enum class RoleView : uint8_t { all, weights, activations, gradients, updates };
inline constexpr std::array<RoleView, 5> kRoleViews{RoleView::all, RoleView::weights,
                                                    RoleView::activations, RoleView::gradients,
                                                    RoleView::updates};
const char* role_view_name(RoleView view) noexcept;  // "Gradients"
bool shows(RoleView view, Role role) noexcept;

}  // namespace halfscope::gui
