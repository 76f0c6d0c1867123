// SPDX-License-Identifier: MIT
// report.html: one self-contained page without scripts. Verdict first, then what to do, then the
// evidence, then how every number is defined and how to get them again.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/report/html_parts.h"
#include "analysis/rules/loss_scale_window.h"
#include "analysis/rules/text.h"

namespace halfscope {
namespace html {

std::string escape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '%':  // a number must not part from its sign at a line's end
        if (!out.empty() && out.back() == ' ') out.replace(out.size() - 1, 1, "&nbsp;");
        out += c;
        break;
      default:
        if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f) {
          out += "&#xFFFD;";
        } else {
          out += c;
        }
    }
  }
  return out;
}

std::string prose(std::string_view text) {
  std::string out;
  const std::string safe = escape(text);
  const auto digit = [&](size_t i) { return i < safe.size() && safe[i] >= '0' && safe[i] <= '9'; };
  for (size_t i = 0; i < safe.size(); ++i) {
    size_t end = i + 1;
    if (safe[i] == '^' && i > 0 && safe[i - 1] == '2') {
      if (end < safe.size() && safe[end] == '-') ++end;
      while (digit(end) || (end < safe.size() && safe[end] == '.' && digit(end + 1))) ++end;
    }
    if (end > i + 1 && digit(end - 1)) {
      out += "<sup>" + safe.substr(i + 1, end - i - 1) + "</sup>";
      i = end - 1;
    } else {
      out += safe[i];
    }
  }
  return out;
}

