// SPDX-License-Identifier: MIT
// The layers: one table row each with its exponent histograms, and every tensor of the layers that
// lose most or add most error.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/format_limits.h"
#include "analysis/report/html_parts.h"
#include "analysis/report/report_parts.h"
#include "analysis/rules/text.h"

namespace halfscope::html {
namespace {

using report::Rates;
using report::rates_of;
using report::suffering;

constexpr size_t kWorstLayers = 30;

enum class Column : uint8_t { weights, activations, gradients, updates };

bool belongs(const SiteReport& site, Column column) {
  switch (column) {
    case Column::weights:
      return site.role == Role::weight || site.role == Role::state;
    case Column::activations:
      return site.role == Role::activation || site.role == Role::input;
    case Column::gradients:
      return site.role == Role::activation_grad || site.role == Role::weight_grad;
    case Column::updates:
      return site.role == Role::update;
  }
  return false;
}

/// Returns the tensor that represents a layer in a column: the one that loses most, else the last
/// of those roles (a layer's own output, the gradient of it). Null if the layer has none.
const SiteReport* speaker(const LayerReport& layer, Column column) {
  const SiteReport* best = nullptr;
  const auto weight = [](const SiteReport& site) {
    const Rates rates = rates_of(site);
    return rates.overflow + rates.underflow + rates.lost;
  };
  for (const SiteReport& site : layer.sites) {
    if (!belongs(site, column) || site.n == 0) continue;
    if (best == nullptr || weight(site) >= weight(*best)) best = &site;
  }
  return best;
}

/// Returns whether what a layer loses is shown as an alarm: its lane has a problem, or a finding
/// warns of the layer.
bool is_alarming(const Report& report, const LayerReport& layer) {
  const LaneReport& lane = report.lanes[static_cast<size_t>(layer.lane)];
  return lane.state != Verdict::State::healthy ||
         std::any_of(report.findings.begin(), report.findings.end(), [&](const Finding& finding) {
           return finding.lane == layer.lane && finding.layer == layer.path &&
                  finding.severity >= Severity::warning;
         });
}

/// Returns the cell with the worst loss of a column's worst tensor. The tooltip names the tensor
/// and what the share is of.
std::string rate_cell(const Report& report, const LayerReport& layer, Column column) {
  const SiteReport* site = speaker(layer, column);
  if (site == nullptr) return "<td></td>";
  const Rates rates = rates_of(*site);
  const char* const bad = is_alarming(report, layer) ? " bad" : "";
  const char* kind = " soft";
  std::string text = "0", title = "no overflow, no underflow";
  const auto say = [&](const char* look, double value, const char* what, const char* of) {
    kind = look;
    text = percent(value) + " " + what;
    title = text + ", " + of;
  };
  if (rates.overflow > 0.0) {
    say(bad, rates.overflow, site->scale.empty() ? "overflow" : "saturate", kOfAllValues);
  } else if (rates.lost > 0.0) {
    say(rates.lost > 0.5 ? bad : "", rates.lost, "lost", kOfNonZeroUpdates);
  } else if (rates.underflow > 0.01) {
    say(bad, rates.underflow, "underflow", kOfNonZeroValues);
  } else if (rates.non_finite() > 0.0) {
    say(" soft", rates.non_finite(), "NaN/Inf", kOfAllValues);
  } else if (rates.underflow > 0.0) {
    say(rates.underflow >= 1e-4 ? "" : " soft", rates.underflow, "underflow", kOfNonZeroValues);
    if (rates.underflow < 1e-4) text = percent(rates.underflow);  // not worth a word
  }
  return fmt::format("<td class=\"n{}\" title=\"{}: {}\">{}</td>", kind, escape(site->name),
                     escape(title), escape(text));
}

std::string drawing_cell(const LayerReport& layer, Column column, const ExponentAxis& axis,
                         bool drawings) {
  const SiteReport* site = speaker(layer, column);
  return "<td>" + (site != nullptr && drawings ? histogram(*site, axis, false) : "") + "</td>";
}

/// Returns two cells: up, the least of the forward pass, because a loss scale cannot help it; down,
/// the least of all tensors that are read again.
std::string headroom_cells(const Report& report, const LayerReport& layer) {
  std::optional<double> up, down;
  const auto least = [](std::optional<double>& so_far, const std::optional<double>& value) {
    if (value && (!so_far || *value < *so_far)) so_far = value;
  };
  for (const SiteReport& site : layer.sites) {
    // A scale brings the largest value to the top of the codes: no room is left on purpose.
    if (site.role == Role::update || site.role == Role::state || !site.scale.empty()) continue;
    if (belongs(site, Column::activations) || belongs(site, Column::weights)) {
      least(up, site.headroom_bits);
    }
    least(down, site.headroom_down_bits);
  }
  const auto cell = [&](const std::optional<double>& bits, const char* form) {
    if (!bits) return std::string("<td class=\"n soft\">&ndash;</td>");
    const bool alarming = *bits < 0.0 && is_alarming(report, layer);
    return fmt::format("<td class=\"n{}\">{}</td>", alarming ? " bad" : "",
                       fmt::format(fmt::runtime(form), *bits));
  };
  return cell(up, "{:.1f}") + cell(down, "{:.0f}");
}

/// Returns whether the reference has as many NaN and infinities in this layer: a causal mask's, for
/// instance.
bool as_in_reference(const Report& report, const LayerReport& layer) {
  const auto same =
      std::find_if(report.layers.begin(), report.layers.end(), [&](const LayerReport& each) {
        return each.lane == report.reference && each.path == layer.path;
      });
  return same != report.layers.end() &&
         report::worst_rates(layer).non_finite() <= 1.01 * report::worst_rates(*same).non_finite();
}

std::string advice_cell(const Report& report, const LayerReport& layer) {
  if (!layer.advice.empty()) {
    return fmt::format("<td class=\"advice\"><span class=\"do-it\">{}</span></td>",
                       escape(layer.advice));
  }
  const LaneReport& lane = report.lanes[static_cast<size_t>(layer.lane)];
  const FloatFormat& computes = full_precision(layer.write) ? layer.read : layer.write;
  if (lane.reference || full_precision(computes)) return "<td class=\"soft\">in fp32</td>";
  const Rates rates = report::worst_rates(layer);
  if (rates.overflow == 0.0 && rates.non_finite() > 0.0 && !as_in_reference(report, layer))
    return "<td class=\"soft\">inherits NaN/Inf</td>";
  return fmt::format("<td class=\"soft\">{}</td>",
                     rates.overflow > 0.0 && is_alarming(report, layer)
                         ? "watch"
                         : "ok in " + format_name(computes));
}

std::string layer_row(const Report& report, const LayerReport& layer, const ExponentAxis& axis,
                      bool drawings, bool detailed) {
  const std::string id = layer_anchor(report, layer.lane, layer.path);
  const std::string read = format_name(layer.read), write = format_name(layer.write);
  std::string name = escape(layer.path);
  if (detailed) name = fmt::format("<a href=\"#tensors-{}\">{}</a>", id, name);
  return fmt::format("<tr id=\"{}\"{}><th scope=\"row\">{} <small>{}</small></th><td>{}</td>", id,
                     layer.advice.empty() ? "" : " class=\"advised\"", name, escape(layer.op),
                     escape(read == write ? write : read + "/" + write)) +
         rate_cell(report, layer, Column::weights) +
         drawing_cell(layer, Column::activations, axis, drawings) +
         rate_cell(report, layer, Column::activations) +
         (report.run.inference ? ""
                               : drawing_cell(layer, Column::gradients, axis, drawings) +
                                     rate_cell(report, layer, Column::gradients) +
                                     rate_cell(report, layer, Column::updates)) +
         headroom_cells(report, layer) + advice_cell(report, layer) + "</tr>\n";
}

/// Returns the head of a table of layers. Inference has no columns for gradients and updates.
std::string table_head(const std::string& caption, bool inference) {
  const std::string gradients = inference ? ""
                                          : "<th colspan=\"2\" scope=\"colgroup\">Gradients</th>"
                                            "<th scope=\"col\" class=\"n\">Updates</th>";
  const std::string losses =
      inference ? ""
                : "<th scope=\"col\">exponents</th><th scope=\"col\" class=\"n\">loses</th>"
                  "<th scope=\"col\" class=\"n\">lose</th>";
  return "<table class=\"layers sort\"><caption>" + caption +
         "</caption><thead><tr><td colspan=\"2\"></td><th scope=\"col\" class=\"n\">Weights</th>"
         "<th colspan=\"2\" scope=\"colgroup\">Activations</th>" +
         gradients +
         "<th colspan=\"2\" scope=\"colgroup\" class=\"n\">Headroom, bits</th><td></td></tr>\n"
         "<tr><th scope=\"col\">Layer</th><th scope=\"col\">Format</th>"
         "<th scope=\"col\" class=\"n\">loses</th><th scope=\"col\">exponents</th>"
         "<th scope=\"col\" class=\"n\">loses</th>" +
         losses +
         "<th scope=\"col\" class=\"n\">up</th><th scope=\"col\" class=\"n\">down</th>"
         "<th scope=\"col\">Advice</th></tr></thead>\n<tbody>\n";
}

std::string rate_text(const char* what, double value, double bad_from) {
  return fmt::format("{} <b{}>{}</b>", what, value > bad_from ? " class=\"bad\"" : "",
                     escape(percent(value)));
}

std::string power(int exponent) { return prose(fmt::format("2^{}", exponent)); }

std::string tensor_block(const SiteReport& site, const ExponentAxis& axis,
                         const SiteErrorReport* error, const std::string& other) {
  const Rates rates = rates_of(site);
  std::string html = fmt::format(
      "<div class=\"tensor\"><div><b>{}</b> <span class=\"soft\">{}, {}</span>"
      "<div class=\"nums\">",
      escape(site.tensor), escape(format_name(site.format)), role_name(site.role));
  if (!site.scale.empty()) {
    html += fmt::format("<span class=\"soft\">codes, scaled by {}</span><br>", escape(site.scale));
  }
  if (site.n == 0) return html + "not measured</div></div></div>\n";
  // Codes of scaled operands saturate. It is no alarm if only the largest do.
  const double alarming = site.scale.empty() ? 0.0 : 0.01;
  html += std::string(kOfAllValues) + ": " +
          rate_text(site.scale.empty() ? "overflow" : "saturated", rates.overflow, alarming) +
          ", " + rate_text("Inf", rates.infinite, alarming) + ", " +
          rate_text("NaN", rates.nan, 0.0) + ", " + rate_text("zero", rates.zero, 1.0) + "<br>" +
          kOfNonZeroValues + ": " + rate_text("underflow", rates.underflow, 0.01) + ", " +
          rate_text("subnormal", rates.subnormal, 1.0);
  if (site.role == Role::update) {
    html += "<br>" + std::string(kOfNonZeroUpdates) + ": " + rate_text("lost", rates.lost, 0.5);
  }
  html += fmt::format("<br>largest <b>{}</b>", site.max_abs ? short_number(*site.max_abs) : "-");
  html += fmt::format(", rms <b>{}</b>", site.rms ? short_number(*site.rms) : "-");
  if (site.headroom_bits) {
    html += fmt::format("<br>headroom <b>{:.1f}</b> bits up", *site.headroom_bits);
    if (site.headroom_down_bits)
      html += fmt::format(", <b>{:.0f}</b> down", *site.headroom_down_bits);
  }
  html += fmt::format(
      "</div></div><div>{}<div class=\"axis\"><span>{}</span><span>{}</span><span>{}</span></div>",
      histogram(site, axis, true), power(axis.low), power((axis.low + axis.high + 1) / 2),
      power(axis.high + 1));
  if (error != nullptr) html += distance_block(*error, other);
  return html + "</div></div>\n";
}

using LayerNames = std::set<std::pair<int, std::string>>;

/// Returns lane and path of the layers that findings point at.
LayerNames named_layers(const Report& report) {
  LayerNames named;
  for (const Finding& finding : report.findings) {
    if (finding.severity >= Severity::warning) named.emplace(finding.lane, finding.layer);
  }
  return named;
}

/// Returns the layers whose own operators add most error, a few per comparison.
LayerNames adding_layers(const Report& report) {
  constexpr size_t kShown = 5;
  LayerNames names;
  for (const ErrorReport& errors : report.errors) {
    std::vector<const SiteErrorReport*> sites;
    for (const SiteErrorReport& site : errors.sites) {
      if (site.local() && *site.local() > 0.0) sites.push_back(&site);
    }
    std::stable_sort(sites.begin(), sites.end(),
                     [](const auto* a, const auto* b) { return *a->local() > *b->local(); });
    for (size_t i = 0; i < std::min(sites.size(), kShown); ++i) {
      names.emplace(errors.lane, sites[i]->layer);
    }
  }
  return names;
}

std::vector<size_t> detailed_layers(const Report& report, const LayerNames& named) {
  std::vector<size_t> order;
  const LayerNames adding = adding_layers(report);
  const auto weight = [&](size_t i) {
    const LayerReport& layer = report.layers[i];
    const std::pair<int, std::string> key{layer.lane, layer.path};
    return suffering(layer) + (named.contains(key) ? 100.0 : 0.0) +
           (adding.contains(key) ? 1.0 : 0.0);
  };
  for (size_t i = 0; i < report.layers.size(); ++i) {
    const bool reference = report.lanes[static_cast<size_t>(report.layers[i].lane)].reference;
    if (reference && report.lanes.size() > 1) continue;  // what the others are measured by
    if (!report.layers[i].listed) continue;
    if (weight(i) > report::kWorthShowing && !report.layers[i].sites.empty()) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return weight(a) > weight(b); });
  if (order.size() > kWorstLayers) order.resize(kWorstLayers);
  std::sort(order.begin(), order.end());  // shown in execution order
  return order;
}

std::string tensors_of(const Report& report, const std::vector<size_t>& layers,
                       const LayerNames& named, const ExponentAxis& axis) {
  std::string html;
  for (size_t i : layers) {
    const LayerReport& layer = report.layers[i];
    const ErrorReport* errors = nullptr;
    for (const ErrorReport& candidate : report.errors) {
      if (candidate.lane == layer.lane && errors == nullptr) errors = &candidate;
    }
    html += fmt::format(
        "<details class=\"layer\" id=\"tensors-{}\"{}><summary><b>{}</b> "
        "<span class=\"soft\">{}, {}</span></summary>\n",
        layer_anchor(report, layer.lane, layer.path),
        named.size() <= 3 && named.contains({layer.lane, layer.path}) ? " open" : "",
        escape(layer.path), escape(layer.op),
        escape(report.lanes[static_cast<size_t>(layer.lane)].name));
    for (const SiteReport& site : layer.sites) {
      const SiteErrorReport* error = nullptr;
      if (errors != nullptr) {
        const auto place = std::lower_bound(
            errors->sites.begin(), errors->sites.end(), site.order,
            [](const SiteErrorReport& each, int order) { return each.site < order; });
        if (place != errors->sites.end() && place->site == site.order) error = &*place;
      }
      html += tensor_block(
          site, axis, error,
          errors != nullptr ? report.lanes[static_cast<size_t>(errors->other)].name : "");
    }
    html += "</details>\n";
  }
  return html;
}

std::vector<size_t> lines_of(const Report& report, int lane, size_t& left_out) {
  std::vector<size_t> lines;
  for (size_t i = 0; i < report.layers.size(); ++i) {
    if (report.layers[i].lane != lane) continue;
    if (report.layers[i].listed) lines.push_back(i);
    left_out += report.layers[i].listed ? 0 : 1;
  }
  return lines;
}

}  // namespace

