// SPDX-License-Identifier: MIT
#include "analysis/report/html_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/report/html_page.h"
#include "analysis/rules/text.h"

namespace halfscope::html {
namespace {

constexpr double kLogRange = 30.0;  ///< wider spans use a logarithmic axis

}  // namespace

double PlotAxis::position(double value) const {
  const double t = log ? (std::log(value) - std::log(low)) / (std::log(high) - std::log(low))
                       : (value - low) / (high - low);
  return kPlotHeight - std::clamp(t, 0.0, 1.0) * (kPlotHeight - kPlotTop);
}

double tick_distance(double span, double parts) {
  const double raw = span / parts;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) return factor * power;
  }
  return 10.0 * power;
}

PlotAxis value_axis(double low, double high) {
  PlotAxis axis;
  if (!(low <= high)) return axis;
  axis.log = low > 0.0 && high / low > kLogRange;
  axis.low = axis.log ? low : std::min(0.0, low);
  axis.high = high > axis.low ? high : axis.low + 1.0;
  return axis;
}

std::vector<PlotTick> value_ticks(const PlotAxis& axis) {
  std::vector<PlotTick> ticks;
  if (axis.log) {
    const int every = std::max(1, static_cast<int>(std::log10(axis.high / axis.low) / 4.0));
    for (int e = static_cast<int>(std::ceil(std::log10(axis.low))); std::pow(10.0, e) <= axis.high;
         e += every) {
      ticks.emplace_back(axis.position(std::pow(10.0, e)), short_number(std::pow(10.0, e)));
    }
  } else {
    const double distance = tick_distance(axis.high - axis.low, 4.0);
    for (double v = std::ceil(axis.low / distance) * distance; v <= axis.high; v += distance) {
      ticks.emplace_back(axis.position(v), fmt::format("{:.3g}", v));
    }
  }
  return ticks;
}

std::string plot_frame(const std::string& kind, const std::string& label,
                       const std::string& drawing, const std::vector<PlotTick>& ticks,
                       const std::vector<std::string>& below, const std::string& over) {
  std::string html = fmt::format("<div class=\"plot{}\"><div class=\"y\">", kind);
  std::string grid, under;
  for (const auto& [y, text] : ticks) {
    html += fmt::format("<span style=\"top:{:.1f}%\">{}</span>", y, text);
    grid += fmt::format("<path class=\"grid\" d=\"M0 {:.1f}h1000\"/>", y);
  }
  for (const std::string& text : below) under += "<span>" + text + "</span>";
  const std::string picture = fmt::format(
      "<svg viewBox=\"0 0 1000 100\" preserveAspectRatio=\"none\" role=\"img\">"
      "<title>{}</title>{}{}</svg>",
      escape(label), grid, drawing);
  return html + "</div>" +
         (over.empty() ? picture : "<div class=\"over\">" + picture + over + "</div>") +
         "<div class=\"x\">" + under + "</div></div>\n";
}

}  // namespace halfscope::html
