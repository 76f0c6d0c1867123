// SPDX-License-Identifier: MIT
// The pieces html.cpp puts together. Private to the HTML report. Drawings are SVG stretched to
// the page's width or marks placed in per cent; their labels are HTML, so that they stay readable
// at any width.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "analysis/report/report.h"

namespace halfscope::html {

/// Past this size drawings are left out, and the page says so: it must stay small enough to mail.
inline constexpr size_t kDrawingBudget = 1'500'000;

// html_text.cpp
/// Text for element content and attribute values; control characters become U+FFFD.
std::string escape(std::string_view text);
/// The same for sentences: 2^-10 is set with a raised exponent, -> as an arrow.
std::string prose(std::string_view text);
/// Letters, digits, '-', '.', '/', ':' as they are, anything else as _XX: fits an id and a link.
std::string anchor(std::string_view text);
/// "layer-conv2" for layers of the lane in focus, "layer-LANE-conv2" for the others.
std::string layer_anchor(const Report& report, int lane, const std::string& path);
/// Its escaped name, as a link if the page has a line for it.
std::string layer_link(const Report& report, int lane, const std::string& path,
                       const std::string& text);
/// A word with its shape: the colour alone must not carry the meaning.
std::string tag(const std::string& kind, const std::string& word);
/// "1.04", "NaN"; a dash for what was not measured.
std::string value_text(const std::optional<double>& value);
/// A box that scrolls sideways and can be reached by keyboard.
std::string scroll_begin(const std::string& label);
/// Long text to be copied, folded away under a summary.
std::string copy_block(const std::string& summary, const std::string& text, bool open);

extern const std::string_view kStyle;   // html_style.cpp: the style sheet
extern const std::string_view kScript;  // sorts tables, copies text; the page works without it

// html_actions.cpp
std::string actions_section(const Report& report);
std::string proof_section(const Report& report);

// html_diagnosis.cpp
/// "" where nothing is wrong.
std::string diagnosis_section(const Report& report);

// html_charts.cpp
std::string loss_chart(const Report& report);
std::string scale_chart(const Report& report);
std::string learning_rate_chart(const Report& report);
/// The small drawing of a lane's line in the charts, for legends.
std::string lane_swatch(size_t lane);

// html_lanes.cpp
std::string lane_cards(const Report& report);  ///< at a glance, under the verdict
std::string events_section(const Report& report);
std::string lanes_section(const Report& report);

// html_kernels.cpp
std::string kernels_section(const Report& report);

// html_sums.cpp
std::string sums_section(const Report& report);

// html_errors.cpp
std::string errors_section(const Report& report);
/// How far a tensor is from the other lane's, in units in the last place.
std::string distance_block(const SiteErrorReport& error, const std::string& other);

// html_histogram.cpp
/// Exponents all histograms of the page are drawn over, so that they can be compared.
struct ExponentAxis {
  int low = -30, high = 20;
  int bins() const { return high - low + 1; }
};
ExponentAxis fit_axis(const Report& report);
/// The shaded bands of every format of the page, drawn once and referred to.
std::string band_definitions(const Report& report, const ExponentAxis& axis);
std::string histogram(const SiteReport& site, const ExponentAxis& axis, bool big);
std::string histogram_key();

// html_layers.cpp
/// Everything about layers: one table per lane, then the tensors of the worst ones.
/// `size_so_far` counts against kDrawingBudget.
std::string layer_section(const Report& report, size_t size_so_far);
/// Lane and path of the layers that have a line of their own, for links.
bool has_line(const Report& report, int lane, const std::string& path);

}  // namespace halfscope::html
