// SPDX-License-Identifier: MIT
// The pieces that html.cpp puts together. Private to the HTML report. Drawings are SVG stretched to
// the page's width, or marks placed in percent; their labels are HTML, so that they stay readable
// at any width.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "analysis/report/html_page.h"
#include "analysis/report/report.h"

namespace halfscope::html {

/// Beyond this size drawings are left out, and the page says so: it must stay small enough to mail.
inline constexpr size_t kDrawingBudget = 1'500'000;

// html_text.cpp
/// Returns "layer-conv2" for layers of the lane in focus, "layer-LANE-conv2" for others.
std::string layer_anchor(const Report& report, int lane, const std::string& path);
/// Returns `text` escaped, as a link if the page has a row for the layer.
std::string layer_link(const Report& report, int lane, const std::string& path,
                       const std::string& text);

// html_actions.cpp
std::string actions_section(const Report& report);
std::string proof_section(const Report& report);

// html_diagnosis.cpp
/// Returns "" if no lane is wrong.
std::string diagnosis_section(const Report& report);

// html_charts.cpp
/// Emphasises the lane in focus and its healthy siblings, if there are any.
std::string loss_chart(const Report& report);
std::string scale_chart(const Report& report);
std::string learning_rate_chart(const Report& report);
/// Returns a small drawing of a lane's line in the charts, for legends.
std::string lane_swatch(size_t lane);

// html_spectrum.cpp
/// Returns the Spectrum with the loss beside it; "" if nothing was recorded.
std::string spectrum_section(const Report& report);

// html_lanes.cpp
std::string lane_cards(const Report& report);  ///< the overview under the verdict
std::string events_section(const Report& report);
std::string lanes_section(const Report& report);

// html_kernels.cpp
std::string kernels_section(const Report& report);

// html_sums.cpp
std::string sums_section(const Report& report);

// html_errors.cpp
std::string errors_section(const Report& report);
/// Returns the histogram of distances between a tensor and the other lane's.
std::string distance_block(const SiteErrorReport& error, const std::string& other);

// html_histogram.cpp
/// Range of exponents of all histograms of the page, so that they can be compared.
struct ExponentAxis {
  int low = -30, high = 20;
  int bins() const { return high - low + 1; }
};
ExponentAxis fit_axis(const Report& report);
/// Returns the shaded bands of every format on the page, drawn once and referred to.
std::string band_definitions(const Report& report, const ExponentAxis& axis);
std::string histogram(const SiteReport& site, const ExponentAxis& axis, bool big);
std::string histogram_key();

// html_layers.cpp
/// Returns everything about layers: one table per lane, then the tensors of the worst ones.
/// `size_so_far` counts against kDrawingBudget.
std::string layer_section(const Report& report, size_t size_so_far);
/// Returns whether a layer has its own row, which links can point to.
bool has_line(const Report& report, int lane, const std::string& path);

}  // namespace halfscope::html
