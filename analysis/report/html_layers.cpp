// SPDX-License-Identifier: MIT
// The layers: one table line each with its exponent histograms over the bands of their format,
// and every tensor of the layers that suffer most.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/report/html_parts.h"
#include "analysis/rules/format_limits.h"
#include "analysis/rules/text.h"

namespace halfscope::html {
namespace {

constexpr size_t kWorstLayers = 30;
constexpr double kWorthShowing = 0.01;
constexpr int kHeight = 16;  ///< of a histogram, in its own units

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

double overflow_share(const SiteReport& site) { return share(site.overflow, site.n); }
double non_finite_share(const SiteReport& site) { return share(site.non_finite, site.n); }
int64_t non_zero(const SiteReport& site) { return site.n - site.zero - site.non_finite; }
double underflow_share(const SiteReport& site) { return share(site.underflow, non_zero(site)); }
double lost_share(const SiteReport& site) { return share(site.lost, non_zero(site)); }

double suffering(const LayerReport& layer) {
  double worst = 0.0;
  for (const SiteReport& site : layer.sites) {
    // An overflow spreads, so one is enough. What it spread to is innocent.
    worst = std::max({worst, underflow_share(site), lost_share(site),
                      site.overflow > 0 ? 1.0 + overflow_share(site) : 0.0});
  }
  return worst;
}

/// Exponents all histograms of the page are drawn over, so that they can be compared.
struct ExponentAxis {
  int low = -30, high = 20;
  int bins() const { return high - low + 1; }
};

/// -30 to 20, stretched to where at least 0.1 % of some tensor lies, within reason.
ExponentAxis fit_axis(const Report& report) {
  ExponentAxis axis;
  for (const LayerReport& layer : report.layers) {
    for (const SiteReport& site : layer.sites) {
      int64_t total = 0, seen = 0;
      for (const auto& [exponent, count] : site.exponents) total += count;
      for (const auto& [exponent, count] : site.exponents) {
        const bool first = share(seen, total) < 0.001 && share(seen + count, total) >= 0.001;
        seen += count;
        if (first) axis.low = std::min(axis.low, exponent);
        if (share(count, total) >= 0.001) axis.high = std::max(axis.high, exponent);
      }
    }
  }
  axis.low = std::max(axis.low, -48);
  axis.high = std::min(axis.high, 36);
  return axis;
}

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
                     to - from, kHeight);
}

/// The shaded bands of every format of the page, drawn once and referred to.
std::string band_definitions(const Report& report, const ExponentAxis& axis) {
  std::string html =
      "<svg width=\"0\" height=\"0\" style=\"position:absolute\" "
      "aria-hidden=\"true\"><defs>";
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
        html += fmt::format("<path class=\"edge\" d=\"M{} 0v{}\"/>", x(edge), kHeight);
      }
      html += "</g>";
    }
  }
  return html + "</defs></svg>\n";
}

/// Bars as two paths: what the format holds, and what it loses. Heights are square roots of
/// counts, so that thin tails can be seen.
std::string bars(const SiteReport& site, const ExponentAxis& axis) {
  std::vector<int64_t> counts(static_cast<size_t>(axis.bins()), 0);
  for (const auto& [exponent, count] : site.exponents) {
    const int bin = std::clamp(exponent - axis.low, 0, axis.bins() - 1);
    counts[static_cast<size_t>(bin)] += count;
  }
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  if (most == 0) return "";
  const Bands bands(site.format);
  std::string held, lost;
  for (int bin = 0; bin < axis.bins(); ++bin) {
    const int64_t count = counts[static_cast<size_t>(bin)];
    if (count == 0) continue;
    const int exponent = bin + axis.low;
    const int height =
        std::max(1, static_cast<int>(std::lround(kHeight * std::sqrt(static_cast<double>(count) /
                                                                     static_cast<double>(most)))));
    const bool out = exponent < bands.subnormal || exponent >= bands.overflow;
    (out ? lost : held) += fmt::format("M{} 16v-{}h1v{}z", bin, height, height);
  }
  std::string html;
  if (!held.empty()) html += fmt::format("<path class=\"g\" d=\"{}\"/>", held);
  if (!lost.empty()) html += fmt::format("<path class=\"w\" d=\"{}\"/>", lost);
  return html;
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
      big ? " big" : "", axis.bins(), kHeight, escape(title), band_id(site.format),
      bars(site, axis));
}

/// The tensor that stands for a layer in its line: the one that loses most, else the last of
/// those roles (a layer's own output, the gradient of it).
const SiteReport* speaker(const LayerReport& layer, bool gradient) {
  const SiteReport* best = nullptr;
  for (const SiteReport& site : layer.sites) {
    const bool is_gradient = site.role == Role::activation_grad || site.role == Role::weight_grad;
    const bool is_output = site.role == Role::activation || site.role == Role::input;
    if (gradient ? !is_gradient : !is_output) continue;
    const bool worse = best == nullptr || overflow_share(site) + underflow_share(site) >
                                              overflow_share(*best) + underflow_share(*best);
    if (worse) best = &site;
  }
  return best;
}

