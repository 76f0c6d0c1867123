// SPDX-License-Identifier: MIT
// report.md: the report as a comment under a change, at most 60 lines.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/report/report.h"
#include "analysis/rules/text.h"

namespace halfscope {
namespace {

constexpr size_t kLanesShown = 8;
constexpr size_t kFindingsShown = 10;
constexpr size_t kLayersShown = 10;
constexpr double kWorthShowing = 0.01;

/// Names and sentences inside a line or a table cell: nothing in them may act as markup.
std::string plain(const std::string& text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '\n':
      case '\r':
      case '\t':
        out += ' ';
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '|':
      case '*':
      case '_':
      case '`':
      case '[':
      case ']':
      case '\\':
      case '#':
      case '~':
        out += '\\';
        out += c;
        break;
      default:
        out += c;
    }
  }
  return out;
}

/// A code span; a backtick inside would end it.
std::string code(const std::string& text) {
  std::string out = "`";
  for (char c : text) {
    if (c == '`')
      out += '\'';
    else if (c == '|')
      out += "\\|";  // a table splits cells before it reads code spans
    else if (c == '\n' || c == '\r' || c == '\t')
      out += ' ';
    else
      out += c;
  }
  return out + "`";
}

std::string cell(const std::optional<double>& value) {
  return value ? fmt::format("{:.4g}", *value) : "-";
}

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

int64_t non_zero(const SiteReport& site) { return site.n - site.zero - site.non_finite; }

/// How much a layer's tensors lose themselves: for choosing which lines to show.
double suffering(const LayerReport& layer) {
  double worst = 0.0;
  for (const SiteReport& site : layer.sites) {
    worst = std::max({worst, site.overflow > 0 ? 1.0 + share(site.overflow, site.n) : 0.0,
                      share(site.underflow, non_zero(site)), share(site.lost, non_zero(site))});
  }
  return worst;
}

void write_lanes(const Report& report, std::string& md) {
  md +=
      "\n| lane | steps | skipped | first loss | last loss | loss scale | test accuracy |\n"
      "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n";
  for (size_t i = 0; i < std::min(report.lanes.size(), kLanesShown); ++i) {
    const LaneReport& lane = report.lanes[i];
    md += fmt::format("| {}{} | {} | {} | {} | {} | {} | {} |\n", code(lane.name),
                      lane.reference ? " (reference)" : "", lane.steps, lane.skipped,
                      cell(lane.first_loss), cell(lane.last_loss),
                      lane.last_loss_scale ? scale_text(*lane.last_loss_scale) : "-",
                      lane.test_accuracy ? percent(*lane.test_accuracy) : "-");
  }
  if (report.lanes.size() > kLanesShown) {
    md += fmt::format("\n{} more.\n",
                      counted(static_cast<int64_t>(report.lanes.size() - kLanesShown), "lane"));
  }
}

void write_findings(const Report& report, std::string& md) {
  if (report.findings.empty()) return;
  md += "\n### Findings\n\n";
  // Errors of any lane before the notes of the first one.
  std::vector<const Finding*> sorted;
  for (const Finding& finding : report.findings) sorted.push_back(&finding);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Finding* a, const Finding* b) { return a->severity > b->severity; });
  for (size_t i = 0; i < std::min(sorted.size(), kFindingsShown); ++i) {
    const Finding& finding = *sorted[i];
    md += fmt::format(
        "- **{}** {} in {}: {}\n", severity_name(finding.severity), code(finding.rule),
        code(report.lanes[static_cast<size_t>(finding.lane)].name), plain(finding.text));
  }
  if (sorted.size() > kFindingsShown) {
    md +=
        fmt::format("- and {} more in the JSON and HTML reports\n", sorted.size() - kFindingsShown);
  }
}

void write_layers(const Report& report, std::string& md) {
  std::vector<const LayerReport*> worst;
  for (const LayerReport& layer : report.layers) {
    if (report.lanes[static_cast<size_t>(layer.lane)].reference) continue;
    if (suffering(layer) > kWorthShowing) worst.push_back(&layer);
  }
  if (worst.empty()) return;
  std::stable_sort(worst.begin(), worst.end(), [](const LayerReport* a, const LayerReport* b) {
    return suffering(*a) > suffering(*b);
  });
  const size_t shown = std::min(worst.size(), kLayersShown);
  md += fmt::format("\n### Layers that lose most ({} of {})\n\n", shown, report.layers.size());
  md +=
      "| lane | layer | format | overflow | not finite | underflow | lost updates |\n"
      "| --- | --- | --- | ---: | ---: | ---: | ---: |\n";
  for (size_t i = 0; i < shown; ++i) {
    const LayerReport& layer = *worst[i];
    double overflow = 0.0, non_finite = 0.0, underflow = 0.0, lost = 0.0;
    for (const SiteReport& site : layer.sites) {
      overflow = std::max(overflow, share(site.overflow, site.n));
      non_finite = std::max(non_finite, share(site.non_finite, site.n));
      underflow = std::max(underflow, share(site.underflow, non_zero(site)));
      lost = std::max(lost, share(site.lost, non_zero(site)));
    }
    md += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n",
                      code(report.lanes[static_cast<size_t>(layer.lane)].name), code(layer.path),
                      format_name(layer.write), percent(overflow), percent(non_finite),
                      percent(underflow), percent(lost));
  }
  md +=
      "\nThe worst tensor of each layer; shares of its elements, for underflow and lost updates "
      "of the finite non-zero ones.\n";
}

}  // namespace

std::string report_markdown(const Report& report) {
  const RunInfo& run = report.run;
  std::string md = fmt::format("## HalfScope: {}\n\n**{}**\n", verdict_name(report.verdict.state),
                               plain(report.verdict.text));
  if (report.recommendation) {
    const Recommendation& advice = *report.recommendation;
    md +=
        fmt::format("\n**Do this** for {}: {}\n",
                    code(report.lanes[static_cast<size_t>(advice.lane)].name), plain(advice.text));
  }
  write_lanes(report, md);
  write_findings(report, md);
  write_layers(report, md);
  md += fmt::format("\n{} on {}, {}, batch {}, seed {}, {} of {} planned, {}; HalfScope {}.\n",
                    code(run.model), code(run.data), code(run.optimizer), run.batch, run.seed,
                    counted(report.lanes.empty() ? 0 : report.lanes.front().steps, "step"),
                    run.steps_planned, status_name(report.status), plain(run.version));
  if (!run.command.empty()) md += fmt::format("\nReproduce: {}\n", code(run.command));
  return md;
}

}  // namespace halfscope
