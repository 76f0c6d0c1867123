// SPDX-License-Identifier: MIT
// The lanes: cards under the verdict, a table side by side, how the first non-finite tensor reached
// the loss, and every finding.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "analysis/report/html_parts.h"
#include "analysis/report/remarks.h"
#include "analysis/report/report_parts.h"
#include "analysis/rules/text.h"

namespace halfscope::html {
namespace {

/// This many lanes fit side by side on a phone, too.
constexpr size_t kSideBySide = 4;
constexpr size_t kCards = 6;

std::string lane_state_tag(const LaneReport& lane) {
  if (lane.lost) return tag("broken", lane_verdict(lane));
  if (lane.reference) return tag("info", "reference");
  if (lane.steps == 0) return tag("info", "no steps");
  return tag(verdict_name(lane.state), verdict_name(lane.state));
}

std::string gap_cell(const LaneReport& lane) {
  if (!lane.loss_gap) return "&ndash;";
  return escape(report::gap_text(*lane.loss_gap));
}

std::string output_cell(const LaneReport& lane) {
  return lane.output_error ? escape(report::gap_text(*lane.output_error)) : "&ndash;";
}

std::string scale_cell(const LaneReport& lane) {
  return lane.last_loss_scale ? prose(scale_text(*lane.last_loss_scale)) : "&ndash;";
}

struct Measure {
  std::string name;
  std::function<std::string(const LaneReport&)> text;
  std::function<bool(const LaneReport&)> bad = [](const LaneReport&) { return false; };
};

std::vector<Measure> measures(const Report& report) {
  const auto lost = [](const std::optional<double>& loss) { return loss && !std::isfinite(*loss); };
  const bool inference = report.run.inference;
  std::vector<Measure> list{{"Verdict", lane_state_tag},
                            {"Backend",
                             [](const LaneReport& lane) {
                               const bool after = measures_after_rounding(lane.backend);
                               const char* what = is_capture(lane.backend)
                                                      ? " (measured after rounding)"
                                                      : " (products measured after rounding)";
                               return escape(lane.backend) + (after ? what : "");
                             }},
                            {inference ? "Batches" : "Steps",
                             [](const LaneReport& lane) { return std::to_string(lane.steps); }}};
  if (inference) {
    list.push_back({"Output error", output_cell,
                    [lost](const LaneReport& lane) { return lost(lane.output_error); }});
    for (const Score& score : scores_of(report)) {
      list.push_back({report::sentence_case(score.name),
                      [score](const LaneReport& lane) { return score.text(lane, "&ndash;"); }});
    }
    return list;
  }
  const std::vector<Measure> of_training{
      {"Skipped", [](const LaneReport& lane) { return std::to_string(lane.skipped); },
       [](const LaneReport& lane) { return lane.steps > 0 && lane.skipped == lane.steps; }},
      {"First loss", [](const LaneReport& lane) { return value_text(lane.first_loss); }},
      {"Last loss", [](const LaneReport& lane) { return value_text(lane.last_loss); },
       [lost](const LaneReport& lane) { return lost(lane.last_loss); }},
      {"Loss gap", gap_cell, [lost](const LaneReport& lane) { return lost(lane.loss_gap); }},
      {"Last loss scale", scale_cell},
      {report::of_evaluation(report.run, "Test loss"),
       [](const LaneReport& lane) { return value_text(lane.test_loss); },
       [lost](const LaneReport& lane) { return lost(lane.test_loss); }},
  };
  list.insert(list.end(), of_training.begin(), of_training.end());
  for (const Score& score : scores_of(report)) {
    list.push_back({report::of_evaluation(report.run, fmt::format("Test {}", score.name)),
                    [score](const LaneReport& lane) { return score.text(lane, "&ndash;"); }});
  }
  const bool said = std::any_of(report.lanes.begin(), report.lanes.end(),
                                [](const LaneReport& lane) { return !lane.loss_scaling.empty(); });
  if (said) {
    list.insert(list.begin() + 2, {"Loss scaling", [](const LaneReport& lane) {
                                     return lane.loss_scaling.empty() ? "&ndash;"
                                                                      : escape(lane.loss_scaling);
                                   }});
  }
  return list;
}

std::string cell(const Measure& measure, const LaneReport& lane) {
  return fmt::format("<td class=\"n{}\">{}</td>", measure.bad(lane) ? " bad" : "",
                     measure.text(lane));
}

std::string lane_name(const Report& report, size_t lane) {
  return fmt::format("<span class=\"lane\">{}{}</span>", lane_swatch(lane),
                     escape(report.lanes[lane].name));
}

std::string lanes_table(const Report& report) {
  const std::vector<Measure> list = measures(report);
  std::string html;
  if (report.lanes.size() <= kSideBySide) {
    html =
        "<table class=\"lanes across\"><caption>Lanes side by side</caption><thead><tr><td></td>";
    for (size_t i = 0; i < report.lanes.size(); ++i) {
      html += "<th scope=\"col\" class=\"n\">" + lane_name(report, i) + "</th>";
    }
    html += "</tr></thead><tbody>\n";
    for (const Measure& measure : list) {
      html += fmt::format("<tr><th scope=\"row\">{}</th>", measure.name);
      for (const LaneReport& lane : report.lanes) html += cell(measure, lane);
      html += "</tr>\n";
    }
  } else {
    html =
        "<table class=\"lanes sort\"><caption>One lane per row</caption><thead><tr>"
        "<th scope=\"col\">Lane</th>";
    for (const Measure& measure : list) {
      html += fmt::format("<th scope=\"col\" class=\"n\">{}</th>", measure.name);
    }
    html += "</tr></thead><tbody>\n";
    for (size_t i = 0; i < report.lanes.size(); ++i) {
      html += "<tr><th scope=\"row\">" + lane_name(report, i) + "</th>";
      for (const Measure& measure : list) html += cell(measure, report.lanes[i]);
      html += "</tr>\n";
    }
  }
  return scroll_begin("Lanes") + html + "</tbody></table></div>\n";
}

std::string plans(const Report& report) {
  std::string html;
  for (const LaneReport& lane : report.lanes) {
    if (lane.plan_json.empty()) continue;
    html += copy_block("Plan of " + lane.name, report::compact_plan(lane.plan_json) + "\n", false);
  }
  return html;
}

std::string evidence_rows(const Finding& finding) {
  std::string rows;
  for (const auto& [key, value] : finding.evidence) {
    const std::string shown = std::holds_alternative<double>(value)
                                  ? fmt::format("{:.6g}", std::get<double>(value))
                                  : std::get<std::string>(value);
    std::string words = key;
    std::replace(words.begin(), words.end(), '_', ' ');
    rows +=
        fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td></tr>", escape(words), prose(shown));
  }
  return rows;
}

/// Returns the numbers behind a group of findings: a table, or one for each lane if they differ.
std::string evidence(const Report& report, const report::FindingGroup& group) {
  const std::vector<std::string> names = report::lanes_of(report, group);
  std::vector<std::string> tables;
  std::string ids;
  for (const std::vector<size_t>& lane : group.lanes) {
    tables.push_back(evidence_rows(report.findings[lane.front()]));
    ids += fmt::format("{}<code>{}</code>", ids.empty() ? "" : "<br>",
                       escape(report.finding_ids[lane.front()]));
  }
  const bool same = std::equal(tables.begin() + 1, tables.end(), tables.begin());
  std::string html = "<details><summary>Evidence</summary>";
  for (size_t i = 0; i < (same ? 1 : tables.size()); ++i) {
    if (!same) html += fmt::format("<p class=\"soft\">{}</p>", escape(names[i]));
    html += fmt::format(
        "<table class=\"evidence\"><caption class=\"sr\">Evidence of finding "
        "{}</caption><tbody>{}</tbody></table>",
        group.lanes[i].front() + 1, tables[i]);
  }
  return html + fmt::format("<p class=\"soft\">{}</p></details>", ids);
}

/// Returns a line for each of the other tensors of which a finding says the same.
std::string alike(const Report& report, const report::FindingGroup& group) {
  const std::vector<size_t>& findings = group.lanes.front();
  if (findings.size() < 2) return "";
  std::string html = fmt::format("<details><summary>The same for {}</summary><ul>",
                                 counted(static_cast<int64_t>(findings.size()) - 1, "more tensor"));
  for (size_t i = 1; i < findings.size(); ++i) {
    html += fmt::format("<li id=\"finding-{}\">", findings[i] + 1);
    for (size_t lane = 1; lane < group.lanes.size(); ++lane) {
      html += fmt::format("<span id=\"finding-{}\"></span>", group.lanes[lane][i] + 1);
    }
    html += prose(report.findings[findings[i]].text) + "</li>";
  }
  return html + "</ul></details>";
}

/// Returns what to do about a group of findings, in a line for each lane if they differ.
std::string advice(const Report& report, const report::FindingGroup& group) {
  const std::vector<std::string> names = report::lanes_of(report, group);
  report::Remarks remarks;
  for (size_t i = 0; i < names.size(); ++i) {
    remarks.add(names[i], report.findings[group.lanes[i].front()].action.text);
  }
  std::string html;
  for (const report::Remarks::Remark& each : remarks.all()) {
    const Finding& finding = report.findings[group.lanes.front().front()];
    // An action that is not needed must not look like an order.
    const bool needed = finding.severity >= Severity::warning;
    const bool optional = !needed && !finding.action.edit.empty();
    const bool for_all = each.lanes.size() == names.size();
    html += fmt::format("<p class=\"{}\">{}{}{}</p>", needed ? "todo" : "soft",
                        for_all ? "" : escape(name_list(each.lanes)) + ": ",
                        optional ? "If you want a fixed setting: " : "", prose(each.text));
  }
  return html;
}

std::string finding_card(const Report& report, const report::FindingGroup& group) {
  const size_t index = group.lanes.front().front();
  const Finding& finding = report.findings[index];
  const std::string severity = severity_name(finding.severity);
  std::string html =
      fmt::format("<article class=\"finding {}\" id=\"finding-{}\"><header>{}<h4>{}</h4>", severity,
                  index + 1, tag(severity, severity), escape(finding.rule));
  const std::vector<std::string> names = report::lanes_of(report, group);
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string id =
        i == 0 ? "" : fmt::format(" id=\"finding-{}\"", group.lanes[i].front() + 1);
    html += fmt::format("<span class=\"soft\"{}>{}</span>", id, escape(names[i]));
  }
  if (!finding.site.empty()) {
    html += layer_link(report, finding.lane, finding.layer, finding.site);
  }
  return html + fmt::format("</header><p>{}</p>", prose(report::text_of(report, group))) +
         advice(report, group) + evidence(report, group) + alike(report, group) + "</article>\n";
}

std::string findings(const Report& report) {
  std::string html = "<h3 id=\"findings\">All findings</h3>\n";
  if (report.findings.empty()) {
    const bool overflowed = std::any_of(
        report.layers.begin(), report.layers.end(),
        [](const LayerReport& layer) { return report::worst_rates(layer).overflow > 0.0; });
    return html + fmt::format("<p>None. {} value{} that matters was lost.</p>\n",
                              overflowed ? "No" : "Nothing overflowed, and no",
                              report.run.inference ? "" : " or update");
  }
  const std::vector<report::FindingGroup> order = report::finding_groups(report);
  constexpr size_t kShown = 100;
  for (size_t i = 0; i < std::min(order.size(), kShown); ++i) {
    html += finding_card(report, order[i]);
  }
  if (order.size() > kShown) {
    html += fmt::format("<p class=\"how\">{} more are in the JSON report.</p>\n",
                        order.size() - kShown);
  }
  return html;
}

/// Returns how NaN or infinity spread, which was the same in all these lanes.
std::string chain(const Report& report, const EventReport& event,
                  const std::vector<std::string>& lanes) {
  std::string html = fmt::format(
      "<h3>{}: how NaN or infinity spread at step {}{}</h3>\n<ol class=\"chain\">",
      escape(name_list(lanes)), event.step,
      event.loss_scale > 0.0 ? ", loss scale " + prose(scale_text(event.loss_scale)) : "");
  for (size_t i = 0; i < event.links.size(); ++i) {
    const EventLink& link = event.links[i];
    html += fmt::format("<li{}>{}{}</li>", i == 0 ? " class=\"root\"" : "",
                        link.layer.empty() ? escape(link.name)
                                           : layer_link(report, event.lane, link.layer, link.name),
                        link.note.empty() ? "" : "<small>" + escape(link.note) + "</small>");
  }
  return html + "</ol>\n";
}

bool same_event(const EventReport& a, const EventReport& b) {
  return a.step == b.step && a.loss_scale == b.loss_scale &&
         std::equal(a.links.begin(), a.links.end(), b.links.begin(), b.links.end(),
                    [](const EventLink& x, const EventLink& y) {
                      return x.name == y.name && x.layer == y.layer && x.note == y.note;
                    });
}

std::string chains(const Report& report) {
  std::string html;
  for (size_t i = 0; i < report.events.size(); ++i) {
    const EventReport& event = report.events[i];
    const auto end = report.events.begin() + static_cast<std::ptrdiff_t>(i);
    const auto is_same = [&](const EventReport& each) { return same_event(event, each); };
    if (std::any_of(report.events.begin(), end, is_same)) continue;  // told with an earlier lane
    std::vector<std::string> lanes;
    for (const EventReport& each : report.events) {
      if (is_same(each)) lanes.push_back(report.lanes[static_cast<size_t>(each.lane)].name);
    }
    html += chain(report, event, lanes);
  }
  return html;
}

}  // namespace

