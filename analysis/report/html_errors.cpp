// SPDX-License-Identifier: MIT
// Errors relative to another lane: for every layer the error its operator adds and the error it
// inherits with its operands, and the distances of single elements, on one logarithmic axis.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/distances.h"
#include "analysis/report/html_parts.h"
#include "analysis/report/report_parts.h"
#include "analysis/rules/text.h"

namespace halfscope::html {
namespace {

/// More lines than this become one drawing and a table of those that add most.
constexpr size_t kLines = 40;
constexpr size_t kLinesOfMany = 20;

/// The logarithmic axis of relative errors, one for all lanes so that they can be compared: from
/// less than a rounding to fp32 adds up to ten times the value. What is outside is at its ends.
struct Decades {
  static constexpr int low = -8, high = 1;
  static constexpr int count() { return high - low; }
  /// 0 to 1.
  static double position(double value) {
    return std::clamp((std::log10(value) - low) / count(), 0.0, 1.0);
  }
};

bool drawable(const std::optional<double>& value) {
  return value && *value > 0.0 && std::isfinite(*value);
}

/// Returns "3.1e-4": with relative errors the order of magnitude matters.
std::string small_number(const std::optional<double>& value) {
  if (!value) return "&ndash;";
  if (*value == 0.0) return "0";
  if (!std::isfinite(*value)) return std::isnan(*value) ? "NaN" : "inf";
  const int exponent = static_cast<int>(std::floor(std::log10(*value)));
  if (exponent >= -2) return fmt::format("{:.2g}", *value);
  return fmt::format("{:.1f}e&minus;{}", *value / std::pow(10.0, exponent), -exponent);
}

/// Half an ulp at 1: the largest relative error of one rounding.
double unit_roundoff(const FloatFormat& format) {
  return std::ldexp(1.0, -format.mantissa_bits - 1);
}

std::string mark(const char* kind, const std::optional<double>& value) {
  if (!drawable(value)) return "";
  return fmt::format("<i class=\"{}\" style=\"left:{:.1f}%\"></i>", kind,
                     100.0 * Decades::position(*value));
}

const char* mostly(const SiteErrorReport& site) {
  if (!site.total) return "not finite";
  if (!site.local() || !site.inherited) return "";
  if (*site.local() == 0.0 && *site.inherited == 0.0) return "exact";
  if (*site.local() > 2.0 * *site.inherited) return "adds";
  if (*site.inherited > 2.0 * *site.local()) return "passes on";
  return "both";
}

std::string axis_head() {
  std::string html = "<div class=\"ticks\" aria-hidden=\"true\">";
  for (int e = Decades::low; e <= Decades::high; e += 2) {
    const double left = 100.0 * (e - Decades::low) / Decades::count();
    html += fmt::format(
        "<span style=\"left:{:.1f}%\">{}</span>", left,
        e == 0 ? "1" : fmt::format("10<sup>{}{}</sup>", e < 0 ? "&minus;" : "", std::abs(e)));
  }
  return html + "</div>";
}

/// Returns "12 (3%)"; "0".
std::string not_finite_text(const SiteErrorReport& site) {
  if (site.not_finite == 0) return "0";
  return fmt::format("{} ({})", site.not_finite, percent(report::share(site.not_finite, site.n)));
}

std::string error_row(const Report& report, int lane, const SiteErrorReport& site, bool forward,
                      bool flips) {
  std::string plot = "<div class=\"dots\" aria-hidden=\"true\">";
  plot += mark("u", unit_roundoff(site.format));
  plot += mark("in", site.inherited) + mark("lo", site.local());
  if (site.not_finite > 0) plot += "<i class=\"gone\" style=\"left:100%\"></i>";
  plot += "</div>";
  std::string html = fmt::format(
      "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>"
      "<td class=\"n\">{}</td><td class=\"soft\">{}</td>",
      layer_link(report, lane, site.layer, forward ? site.layer : site.name), plot,
      small_number(site.local()), small_number(site.inherited), small_number(site.total),
      mostly(site));
  html += fmt::format("<td class=\"n{}\">{}</td>", site.not_finite > 0 ? " bad" : " soft",
                      escape(not_finite_text(site)));
  if (flips) {
    html +=
        fmt::format("<td class=\"n{}\">{}</td>", site.sign_flips == 0 ? " soft" : "",
                    site.feeds_relu ? escape(percent(report::share(site.sign_flips, site.n))) : "");
  }
  return html + "</tr>\n";
}

std::string error_table(const Report& report, const ErrorReport& errors,
                        const std::vector<const SiteErrorReport*>& sites,
                        const std::string& caption, bool flips) {
  // A layer has one activation, but several gradients.
  const bool forward = sites.front()->phase == Phase::forward;
  std::string html =
      scroll_begin(caption) +
      fmt::format(
          "<table class=\"errors sort\" style=\"--d:{}\"><caption>{}</caption><thead>"
          "<tr><th scope=\"col\">{}</th><th scope=\"col\" class=\"plotted\">{}"
          "</th><th scope=\"col\" class=\"n\">Local</th>"
          "<th scope=\"col\" class=\"n\">Inherited</th>"
          "<th scope=\"col\" class=\"n\">Total</th><th scope=\"col\">Mostly</th>"
          "<th scope=\"col\" class=\"n\">NaN/Inf</th>{}</tr></thead><tbody>\n",
          Decades::count(), escape(caption), forward ? "Layer" : "Tensor",
          "<span class=\"sr\">Local and inherited error on a logarithmic axis</span>" + axis_head(),
          flips ? "<th scope=\"col\" class=\"n\">Sign flips</th>" : "");
  for (const SiteErrorReport* site : sites) {
    html += error_row(report, errors.lane, *site, forward, flips);
  }
  return html + "</tbody></table></div>\n";
}

/// One mark of no length per value: a round or a square cap is all the ink it gets, so that marks
/// keep their shape however wide the page is.
std::string dense_chart(const std::vector<const SiteErrorReport*>& sites) {
  std::string local, inherited, gone, grid, ticks;
  const double step = 1000.0 / static_cast<double>(sites.size());
  for (size_t i = 0; i < sites.size(); ++i) {
    const double x = (static_cast<double>(i) + 0.5) * step;
    const auto add = [&](std::string& path, const std::optional<double>& value) {
      if (!drawable(value)) return;
      path += fmt::format("M{:.1f} {:.1f}h.01", x, 100.0 - 100.0 * Decades::position(*value));
    };
    add(local, sites[i]->local());
    add(inherited, sites[i]->inherited);
    if (sites[i]->not_finite > 0) gone += fmt::format("M{:.1f} 0h.01", x);
  }
  for (int e = Decades::low; e <= Decades::high; ++e) {
    const double y = 100.0 - 100.0 * (e - Decades::low) / Decades::count();
    grid += fmt::format("<path class=\"grid\" d=\"M0 {:.1f}h1000\"/>", y);
    if ((e - Decades::low) % 3 != 0) continue;
    ticks += fmt::format("<span style=\"top:{:.1f}%\">10<sup>{}{}</sup></span>", y,
                         e < 0 ? "&minus;" : "", std::abs(e));
  }
  return fmt::format(
      "<div class=\"plot dense\"><div class=\"y\">{}</div><svg viewBox=\"0 0 1000 100\" "
      "preserveAspectRatio=\"none\" role=\"img\"><title>Local and inherited relative error of {} "
      "tensors in execution order</title>{}<path class=\"din\" d=\"{}\"/>"
      "<path class=\"dlo\" d=\"{}\"/><path class=\"dgone\" d=\"{}\"/></svg><div "
      "class=\"x\"><span>{}</span><span>{}</span></div>"
      "</div>\n<p class=\"how\">In the drawing, round marks are local errors and square marks "
      "inherited ones. A mark at the top edge is a tensor with NaN or Inf. Tensors are in "
      "execution "
      "order.</p>\n",
      ticks, sites.size(), grid, inherited, local, gone, escape(sites.front()->name),
      escape(sites.back()->name));
}

std::string group(const Report& report, const ErrorReport& errors,
                  const std::vector<const SiteErrorReport*>& sites, const std::string& what,
                  bool flips) {
  if (sites.empty()) return "";
  const std::string other = report.lanes[static_cast<size_t>(errors.other)].name;
  if (sites.size() <= kLines) {
    return error_table(report, errors, sites,
                       what + " compared with " + other + ", in execution order", flips);
  }
  std::vector<const SiteErrorReport*> most = sites;
  std::stable_sort(most.begin(), most.end(), [](const auto* a, const auto* b) {
    if ((a->not_finite > 0) != (b->not_finite > 0)) return a->not_finite > 0;
    return a->local().value_or(0.0) > b->local().value_or(0.0);
  });
  most.resize(kLinesOfMany);
  return dense_chart(sites) +
         error_table(
             report, errors, most,
             fmt::format("{} compared with {}: the {} of {} with NaN or Inf or most local error",
                         what, other, kLinesOfMany, sites.size()),
             flips);
}

std::string comparison(const Report& report, const ErrorReport& errors) {
  const std::string& lane = report.lanes[static_cast<size_t>(errors.lane)].name;
  const std::string& other = report.lanes[static_cast<size_t>(errors.other)].name;
  std::vector<const SiteErrorReport*> forward, backward;
  bool flips = false;
  for (const SiteErrorReport& site : errors.sites) {
    if (site.role == Role::activation && site.phase == Phase::forward) forward.push_back(&site);
    if (site.phase == Phase::backward) backward.push_back(&site);
    flips = flips || (site.feeds_relu && site.sign_flips > 0);
  }
  std::string html = fmt::format("<h4>{} compared with {}</h4>\n<p>{}</p>\n", escape(lane),
                                 escape(other), prose(errors.text));
  html +=
      "<div class=\"key\"><span><i class=\"lo\"></i>local: added by this operator</span>"
      "<span><i class=\"in\"></i>inherited: came in with its operands</span>"
      "<span><i class=\"u\"></i>one rounding in the tensor's format</span>"
      "<span><i class=\"gone\"></i>NaN or Inf in one lane only (not counted in the "
      "errors)</span></div>\n";
  html += group(report, errors, forward, "Activations of " + lane, flips);
  if (!backward.empty()) {
    html += "<details><summary>Gradients of " + escape(lane) + " compared with " + escape(other) +
            "</summary>\n" + group(report, errors, backward, "Gradients of " + lane, false) +
            "</details>\n";
  }
  const size_t steps = errors.steps.size();
  html += fmt::format(
      "<p class=\"how\">How to read it: a mark is the relative error of a whole tensor, the median "
      "over {}{}. Further right is worse. If the filled mark is further right, the layer adds "
      "error; if the hollow one is, it passes error on. NaN and Inf are counted over these "
      "steps.</p>\n",
      counted(static_cast<int64_t>(steps), "sampled step"),
      steps == 0   ? ""
      : steps == 1 ? fmt::format(" (step {})", errors.steps.front())
                   : fmt::format(" ({} to {})", errors.steps.front(), errors.steps.back()));
  return html;
}

}  // namespace

std::string errors_section(const Report& report) {
  std::string html;
  for (const ErrorReport& errors : report.errors) html += comparison(report, errors);
  if (html.empty()) return "";
  return "<h3 id=\"errors\">Where the error comes from</h3>\n" + html;
}

std::string distance_block(const SiteErrorReport& error, const std::string& other) {
  const auto bars = distance_bars(error.ulps, error.format, error.not_finite);
  int64_t total = 0, most = 0;
  for (const DistanceBar& bar : bars) {
    total += bar.count;
    most = std::max(most, bar.count);
  }
  if (total == 0) return "";
  std::string drawing, labels;
  for (size_t i = 0; i < bars.size(); ++i) {
    const DistanceBar& bar = bars[i];
    labels += fmt::format("<span>{}</span>", bar.label);
    if (bar.count == 0) continue;
    const double full = std::sqrt(static_cast<double>(bar.count) / static_cast<double>(most));
    const int height = std::max(1, static_cast<int>(std::lround(16.0 * full)));
    const char* look = bar.kind == DistanceBar::Kind::equal        ? "ge"
                       : bar.kind == DistanceBar::Kind::small      ? "g"
                       : bar.kind == DistanceBar::Kind::not_finite ? "nf"
                                                                   : "w";
    drawing += fmt::format("<rect class=\"{}\" x=\"{}.1\" y=\"{}\" width=\".8\" height=\"{}\"/>",
                           look, i, 16 - height, height);
  }
  std::string text = fmt::format(
      "compared with {}: {} of the values are equal, {} within 1 ulp of {}", other,
      percent(report::share(error.ulps[0], total)),
      percent(report::share(error.ulps[0] + error.ulps[1], total)), format_name(error.format));
  if (error.not_finite > 0) {
    text += fmt::format(", {} NaN or Inf in one lane only", not_finite_text(error));
  }
  return fmt::format(
      "<div class=\"ulps\"><div class=\"nums\">{}</div><svg viewBox=\"0 0 {} 16\" "
      "preserveAspectRatio=\"none\" role=\"img\"><title>Relative differences of {}, {}</title>{}"
      "</svg><div class=\"axis even\">{}</div></div>",
      escape(text), bars.size(), escape(error.name), escape(text), drawing, labels);
}

}  // namespace halfscope::html