std::string share_cell(double value, double bad_from) {
  return fmt::format("<td class=\"n{}\">{}</td>",
                     value > bad_from ? " bad"
                     : value == 0.0   ? " zero"
                                      : "",
                     escape(percent(value)));
}

std::string headroom_cell(const LayerReport& layer) {
  std::optional<double> least;
  for (const SiteReport& site : layer.sites) {
    const bool forward =
        site.role == Role::activation || site.role == Role::weight || site.role == Role::input;
    if (forward && site.headroom_bits && (!least || *site.headroom_bits < *least)) {
      least = site.headroom_bits;
    }
  }
  if (!least) return "<td class=\"n\">&ndash;</td>";
  return fmt::format("<td class=\"n{}\">{:.1f}</td>", *least < 0.0 ? " bad" : "", *least);
}

std::string layer_row(const Report& report, const LayerReport& layer, const ExponentAxis& axis,
                      bool drawings, bool detailed) {
  double overflow = 0.0, non_finite = 0.0, underflow = 0.0, lost = 0.0;
  for (const SiteReport& site : layer.sites) {
    overflow = std::max(overflow, overflow_share(site));
    non_finite = std::max(non_finite, non_finite_share(site));
    underflow = std::max(underflow, underflow_share(site));
    lost = std::max(lost, lost_share(site));
  }
  const std::string id = layer_anchor(report, layer.lane, layer.path);
  const std::string read = format_name(layer.read), write = format_name(layer.write);
  std::string name = fmt::format("<b>{}</b>", escape(layer.path));
  if (detailed) name = fmt::format("<a href=\"#tensors-{}\">{}</a>", id, name);
  std::string html = fmt::format(
      "<tr id=\"{}\"><td class=\"name\">{}<br><span class=\"soft\">{}</span></td><td>{}</td>", id,
      name, escape(layer.op), escape(read == write ? write : read + " / " + write));
  html += headroom_cell(layer);
  for (bool gradient : {false, true}) {
    const SiteReport* site = speaker(layer, gradient);
    html += "<td>";
    if (site != nullptr && drawings) html += histogram(*site, axis, false);
    html += "</td>";
  }
  html += share_cell(overflow, 0.0) + share_cell(non_finite, 1.0) + share_cell(underflow, 0.01) +
          share_cell(lost, 0.5);
  return html + "</tr>\n";
}

std::string key() {
  const auto entry = [](const char* kind, const char* bar, const char* text) {
    return fmt::format(
        "<span><svg viewBox=\"0 0 16 12\" aria-hidden=\"true\">"
        "<rect class=\"{}\" width=\"16\" height=\"12\"/>{}</svg>{}</span>",
        kind, bar, text);
  };
  return "<div class=\"key\">" +
         entry("zl", "<path class=\"w\" d=\"M3 12v-5h4v5zM8 12v-9h4v9z\"/>",
               "lost: flushed to zero (left) or overflow (right)") +
         entry("zs", "<path class=\"g\" d=\"M3 12v-5h4v5zM8 12v-9h4v9z\"/>",
               "subnormal: held with fewer bits") +
         entry("zn", "<path class=\"g\" d=\"M3 12v-5h4v5zM8 12v-9h4v9z\"/>", "normal range") +
         "</div>\n";
}

std::string tensor_block(const SiteReport& site, const ExponentAxis& axis) {
  const auto rate = [](const char* what, double value, double bad_from) {
    return fmt::format("{} <b class=\"{}\">{}</b>", what, value > bad_from ? "bad" : "",
                       escape(percent(value)));
  };
  std::string html = fmt::format(
      "<div class=\"tensor\"><div><b>{}</b> <span class=\"soft\">{}</span><div class=\"nums\">",
      escape(site.tensor), escape(format_name(site.format)));
  html += rate("overflow", overflow_share(site), 0.0) + ", " +
          rate("not finite", non_finite_share(site), 1.0) + "<br>" +
          rate("flushed", underflow_share(site), 0.01) + ", " +
          rate("subnormal", share(site.subnormal, non_zero(site)), 1.0) + ", " +
          rate("zero", share(site.zero, site.n), 1.0);
  if (site.role == Role::update) html += "<br>" + rate("lost updates", lost_share(site), 0.5);
  html += "<br>";
  html += fmt::format("largest <b>{}</b>", site.max_abs ? short_number(*site.max_abs) : "-");
  html += fmt::format(", rms <b>{}</b>", site.rms ? short_number(*site.rms) : "-");
  if (site.headroom_bits)
    html += fmt::format(", head-room <b>{:.1f}</b> bits", *site.headroom_bits);
  html += fmt::format(
      "</div></div><div>{}<div class=\"axis\"><span>2<sup>{}</sup></span>"
      "<span>2<sup>{}</sup></span><span>2<sup>{}</sup></span></div></div></div>\n",
      histogram(site, axis, true), axis.low, (axis.low + axis.high + 1) / 2, axis.high + 1);
  return html;
}