std::string lane_cards(const Report& report) {
  if (report.lanes.size() < 2 || report.lanes.size() > kCards) return "";
  std::string html = "<ul class=\"cards\">\n";
  for (size_t i = 0; i < report.lanes.size(); ++i) {
    const LaneReport& lane = report.lanes[i];
    html += fmt::format("<li class=\"{}\"><div>{}</div><b>{}</b><dl>",
                        lane.reference && !lane.lost ? "reference" : verdict_name(lane.state),
                        lane_state_tag(lane), escape(lane.name));
    if (report.run.inference) {
      if (lane.output_error) {
        html += fmt::format("<div><dt>output error</dt><dd>{}</dd></div>", output_cell(lane));
      }
      html += fmt::format("<div><dt>batches</dt><dd>{}</dd></div>", lane.steps);
    } else {
      html += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>",
                          report.status == RunStatus::complete ? "final loss" : "loss so far",
                          value_text(lane.last_loss));
    }
    if (lane.loss_gap) {
      html += fmt::format("<div><dt>loss gap</dt><dd>{}</dd></div>", gap_cell(lane));
    }
    if (!report.run.inference) {
      html += fmt::format("<div><dt>skipped</dt><dd>{} of {}</dd></div>", lane.skipped, lane.steps);
    }
    for (const Score& score : scores_of(report)) {
      if (!(lane.*score.value)) continue;
      html += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", report::score_name(report, score),
                          score.text(lane));
    }
    html += "</dl></li>\n";
  }
  return html + "</ul>\n";
}

std::string events_section(const Report& report) {
  std::string html = "<section aria-labelledby=\"events\"><h2 id=\"events\">Findings</h2>\n";
  html += chains(report);
  if (report.events.empty()) {
    html += fmt::format("<p>No tensor of any lane became NaN or infinite in the recorded {}.</p>\n",
                        report.run.inference ? "batches" : "steps");
  }
  return html + findings(report) + "</section>\n";
}

std::string lanes_section(const Report& report) {
  if (report.lanes.empty()) return "";
  return "<section aria-labelledby=\"lanes\"><h2 id=\"lanes\">Lanes</h2>\n" + lanes_table(report) +
         plans(report) + errors_section(report) + kernels_section(report) + sums_section(report) +
         "</section>\n";
}

}  // namespace halfscope::html