std::string anchor(std::string_view text) {
  std::string out;
  for (char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '/' || c == ':';
    out += plain ? std::string(1, c) : fmt::format("_{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

int focus_lane(const Report& report) {
  if (report.lanes.empty()) return -1;
  if (report.recommendation) return report.recommendation->lane;
  int worst = -1;
  Severity severity = Severity::info;
  for (const Finding& finding : report.findings) {
    if (worst >= 0 && finding.severity <= severity) continue;
    worst = finding.lane;
    severity = finding.severity;
  }
  if (worst >= 0) return worst;
  for (size_t i = 0; i < report.lanes.size(); ++i) {
    if (!report.lanes[i].reference) return static_cast<int>(i);
  }
  return 0;
}

std::string layer_anchor(const Report& report, int lane, const std::string& path) {
  if (lane == focus_lane(report)) return "layer-" + anchor(path);
  return "layer-" + anchor(report.lanes[static_cast<size_t>(lane)].name) + "-" + anchor(path);
}

}  // namespace html

namespace {

using html::escape;
using html::prose;

/// Shape beside colour: a disc for fine, a triangle for attention, a cross for broken.
std::string tag(const std::string& kind, const std::string& word) {
  const char* shape = "<circle cx=\"5\" cy=\"5\" r=\"4.5\"/>";
  if (kind == "warning" || kind == "attention") shape = "<path d=\"M5 .5l5 9H0z\"/>";
  if (kind == "error" || kind == "broken") {
    shape = "<path d=\"M2 .3l3 3 3-3L9.7 2l-3 3 3 3L8 9.7l-3-3-3 3L.3 8l3-3-3-3z\"/>";
  }
  return fmt::format(
      "<span class=\"tag {}\"><svg viewBox=\"0 0 10 10\" aria-hidden=\"true\">{}"
      "</svg>{}</span>",
      kind, shape, escape(word));
}

std::string value_text(const std::optional<double>& value) {
  return value ? fmt::format("{:.4g}", *value) : "&ndash;";
}

std::string head(const Report& report) {
  const RunInfo& run = report.run;
  const std::string state = verdict_name(report.verdict.state);
  return fmt::format(
      "<header><div class=\"brand\"><b>HalfScope</b> &middot; {} on {}</div>\n"
      "<div class=\"state\">{}</div>\n<h1>{}</h1></header>\n",
      escape(run.model), escape(run.data), tag(state, state), prose(report.verdict.text));
}

std::string actions(const Report& report) {
  if (!report.recommendation) {
    if (report.verdict.state != Verdict::State::healthy) return "";
    return "<div class=\"do\"><p class=\"advice\">Nothing to change.</p></div>\n";
  }
  const Recommendation& advice = *report.recommendation;
  const std::string& lane = report.lanes[static_cast<size_t>(advice.lane)].name;
  std::string text = fmt::format(
      "<div class=\"do\"><span class=\"soft\">What to do about {}</span>"
      "<p class=\"advice\">{}</p>\n",
      escape(lane), prose(advice.text));
  if (!advice.layers.empty()) {
    text += "<p class=\"soft\">Layers: ";
    for (size_t i = 0; i < advice.layers.size(); ++i) {
      text += fmt::format("{}<a href=\"#{}\">{}</a>", i > 0 ? ", " : "",
                          html::layer_anchor(report, advice.lane, advice.layers[i]),
                          escape(advice.layers[i]));
    }
    text += "</p>\n";
  }
  return text + fmt::format(
                    "<details><summary>The advised plan</summary><pre>{}</pre></details>"
                    "</div>\n",
                    escape(advice.plan_json));
}

std::string run_card(const Report& report) {
  const RunInfo& run = report.run;
  std::string card = "<dl class=\"run\">";
  const auto entry = [&](const char* name, const std::string& value) {
    if (!value.empty()) {
      card += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", name, escape(value));
    }
  };
  int64_t steps = 0;
  for (const LaneReport& lane : report.lanes) steps = std::max(steps, lane.steps);
  entry("Model", run.model);
  entry("Data", run.data);
  entry("Optimizer", run.optimizer);
  entry("Batch", std::to_string(run.batch));
  entry("Steps", fmt::format("{} of {}", steps, run.steps_planned));
  entry("Status", status_name(report.status));
  entry("Recorded", run.every == 1 ? "every step" : fmt::format("every {} steps", run.every));
  entry("Seed", std::to_string(run.seed));
  entry("Kernels", run.isa);
  entry("Threads", std::to_string(run.threads));
  entry("HalfScope", run.version);
  return card + "</dl>\n";
}

std::string lanes(const Report& report) {
  std::string text =
      "<h2 id=\"lanes\">Lanes</h2>\n<div class=\"scroll\"><table><thead><tr><th>Lane</th>"
      "<th>Backend</th><th class=\"n\">Steps</th><th class=\"n\">Skipped</th><th class=\"n\">First "
      "loss</th><th class=\"n\">Last loss</th><th class=\"n\">Loss scale</th><th class=\"n\">Test "
      "loss</th><th class=\"n\">Test accuracy</th></tr></thead><tbody>\n";
  for (size_t i = 0; i < report.lanes.size(); ++i) {
    const LaneReport& lane = report.lanes[i];
    const bool lost = lane.last_loss && !std::isfinite(*lane.last_loss);
    text += fmt::format(
        "<tr><td class=\"name\"><span class=\"legend\"><span>{}<b>{}</b></span></span>{}</td>"
        "<td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>"
        "<td class=\"n{}\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>"
        "<td class=\"n\">{}</td></tr>\n",
        html::lane_swatch(i), escape(lane.name),
        lane.reference ? "<span class=\"soft\">reference</span>" : "", escape(lane.backend),
        lane.steps, lane.skipped, value_text(lane.first_loss), lost ? " bad" : "",
        value_text(lane.last_loss),
        lane.last_loss_scale ? prose(scale_text(*lane.last_loss_scale)) : "&ndash;",
        value_text(lane.test_loss),
        lane.test_accuracy ? escape(percent(*lane.test_accuracy)) : "&ndash;");
  }
  text += "</tbody></table></div>\n";
  const bool steps = std::any_of(report.lanes.begin(), report.lanes.end(),
                                 [](const LaneReport& lane) { return lane.steps > 0; });
  if (!steps) return text + "<p class=\"soft\">No step was recorded.</p>\n";
  text += html::loss_chart(report) + html::scale_chart(report);
  for (const LaneReport& lane : report.lanes) {
    if (!lane.thinned) continue;
    text += fmt::format(
        "<p class=\"how\">{}: the charts show {} of {} steps; every skipped step "
        "is among them.</p>\n",
        escape(lane.name), lane.rows.size(), lane.steps);
  }
  return text;
}

std::string evidence(const Finding& finding) {
  std::string rows;
  for (const auto& [key, value] : finding.evidence) {
    const std::string shown = std::holds_alternative<double>(value)
                                  ? fmt::format("{:.6g}", std::get<double>(value))
                                  : std::get<std::string>(value);
    rows +=
        fmt::format("<tr><td class=\"soft\">{}</td><td>{}</td></tr>", escape(key), escape(shown));
  }
  return rows;
}

std::string finding_card(const Report& report, size_t index) {
  const Finding& finding = report.findings[index];
  const std::string severity = severity_name(finding.severity);
  std::string text = fmt::format(
      "<article class=\"finding {}\" id=\"finding-{}\"><header>{}<b>{}</b><span class=\"soft\">{}"
      "</span>",
      severity, index + 1, tag(severity, severity), escape(finding.rule),
      escape(report.lanes[static_cast<size_t>(finding.lane)].name));
  if (!finding.site.empty()) {
    text +=
        fmt::format("<a href=\"#{}\">{}</a>",
                    html::layer_anchor(report, finding.lane, finding.layer), escape(finding.site));
  }
  text += fmt::format("</header><p>{}</p>", prose(finding.text));
  if (!finding.action.text.empty()) {
    text += fmt::format("<p class=\"todo\">{}</p>", prose(finding.action.text));
  }
  return text + fmt::format(
                    "<details><summary>Evidence</summary><div class=\"scroll\"><table "
                    "class=\"evidence\"><tbody>{}</tbody></table></div><p class=\"soft\">"
                    "<code>{}</code></p></details></article>\n",
                    evidence(finding), escape(report.finding_ids[index]));
}

std::string findings(const Report& report) {
  std::string text = "<h2 id=\"findings\">Findings</h2>\n";
  if (report.findings.empty()) {
    return text +
           "<p>None: nothing overflowed, and nothing that matters was flushed or lost.</p>\n";
  }
  std::vector<size_t> order(report.findings.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return report.findings[a].severity > report.findings[b].severity;
  });
  constexpr size_t kShown = 100;
  for (size_t i = 0; i < std::min(order.size(), kShown); ++i) {
    text += finding_card(report, order[i]);
  }
  if (order.size() > kShown) {
    text += fmt::format("<p class=\"how\">{} more are in the JSON report.</p>\n",
                        order.size() - kShown);
  }
  return text;
}

std::string definitions() {
  std::string text = "<h2 id=\"definitions\">How the numbers are defined</h2>\n<dl class=\"defs\">";
  const auto entry = [&](const char* name, const std::string& meaning) {
    text += fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, meaning);
  };
  entry(
      "Counting",
      "All counters look at the exact result of an operator before it is rounded to "
      "the tensor's format, in every recorded step, and are exact integers. Upstream rounding has "
      "acted by then: a gradient that was flushed earlier on the way back is counted as zero "
      "here.");
  entry("Overflow",
        "Share of a tensor's elements that are finite before rounding and infinite or "
        "NaN after it: the damage starts here.");
  entry("Not finite",
        "Share of the elements that are infinite or NaN before rounding: the damage "
        "came from further up.");
  entry("Flushed (underflow)",
        "Share of the finite non-zero elements that rounding turns into zero.");
  entry("Subnormal",
        "Share of the finite non-zero elements whose rounded value lies below the smallest "
        "normal number: held, but with fewer bits.");
  entry("Lost updates",
        "Share of the non-zero updates that leave the variable as it was, because "
        "they are below half the spacing of its format there.");
  entry("Head-room",
        "log2 of the format's largest finite number over the largest magnitude seen; "
        "negative once values overflow. In layer lines: the least of activations and weights.");
  entry("Layer lines", "Shares are those of the layer's worst tensor.");
  entry(
      "Loss-scale window",
      fmt::format(
          "Scales at which no recorded gradient would overflow, and at most {} of the non-zero "
          "values "
          "of each and at most {} of its energy (sum of squares) would be flushed. If no scale "
          "meets "
          "both, one of the two limits is enough. Worked out from the histograms: a bin counts as "
          "lost as soon as any of it might be. An estimate, since upstream rounding has acted.",
          percent(kFlushedShare), percent(kFlushedEnergy)));
  entry("Severity",
        "error: training cannot work like this. warning: information is being lost. "
        "info: worth knowing.");
  return text + "</dl>\n";
}

std::string reproduce(const Report& report) {
  if (report.run.command.empty()) return "";
  return fmt::format(
      "<h2 id=\"reproduce\">How to get this again</h2>\n<pre>{}</pre>\n"
      "<p class=\"how\">The same command gives the same numbers, whatever the "
      "number of threads.</p>\n",
      escape(report.run.command));
}

}  // namespace

std::string report_html(const Report& report) {
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      "<title>HalfScope: {} on {}, {}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n",
      escape(report.run.model), escape(report.run.data), verdict_name(report.verdict.state),
      html::kStyle);
  page += head(report) + actions(report) + run_card(report) + lanes(report) + findings(report);
  page += html::layer_section(report, page.size());
  page += definitions() + reproduce(report);
  return page + "</main>\n</body>\n</html>\n";
}

}  // namespace halfscope
