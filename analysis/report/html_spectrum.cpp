// SPDX-License-Identifier: MIT
// The Spectrum of the lane in focus over the whole run: every layer as a ridge over exponents, with
// the range of the lane's format behind it, and what other formats would lose.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/format_limits.h"
#include "analysis/report/html_parts.h"
#include "analysis/report/report_parts.h"
#include "analysis/rules/text.h"
#include "analysis/spectrum/groups.h"
#include "analysis/spectrum/lens_text.h"
#include "analysis/spectrum/ridge_outline.h"

namespace halfscope::html {
namespace {

constexpr double kWidth = 1000.0;  ///< of a chart, in the drawing's units
constexpr double kPeak = 42.0;     ///< height of a share of 1; vertical units are pixels
constexpr double kHeight = 330.0;  ///< of all rows
constexpr double kLeastPitch = 3.8, kMostPitch = 24.0;  ///< between rows
constexpr float kLine = 13.0f;                          ///< height of a name
constexpr int kPointsPerBin = 3;
constexpr double kFlat = 0.15;  ///< pixels by which a path may differ from its outline
constexpr SpectrumChart kCharts[] = {SpectrumChart::activations, SpectrumChart::gradients};

struct Drawing {
  const Report& report;
  std::vector<LayerRow> rows{};
  double pitch = kMostPitch, height = kHeight;
  ExponentWindow window{};
  FloatFormat format{};
  bool alarming = true;  ///< losses are shown in red, because the lane has a problem
  double base(size_t row) const { return kPeak + 2.0 + static_cast<double>(row) * pitch; }
};

const char* zone_class(ZoneKind kind) {
  switch (kind) {
    case ZoneKind::lost:
      return "sl";
    case ZoneKind::subnormal:
      return "ss";
    case ZoneKind::normal:
      break;
  }
  return "sn";
}

struct Scale {
  ExponentRange range;
  double x(double exponent) const {
    return kWidth * (exponent - range.low) / (range.high - range.low);
  }
  double percent_of(double exponent) const { return x(exponent) / kWidth * 100.0; }
};

/// Returns the points without those that the line between their neighbours meets anyway.
std::vector<RidgePoint> without_flat(const std::vector<RidgePoint>& points) {
  std::vector<RidgePoint> kept{points.front()};
  size_t last = 0;
  for (size_t next = 2; next < points.size(); ++next) {
    const RidgePoint from = points[last], to = points[next];
    const auto leaves = [&](const RidgePoint& point) {
      const float y = from.y + (point.x - from.x) / (to.x - from.x) * (to.y - from.y);
      return static_cast<double>(std::abs(point.y - y)) * kPeak > kFlat;
    };
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(last) + 1;
    if (!std::any_of(begin, points.begin() + static_cast<std::ptrdiff_t>(next), leaves)) continue;
    last = next - 1;
    kept.push_back(points[last]);
  }
  if (points.size() > 1) kept.push_back(points.back());
  return kept;
}

std::string path_of(const std::vector<RidgePoint>& outline, const Scale& scale, double base,
                    double moved, bool closed) {
  const std::vector<RidgePoint> points = without_flat(outline);
  std::string path;
  const auto add = [&](const char* command, double x, double y) {
    path += fmt::format("{}{:.0f} {:.1f}", command, scale.x(x), y);
  };
  const auto x_of = [&](const RidgePoint& point) { return static_cast<double>(point.x) + moved; };
  const auto y_of = [&](const RidgePoint& point) {
    return base - static_cast<double>(point.y) * kPeak;
  };
  add("M", x_of(points.front()), closed ? base : y_of(points.front()));
  for (size_t i = 0; i < points.size(); ++i)
    add(i == 0 ? "L" : " ", x_of(points[i]), y_of(points[i]));
  if (closed) add(" ", x_of(points.back()), base);
  return path;
}

std::string ridge_svg(const Drawing& drawing, const Scale& scale, size_t row, const Ridge& ridge,
                      const Ridge* reference, double moved) {
  const double base = drawing.base(row);
  std::string svg;
  const std::vector<RidgePoint> outline = ridge_outline(ridge, kPointsPerBin);
  for (const RidgeZone& zone : ridge_zones(ridge, 0.0, scale.range.low, scale.range.high)) {
    const std::vector<RidgePoint> part = outline_part(outline, zone.from, zone.to);
    if (part.size() < 2) continue;
    svg += fmt::format("<path class=\"{}\" d=\"{}\"/>", zone_class(zone.kind),
                       path_of(part, scale, base, 0.0, true));
  }
  if (reference != nullptr) {
    const std::vector<RidgePoint> part = outline_part(
        ridge_outline(*reference, 2), scale.range.low - moved, scale.range.high - moved);
    if (part.size() > 1) {
      svg +=
          fmt::format("<path class=\"sref\" d=\"{}\"/>", path_of(part, scale, base, moved, false));
    }
  }
  if (svg.empty()) return "";
  std::string title = drawing.rows[row].name;
  if (ridge.lost.high > 0.0)
    title += ": at most " + percent(ridge.lost.share()) + " of a tensor lost";
  return fmt::format("<g><title>{}</title>{}</g>", escape(title), svg);
}

/// Returns log2 of the lane's loss scale over the reference's; nothing if either one changes.
std::optional<double> scale_shift(const Report& report) {
  if (report.reference < 0 || report.reference == report.focus) return std::nullopt;
  double shift = 0.0;
  for (const int lane : {report.focus, report.reference}) {
    const std::vector<StepRow>& rows = report.lanes[static_cast<size_t>(lane)].rows;
    if (rows.empty()) return std::nullopt;
    const double scale = rows.front().loss_scale;
    const bool constant = std::all_of(
        rows.begin(), rows.end(), [scale](const StepRow& row) { return row.loss_scale == scale; });
    if (!constant || !(scale > 0.0)) return std::nullopt;
    shift += (lane == report.focus ? 1.0 : -1.0) * std::log2(scale);
  }
  return shift;
}

/// Returns the names of the zones. The style sheet shows the longer one where it fits.
std::string bands(const Drawing& drawing, const Scale& scale) {
  std::string html = "<div class=\"bands\" aria-hidden=\"true\">";
  const auto zones = zones_of(drawing.window, scale.range.low, scale.range.high);
  const auto names = zone_names(drawing.format);
  for (size_t i = 0; i < zones.size(); ++i) {
    const double from = scale.percent_of(zones[i].from);
    html += fmt::format(
        "<span class=\"t{}\" style=\"left:{:.1f}%;width:{:.1f}%;--n:{};--b:{}\"><b>{}</b><i>{}</i>"
        "</span>",
        zone_class(zones[i].kind), from, scale.percent_of(zones[i].to) - from, names[i].name.size(),
        names[i].brief.size(), escape(names[i].name), escape(names[i].brief));
  }
  return html + "</div>";
}

/// Returns the width of the names of layers in pixels.
size_t names_width(const Drawing& drawing) {
  size_t letters = 0;
  for (const LayerRow& row : drawing.rows) letters = std::max(letters, row.name.size());
  return std::clamp<size_t>(letters * 7 + 14, 40, 136);
}

std::string names(const Drawing& drawing, const std::vector<Ridge>& ridges) {
  std::vector<double> weights(drawing.rows.size(), 1e-6);
  std::vector<bool> guilty(drawing.rows.size(), false);
  for (size_t row = 0; row < drawing.rows.size(); ++row) {
    weights[row] += ridges[row].lost.share();
    for (const int layer : drawing.rows[row].layers) {
      const std::string& path = drawing.report.spectrum.layers[static_cast<size_t>(layer)].path;
      for (const Finding& finding : drawing.report.findings) {
        if (finding.lane == drawing.report.focus && finding.layer == path &&
            finding.severity == Severity::error) {
          guilty[row] = true;
        }
      }
    }
    if (guilty[row]) weights[row] += 10.0;
  }
  std::string html = "<div class=\"names\">";
  for (const int row : rows_to_label(weights, static_cast<float>(drawing.pitch), kLine)) {
    const size_t at = static_cast<size_t>(row);
    html += fmt::format("<span{} style=\"top:{:.1f}px\">{}</span>",
                        guilty[at] ? " class=\"guilty\"" : "", drawing.base(at),
                        escape(drawing.rows[at].name));
  }
  return html + "</div>";
}

/// `references` is empty or has as many rows.
std::string losses(const Drawing& drawing, const std::vector<Ridge>& ridges,
                   const std::vector<Ridge>& references) {
  std::vector<double> weights;
  for (size_t row = 0; row < ridges.size(); ++row) {
    const Ridge& ridge = ridges[row];
    const double share = ridge.lost.share();
    const double spread =
        intended_non_finite(ridge, references.empty() ? nullptr : &references[row])
            ? 0.0
            : ridge.non_finite;
    weights.push_back(share >= kShownLoss || spread > 0.0 ? share + spread : 0.0);
  }
  std::string html = fmt::format("<div class=\"lost{}\">", drawing.alarming ? "" : " calm");
  for (const int row : rows_to_label(weights, static_cast<float>(drawing.pitch), kLine)) {
    const Ridge& ridge = ridges[static_cast<size_t>(row)];
    const bool only_spread = ridge.lost.share() < kShownLoss;
    html += fmt::format("<span style=\"top:{:.1f}px\">{}</span>",
                        drawing.base(static_cast<size_t>(row)),
                        only_spread ? "NaN/Inf" : escape(percent(ridge.lost.share())));
  }
  return html + "</div>";
}

std::string chart_html(const Drawing& drawing, SpectrumChart chart) {
  const Report& report = drawing.report;
  const Spectrum& spectrum = report.spectrum;
  if (!spectrum.any(chart)) return "";
  const Scale scale{fit_range(spectrum, chart, {}, drawing.window)};
  std::vector<Ridge> ridges;
  for (const LayerRow& row : drawing.rows)
    ridges.push_back(make_ridge(spectrum, row.layers, chart, {}, 0.0));
  const std::optional<double> shift = scale_shift(report);
  const bool compares =
      !report.reference_spectrum.layers.empty() && (chart == SpectrumChart::activations || shift);
  const double moved = chart == SpectrumChart::gradients ? shift.value_or(0.0) : 0.0;
  std::vector<Ridge> references;
  for (const LayerRow& row : drawing.rows) {
    if (report.reference_spectrum.layers.empty()) break;
    references.push_back(make_ridge(report.reference_spectrum, row.layers, chart, {}, 0.0));
  }
  std::string svg;
  for (const RidgeZone& zone : zones_of(drawing.window, scale.range.low, scale.range.high)) {
    if (zone.kind == ZoneKind::lost || !(zone.to > zone.from)) continue;
    svg += fmt::format("<rect class=\"z{}\" x=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.0f}\"/>",
                       zone_class(zone.kind), scale.x(zone.from),
                       scale.x(zone.to) - scale.x(zone.from), drawing.height);
  }
  for (size_t row = 0; row < drawing.rows.size(); ++row) {
    svg +=
        ridge_svg(drawing, scale, row, ridges[row], compares ? &references[row] : nullptr, moved);
  }
  std::string ticks;
  const double wide = scale.range.high - scale.range.low;
  const int stride = wide > 36.0 ? 16 : 8;
  for (int e = static_cast<int>(std::ceil(scale.range.low / stride)) * stride;
       e <= scale.range.high; e += stride) {
    ticks += fmt::format("<span style=\"left:{:.1f}%\">{}</span>", scale.percent_of(e),
                         prose(fmt::format("2^{}", e)));
  }
  const LossCount total = total_loss(spectrum, chart, {}, 0.0);
  const std::string lost = total.values == 0  ? "only NaN and infinities"
                           : total.high > 0.0 ? percent(total.share()) + " lost"
                                              : "nothing lost";
  const std::string name = spectrum_chart_name(chart);
  return fmt::format(
      "<figure style=\"--names:{10}px\"><h3>{0} <small{1}>{2}</small></h3>{3}<div "
      "class=\"sp\">{4}<svg viewBox=\"0 0 "
      "1000 {5:.0f}\" preserveAspectRatio=\"none\" style=\"height:{5:.0f}px\" role=\"img\"><title>"
      "{0} of {6}: exponents of every layer</title>{7}</svg>{8}<div class=\"x\">{9}</div></div>"
      "</figure>\n",
      name,
      drawing.alarming && (total.values == 0 || total.share() >= kShownLoss) ? " class=\"bad\""
                                                                             : "",
      escape(lost), bands(drawing, scale), names(drawing, ridges), drawing.height,
      escape(report.lanes[static_cast<size_t>(report.focus)].name), svg,
      losses(drawing, ridges, references), ticks, names_width(drawing));
}

/// Returns a sentence about tensors in other formats than the one whose range is lit.
std::string other_formats(const Report& report, const FloatFormat& lit) {
  for (const SpectrumLayer& layer : report.spectrum.layers) {
    for (const SpectrumChart chart : kCharts) {
      for (const SpectrumTensor& tensor : layer.charts[static_cast<size_t>(chart)]) {
        if (tensor.stats.n > 0 && !(exponent_window(tensor.format) == exponent_window(lit))) {
          return " Tensors in other formats have the colors of their own ranges.";
        }
      }
    }
  }
  return "";
}

/// Returns how the lane in focus ends, and how lanes that work do: before and after the fix.
/// Without such a lane, what the proof measured.
std::string before_and_after(const Report& report) {
  if (report.run.inference) return "";
  std::string list;
  const auto entry = [&](const std::string& name, const std::string& value) {
    list += fmt::format("<li>{} <span>{}</span></li>", escape(name), value);
  };
  const auto lane_entry = [&](const char* when, int index) {
    const LaneReport& lane = report.lanes[static_cast<size_t>(index)];
    entry(when + lane.name, value_text(lane.last_loss));
  };
  const std::vector<int> healthy = healthy_siblings(report, report.focus);
  if (!healthy.empty()) {
    lane_entry("Before: ", report.focus);
    for (const int lane : healthy) lane_entry("With ", lane);
    if (report.reference >= 0) lane_entry("Full precision: ", report.reference);
    return "<p class=\"how\">Final loss</p><ul class=\"ends\">" + list + "</ul>";
  }
  if (!report.proof || !report.proof->holds || report.proof_lane != report.focus) return "";
  const std::string& own = report.lanes[static_cast<size_t>(report.focus)].name;
  for (const Trial& trial : report.proof->trials) {
    if (trial.kind == Trial::Kind::leave_one_out) continue;
    const bool before = trial.kind == Trial::Kind::original;
    entry(before ? "Before: " + own : "With the change", escape(report::gap_text(trial.gap)));
  }
  return "<p class=\"how\">Loss gap in the proof</p><ul class=\"ends\">" + list + "</ul>";
}

/// Returns whether other formats would do: bf16 if values are lost in a smaller range, else
/// narrower ones.
std::string fit_sentence(const Report& report, const FloatFormat& format) {
  LossCount own;
  for (const SpectrumChart chart : kCharts) own.add(total_loss(report.spectrum, chart, {}, 0.0));
  if (own.values == 0) return "";
  std::string text;
  const auto add = [&](const char* lens) {
    text += (text.empty() ? "" : " ") + lens_answer(report.spectrum, kCharts, *parse_lens(lens));
  };
  if (narrow_exponent(format) && own.share() >= kShownLoss) {
    add("bf16");
  } else {
    add("e4m3fn");
    add("mxfp8_e4m3");
  }
  return "<p class=\"fits\">" + prose(text) +
         " <span class=\"soft\">Estimated from histograms.</span></p>\n";
}

/// Returns a tensor's name that can break before its last part.
std::string tensor_name(const std::string& name) {
  const size_t dot = std::min(name.rfind('.'), name.size());
  return escape(name.substr(0, dot)) + "<wbr/>" + escape(name.substr(dot));
}

std::string formats_table(const Report& report) {
  std::string rows;
  for (const char* text :
       {"fp32", "bf16", "fp16", "e5m2", "e4m3fn", "e4m3fn/tensor", "mxfp8_e4m3", "nvfp4"}) {
    const Lens lens = *parse_lens(text);
    LossCount all;
    for (const SpectrumChart chart : kCharts)
      all.add(total_loss(report.spectrum, chart, lens, 0.0));
    const WorstTensor worst = worst_tensor(report.spectrum, kCharts, lens, 0.0);
    rows += fmt::format(
        "<tr><th scope=\"row\">{}</th><td class=\"n\">{}</td><td "
        "class=\"n\">{}</td><td>{}</td></tr>\n",
        escape(lens_name(lens)), all.high > 0.0 ? escape(percent(all.share())) : "0",
        worst.layer < 0 ? "0" : escape(percent(worst.lost.share())),
        worst.layer < 0 ? "" : tensor_name(worst.name));
  }
  return "<details><summary>Other formats</summary>\n" +
         scroll_begin("What other formats would lose") +
         "<table class=\"formats\"><caption>Values that would become zero or overflow, of those "
         "that are finite and not zero. Estimated from the histograms of the whole run; training "
         "in the format would change the values.</caption><thead><tr><th scope=\"col\">Format</th>"
         "<th scope=\"col\" class=\"n\">Lost</th><th scope=\"colgroup\" colspan=\"2\">Worst "
         "tensor</th></tr></thead><tbody>\n" +
         rows + "</tbody></table></div></details>\n";
}

}  // namespace

std::string spectrum_section(const Report& report) {
  if (report.focus < 0) return "";
  std::vector<std::string> paths;
  for (const SpectrumLayer& layer : report.spectrum.layers) paths.push_back(layer.path);
  Drawing drawing{.report = report};
  drawing.rows = fold_layers(paths, static_cast<size_t>((kHeight - kPeak) / kLeastPitch), {}, {});
  if (drawing.rows.empty()) return "";
  const FloatFormat format = main_format(report.spectrum);
  drawing.window = exponent_window(format);
  drawing.format = format;
  drawing.alarming =
      report.lanes[static_cast<size_t>(report.focus)].state != Verdict::State::healthy;
  const auto count = static_cast<double>(drawing.rows.size());
  drawing.pitch = std::clamp((kHeight - kPeak) / count, kLeastPitch, kMostPitch);
  drawing.height = drawing.base(drawing.rows.size() - 1) + 4.0;
  std::string charts;
  for (const SpectrumChart chart : kCharts) charts += chart_html(drawing, chart);
  if (charts.empty()) return "";
  return "<section class=\"spectrum\" aria-labelledby=\"spectrum\"><h2 id=\"spectrum\" "
         "class=\"sr\">Spectrum</h2>\n<div class=\"hero-charts\">" +
         charts + "<div>" + loss_chart(report) + before_and_after(report) +
         "</div></div>\n<p class=\"how\">" +
         fmt::format(
             "How to read it: every layer of {} is a ridge over the exponents of its values in the "
             "whole run; its height is the square root of their share. {} lit. The numbers are the "
             "largest share of a tensor that becomes zero or {}. Thin line: full "
             "precision.{}</p>\n",
             escape(report.lanes[static_cast<size_t>(report.focus)].name),
             format.evenly_spaced()
                 ? "The range of " + format_name(format) + " codes, in steps of their scale, is"
                 : format_name(format) + "'s normal range is",
             format.evenly_spaced() ? "is clipped" : "overflows", other_formats(report, format)) +
         fit_sentence(report, format) + formats_table(report) + "</section>\n";
}

}  // namespace halfscope::html
