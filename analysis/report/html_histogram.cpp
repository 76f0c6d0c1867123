// SPDX-License-Identifier: MIT
// Histograms of exponents over the bands of a tensor's format: normal, subnormal (fewer bits),
// lost.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/report/html_parts.h"
#include "analysis/report/report_parts.h"

namespace halfscope::html {
namespace {

constexpr int kHistogramHeight = 16;  ///< of a histogram, in its own units

/// First exponents of the bands of a format: subnormal, normal, overflow.
struct Bands {
  int subnormal, normal, overflow;
  explicit Bands(const FloatFormat& format)
      : subnormal(format.min_exponent() - format.mantissa_bits - 1),
        normal(format.min_exponent()),
        overflow(format.max_exponent() + 1) {}
};

std::string band_id(const FloatFormat& format) { return "b-" + anchor(format_name(format)); }

std::string rect(const char* kind, int from, int to) {
  if (to <= from) return "";
  return fmt::format("<rect class=\"{}\" x=\"{}\" width=\"{}\" height=\"{}\"/>", kind, from,
                     to - from, kHistogramHeight);
}

/// Returns the bars as two outlines: values that the format represents and values that it loses.
/// Heights are square roots of counts, so that thin tails are visible.
std::string bars(const SiteReport& site, const ExponentAxis& axis) {
  std::vector<int64_t> counts(static_cast<size_t>(axis.bins()), 0);
  for (const auto& [exponent, count] : site.exponents) {
    const int bin = std::clamp(exponent - axis.low, 0, axis.bins() - 1);
    counts[static_cast<size_t>(bin)] += count;
  }
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  if (most == 0) return "";
  const Bands bands(site.format);
  const auto outside = [&](int bin) {
    const int exponent = bin + axis.low;
    return exponent < bands.subnormal || exponent >= bands.overflow;
  };
  std::string outline[2];  // held, lost
  for (int bin = 0; bin < axis.bins(); ++bin) {
    const size_t at = static_cast<size_t>(bin);
    if (counts[at] == 0) continue;
    std::string& path = outline[outside(bin) ? 1 : 0];
    const bool goes_on = bin > 0 && counts[at - 1] > 0 && outside(bin - 1) == outside(bin);
    if (!goes_on) path += fmt::format("M{} {}", bin, kHistogramHeight);
    const double full = std::sqrt(static_cast<double>(counts[at]) / static_cast<double>(most));
    const int height = std::max(1, static_cast<int>(std::lround(kHistogramHeight * full)));
    path += fmt::format("V{}h1", kHistogramHeight - height);
    const bool more =
        bin + 1 < axis.bins() && counts[at + 1] > 0 && outside(bin + 1) == outside(bin);
    if (!more) path += fmt::format("V{}", kHistogramHeight);
  }
  std::string html;
  if (!outline[0].empty()) html += fmt::format("<path class=\"g\" d=\"{}\"/>", outline[0]);
  if (!outline[1].empty()) html += fmt::format("<path class=\"w\" d=\"{}\"/>", outline[1]);
  return html;
}

}  // namespace

/// -30 to 20, stretched to where at least 0.1% of some tensor lies, within reason.
ExponentAxis fit_axis(const Report& report) {
  ExponentAxis axis;
  for (const LayerReport& layer : report.layers) {
    for (const SiteReport& site : layer.sites) {
      int64_t total = 0, seen = 0;
      for (const auto& [exponent, count] : site.exponents) total += count;
      for (const auto& [exponent, count] : site.exponents) {
        const bool first =
            report::share(seen, total) < 0.001 && report::share(seen + count, total) >= 0.001;
        seen += count;
        if (first) axis.low = std::min(axis.low, exponent);
        if (report::share(count, total) >= 0.001) axis.high = std::max(axis.high, exponent);
      }
    }
  }
  axis.low = std::max(axis.low, -48);
  axis.high = std::min(axis.high, 36);
  return axis;
}

std::string band_definitions(const Report& report, const ExponentAxis& axis) {
  std::string html = "<svg class=\"defs\" width=\"0\" height=\"0\" aria-hidden=\"true\"><defs>";
  std::set<std::string> done;
  for (const LayerReport& layer : report.layers) {
    for (const SiteReport& site : layer.sites) {
      if (!done.insert(band_id(site.format)).second) continue;
      const Bands bands(site.format);
      const auto x = [&](int exponent) { return std::clamp(exponent - axis.low, 0, axis.bins()); };
      html += fmt::format("<g id=\"{}\">", band_id(site.format));
      html += rect("zl", 0, x(bands.subnormal));
      html += rect("zs", x(bands.subnormal), x(bands.normal));
      html += rect("zn", x(bands.normal), x(bands.overflow));
      html += rect("zl", x(bands.overflow), axis.bins());
      for (int edge : {bands.normal, bands.overflow}) {
        if (x(edge) == 0 || x(edge) == axis.bins()) continue;
        html += fmt::format("<path class=\"edge\" d=\"M{} 0v{}\"/>", x(edge), kHistogramHeight);
      }
      html += "</g>";
    }
  }
  return html + "</defs></svg>\n";
}

std::string histogram(const SiteReport& site, const ExponentAxis& axis, bool big) {
  std::string title = fmt::format("{}, {}", site.name, format_name(site.format));
  if (site.max_abs && *site.max_abs > 0.0) {
    title += fmt::format(": 2^{:.1f}", std::log2(*site.max_abs));
    if (site.min_abs) title += fmt::format(" down to 2^{:.1f}", std::log2(*site.min_abs));
  }
  return fmt::format(
      "<svg class=\"h{}\" viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" "
      "role=\"img\"><title>{}</title><use href=\"#{}\"/>{}</svg>",
      big ? " big" : "", axis.bins(), kHistogramHeight, escape(title), band_id(site.format),
      bars(site, axis));
}

std::string histogram_key() {
  const auto entry = [](const char* kind, const char* bar, const char* text) {
    return fmt::format(
        "<span><svg viewBox=\"0 0 16 12\" aria-hidden=\"true\">"
        "<rect class=\"{}\" width=\"16\" height=\"12\"/>{}</svg>{}</span>",
        kind, bar, text);
  };
  return "<div class=\"key\">" +
         entry("zl", "<path class=\"w\" d=\"M3 12v-5h4v5zM8 12v-9h4v9z\"/>",
               "lost: underflow to 0 (left) or overflow (right)") +
         entry("zs", "<path class=\"g\" d=\"M3 12v-5h4v5zM8 12v-9h4v9z\"/>",
               "subnormal: fewer bits") +
         entry("zn", "<path class=\"g\" d=\"M3 12v-5h4v5zM8 12v-9h4v9z\"/>", "normal range") +
         "</div>\n";
}

}  // namespace halfscope::html
