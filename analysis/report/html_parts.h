// SPDX-License-Identifier: MIT
// The pieces html.cpp puts together. Private to the HTML report. Drawings are SVG stretched to
// the page's width; their labels are HTML, so that they stay readable at any width.
#pragma once

#include <string>
#include <string_view>

#include "analysis/report/report.h"

namespace halfscope::html {

/// Past this size drawings are left out, and the page says so: it must stay small enough to mail.
inline constexpr size_t kDrawingBudget = 1'600'000;

/// Text for element content and attribute values; control characters become U+FFFD.
std::string escape(std::string_view text);
/// The same for sentences: 2^-10 is set with a raised exponent.
std::string prose(std::string_view text);
/// Letters, digits, '-', '.', '/', ':' as they are, anything else as _XX: fits an id and a link.
std::string anchor(std::string_view text);
/// "layer-conv2" for layers of the lane in focus, "layer-LANE-conv2" for the others.
std::string layer_anchor(const Report& report, int lane, const std::string& path);
/// The lane whose layers come first: the advised one, else the one with the worst finding, else
/// the first that is no reference. -1 without lanes.
int focus_lane(const Report& report);

extern const std::string_view kStyle;  // the style sheet

std::string loss_chart(const Report& report);
std::string scale_chart(const Report& report);
/// The small drawing of a lane's line in the charts, for legends.
std::string lane_swatch(size_t lane);

/// Everything about layers: one table per lane, then the tensors of the worst ones.
/// `size_so_far` counts against kDrawingBudget.
std::string layer_section(const Report& report, size_t size_so_far);

}  // namespace halfscope::html