using LayerNames = std::set<std::pair<int, std::string>>;

/// Lane and path of the layers that findings point at.
LayerNames named_layers(const Report& report) {
  LayerNames named;
  for (const Finding& finding : report.findings) {
    if (finding.severity >= Severity::warning) named.emplace(finding.lane, finding.layer);
  }
  return named;
}

std::vector<size_t> worst_layers(const Report& report, const LayerNames& named) {
  std::vector<size_t> order;
  const auto weight = [&](size_t i) {
    const LayerReport& layer = report.layers[i];
    return suffering(layer) + (named.contains({layer.lane, layer.path}) ? 100.0 : 0.0);
  };
  for (size_t i = 0; i < report.layers.size(); ++i) {
    const bool reference = report.lanes[static_cast<size_t>(report.layers[i].lane)].reference;
    if (reference && report.lanes.size() > 1) continue;  // what the others are measured by
    if (weight(i) > kWorthShowing && !report.layers[i].sites.empty()) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return weight(a) > weight(b); });
  if (order.size() > kWorstLayers) order.resize(kWorstLayers);
  std::sort(order.begin(), order.end());  // shown in execution order
  return order;
}

}  // namespace

std::string layer_section(const Report& report, size_t size_so_far) {
  if (report.layers.empty()) return "";
  const ExponentAxis axis = fit_axis(report);
  const LayerNames named = named_layers(report);
  const std::vector<size_t> worst = worst_layers(report, named);
  std::string tensors;
  for (size_t i : worst) {
    const LayerReport& layer = report.layers[i];
    tensors += fmt::format(
        "<details class=\"layer\" id=\"tensors-{}\"{}><summary><b>{}</b> "
        "<span class=\"soft\">{}, {}</span></summary>\n",
        layer_anchor(report, layer.lane, layer.path),
        named.size() <= 3 && named.contains({layer.lane, layer.path}) ? " open" : "",
        escape(layer.path), escape(layer.op),
        escape(report.lanes[static_cast<size_t>(layer.lane)].name));
    for (const SiteReport& site : layer.sites) tensors += tensor_block(site, axis);
    tensors += "</details>\n";
  }

  std::string html = "<h2 id=\"layers\">Layers</h2>\n" + band_definitions(report, axis);
  html += fmt::format(
              "<p class=\"how\">Histograms show at which powers of two the values of a tensor lie, "
              "from "
              "2<sup>{}</sup> on the left to 2<sup>{}</sup> on the right, over the whole run, on "
              "the bands "
              "of the format the tensor is written in. Gradients are shown as they are stored, "
              "times the "
              "loss scale. Bar heights are square roots, so that thin tails can be seen.</p>\n",
              axis.low, axis.high + 1) +
          key();

  const int focus = focus_lane(report);
  std::vector<int> lanes{focus};
  for (int lane = 0; lane < static_cast<int>(report.lanes.size()); ++lane) {
    if (lane != focus) lanes.push_back(lane);
  }
  size_t left_out = 0;
  for (int lane : lanes) {
    const LaneReport& info = report.lanes[static_cast<size_t>(lane)];
    std::string rows;
    for (size_t i = 0; i < report.layers.size(); ++i) {
      const LayerReport& layer = report.layers[i];
      if (layer.lane != lane) continue;
      const bool drawings =
          size_so_far + tensors.size() + html.size() + rows.size() < kDrawingBudget;
      left_out += drawings ? 0 : 1;
      rows += layer_row(report, layer, axis, drawings,
                        std::binary_search(worst.begin(), worst.end(), i));
    }
    const std::string title =
        escape(info.name) + (info.reference ? " <span class=\"soft\">(reference)</span>" : "");
    const std::string table =
        "<div class=\"scroll\"><table><thead><tr><th>Layer</th><th>Format</th>"
        "<th class=\"n\" title=\"log2 of the largest finite number over the largest value\">"
        "Head-room, bits</th><th>Activations</th><th>Gradients</th><th class=\"n\">Overflow</th>"
        "<th class=\"n\">Not finite</th><th class=\"n\">Flushed</th><th class=\"n\">Lost "
        "updates</th></tr></thead>\n<tbody>\n" +
        rows + "</tbody></table></div>\n";
    if (lane == focus) {
      html += "<h3>" + title + "</h3>\n" + table;
    } else {
      html += "<details><summary>Layers of " + title + "</summary>\n" + table + "</details>\n";
    }
  }
  if (left_out > 0) {
    html += fmt::format(
        "<p class=\"how\">To keep this page small the last {} have no drawings; "
        "the JSON report holds all histograms.</p>\n",
        counted(static_cast<int64_t>(left_out), "line"));
  }
  if (!tensors.empty()) {
    html += worst.size() == 1
                ? "<h3>Tensors of the layer that loses most</h3>\n"
                : fmt::format("<h3>Tensors of the {} layers that lose most</h3>\n", worst.size());
    html += tensors;
  }
  return html;
}

}  // namespace halfscope::html