bool has_line(const Report& report, int lane, const std::string& path) {
  return std::any_of(report.layers.begin(), report.layers.end(), [&](const LayerReport& layer) {
    return layer.lane == lane && layer.listed && layer.path == path;
  });
}

std::string layer_section(const Report& report, size_t size_so_far) {
  if (report.layers.empty()) return "";
  const ExponentAxis axis = fit_axis(report);
  const LayerNames named = named_layers(report);
  const std::vector<size_t> worst = detailed_layers(report, named);
  const std::string tensors = tensors_of(report, worst, named, axis);

  std::string html = "<section aria-labelledby=\"layers\"><h2 id=\"layers\">Layers</h2>\n" +
                     band_definitions(report, axis);
  html +=
      fmt::format(
          "<p class=\"how\">How to read it: a histogram shows the magnitudes of a tensor's values "
          "over the whole run, from {} on the left to {} on the right. The background shows the "
          "range of its format. Bar heights are square roots, so that thin tails are visible. "
          "{}Each percentage belongs to the layer's worst tensor of that kind, over all recorded "
          "steps: overflow and NaN/Inf as a share of all values, underflow{} as a share of the "
          "non-zero ones.</p>\n",
          power(axis.low), power(axis.high + 1),
          report.run.inference ? "" : "Gradients are shown as stored, times the loss scale. ",
          report.run.inference ? "" : " and lost updates") +
      histogram_key();

  const int focus = report.focus;
  std::vector<int> lanes{focus};
  for (int lane = 0; lane < static_cast<int>(report.lanes.size()); ++lane) {
    if (lane != focus) lanes.push_back(lane);
  }
  size_t undrawn = 0;
  for (int lane : lanes) {
    const LaneReport& info = report.lanes[static_cast<size_t>(lane)];
    size_t left_out = 0;
    std::string rows;
    for (size_t i : lines_of(report, lane, left_out)) {
      const bool drawings =
          size_so_far + tensors.size() + html.size() + rows.size() < kDrawingBudget;
      undrawn += drawings ? 0 : 1;
      rows += layer_row(report, report.layers[i], axis, drawings,
                        std::binary_search(worst.begin(), worst.end(), i));
    }
    const std::string title = escape(info.name) + (info.reference ? " (reference)" : "");
    std::string table =
        scroll_begin("Layers of " + info.name) +
        table_head("Layers of " + title + ", in execution order", report.run.inference) + rows +
        "</tbody></table></div>\n";
    if (left_out > 0) {
      table += fmt::format(
          "<p class=\"how\">The {} layers that lose most. {} more are in the JSON and CSV "
          "reports.</p>\n",
          kListedLayers, left_out);
    }
    if (lane == focus) {
      html += "<h3>" + title + "</h3>\n" + table;
    } else {
      html += "<details><summary>Layers of " + title + "</summary>\n" + table + "</details>\n";
    }
  }
  if (undrawn > 0) {
    html += fmt::format(
        "<p class=\"how\">To keep this page small, the last {} have no histograms. The JSON report "
        "has all of them.</p>\n",
        counted(static_cast<int64_t>(undrawn), "row"));
  }
  if (!tensors.empty()) {
    html += "<h3 id=\"tensors\">Tensors of the layers that lose most or add most error</h3>\n" +
            tensors;
  }
  return html + "</section>\n";
}

}  // namespace halfscope::html
