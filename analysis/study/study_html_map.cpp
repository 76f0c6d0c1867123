// SPDX-License-Identifier: MIT
// The heat map of a study: a row for each group, a cell for each seed, and the share of failing
// seeds with its confidence interval.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/report/html_page.h"
#include "analysis/rules/text.h"
#include "analysis/study/study_html_parts.h"
#include "analysis/study/study_words.h"

namespace halfscope::study_html_parts {
namespace {

using html::escape;

constexpr size_t kFewSquares = 180;  ///< pixels; up to here, squares keep their full size
constexpr size_t kCell = 26;  ///< pixels of a square; where many do not fit, they are less wide
constexpr size_t kCellsWithText = 4000;  ///< more would make the page too large to mail

/// A kind of cell: its class, and its meaning for the legend.
struct CellKind {
  const char* style;
  std::string meaning;
};

/// Returns the class of a cell. Failing ones have a cross, so that colour is not all.
const char* cell_style(const TrialRow& trial, double tolerance) {
  if (trial.status == TrialStatus::waiting) return "wt";
  if (trial.status == TrialStatus::failed) return "nt";
  if (trial.fails) return std::isfinite(trial.loss) && trial.error.empty() ? "f1" : "f2";
  if (std::isnan(trial.gap) || trial.gap <= 0.25 * tolerance) return "q0";
  return trial.gap <= 0.5 * tolerance ? "q1" : "q2";
}

std::string cell_mark(const std::string& style, double x) {
  if (style == "f1" || style == "f2") {
    return fmt::format("<path class=\"xm\" d=\"M{0} 2.7l4 4m0-4l-4 4\"/>", x + 2.7);
  }
  return style == "nt" ? fmt::format("<path class=\"sm\" d=\"M{} 7l4.6-4.6\"/>", x + 2.4) : "";
}

std::string cell_text(const StudyFacts& facts, const TrialRow& trial, size_t column) {
  std::string text =
      facts.seed_axis >= 0 ? fmt::format("seed {}: ", facts.columns[column]) : std::string();
  text += trial_word(trial);
  if (trial.fails) text += ", " + fail_reason(trial);
  if (trial.status == TrialStatus::failed && !trial.error.empty()) text += ", " + trial.error;
  if (trial.done() && !trial.baseline) text += "; gap " + study_gap_text(trial_gap(trial));
  return text;
}

std::string strip_of(const StudyView& study, const StudyFacts& facts, const StudyGroup& group,
                     bool with_text) {
  std::string cells;
  for (size_t column = 0; column < group.trials.size(); ++column) {
    if (group.trials[column] < 0) continue;
    const TrialRow& trial = study.trials()[static_cast<size_t>(group.trials[column])];
    const double x = 10.0 * static_cast<double>(column);
    const std::string style = cell_style(trial, study.info().tolerance);
    const std::string title =
        with_text ? "<title>" + escape(cell_text(facts, trial, column)) + "</title>" : "";
    // A click leads to the trial's row, if the table has it.
    const bool linked = with_text && static_cast<size_t>(trial.trial) < kTrialRows;
    cells += fmt::format("<{}>{}<path class=\"{}\" d=\"M{} .3h9.4v8.8h-9.4z\"/>{}</{}>",
                         linked ? fmt::format("a href=\"#trial-{}\"", trial.trial) : "g", title,
                         style, x + 0.3, cell_mark(style, x), linked ? "a" : "g");
  }
  return fmt::format(
      "<svg viewBox=\"0 0 {} 9.4\" preserveAspectRatio=\"none\" style=\"max-width:{}px\" "
      "role=\"img\"><title>{}: {}</title>{}</svg>",
      10 * group.trials.size(), kCell * group.trials.size(), escape(group.name),
      escape(seeds_text(facts, group.failing, group.finished) + " failing"), cells);
}

/// Returns the interval drawn on an axis from 0 to 1.
std::string interval_mark(const StudyGroup& group) {
  if (group.finished == 0) return "";
  return fmt::format(
      "<div class=\"ci\" aria-hidden=\"true\"><b style=\"left:{:.1f}%;width:{:.1f}%\"></b>"
      "<i style=\"left:{:.1f}%\"></i></div>",
      100.0 * group.interval.low, 100.0 * (group.interval.high - group.interval.low),
      100.0 * group.failing_share());
}

std::string swatch(const char* style) {
  return fmt::format(
      "<svg viewBox=\"0 0 10 9.4\" aria-hidden=\"true\"><path class=\"{}\" d=\"M.3 "
      ".3h9.4v8.8h-9.4z\"/>{}</svg>",
      style, cell_mark(style, 0.0));
}

/// Returns the legend, only of kinds that the study has.
std::string map_legend(const StudyView& study) {
  const double tolerance = study.info().tolerance;
  const bool compares = !study.info().baseline.empty();
  const CellKind kinds[] = {
      {"q0", compares ? "gap up to " + percent(0.25 * tolerance) : "finished"},
      {"q1", "up to " + percent(0.5 * tolerance)},
      {"q2", "up to " + percent(tolerance)},
      {"f1", fmt::format("fails: gap above {}", percent(tolerance))},
      {"f2", "fails: loss not finite, or stopped"},
      {"nt", "could not be trained"},
      {"wt", "waiting"}};
  std::string text = "<div class=\"key map-key\">";
  for (const CellKind& kind : kinds) {
    const auto trials = study.trials();
    if (std::any_of(trials.begin(), trials.end(), [&](const TrialRow& trial) {
          return std::string_view(cell_style(trial, tolerance)) == kind.style;
        })) {
      text += "<span>" + swatch(kind.style) + escape(kind.meaning) + "</span>";
    }
  }
  return text + "</div>\n";
}

/// Returns the head of the column of cells: the first and the last seed.
std::string column_head(const StudyFacts& facts) {
  if (facts.seed_axis < 0) return "Trial";
  if (facts.columns.size() == 1) return "Seed " + escape(facts.columns[0]);
  return fmt::format(
      "<span class=\"ends\" style=\"max-width:{}px\"><span>Seed {}</span><span>{}</span></span>",
      kCell * facts.columns.size(), escape(facts.columns.front()), escape(facts.columns.back()));
}

}  // namespace

std::string heat_map(const StudyView& study, const StudyFacts& facts) {
  const bool with_text = static_cast<size_t>(facts.planned) <= kCellsWithText;
  const std::string noun = facts.noun == "plan" ? "Plan" : "Combination";
  std::string rows;
  for (size_t i = 0; i < facts.groups.size(); ++i) {
    const StudyGroup& group = facts.groups[i];
    const bool cheapest = static_cast<int>(i) == facts.cheapest;
    rows += fmt::format(
        "<tr{}><th scope=\"row\">{}{}</th><td class=\"strip\">{}</td><td class=\"n{}\">{} of {}"
        "</td><td class=\"share\">{}<span>{}</span></td><td class=\"n\">{}</td>"
        "<td class=\"why\">{}</td></tr>\n",
        group.baseline ? " class=\"base\"" : "", escape(group.name),
        cheapest ? "<small>cheapest that never failed</small>" : "",
        strip_of(study, facts, group, with_text), group.failing > 0 ? " bad" : "", group.failing,
        group.finished, interval_mark(group), escape(study_words::share_text(group)),
        group.baseline ? "&ndash;" : escape(study_gap_text(group.gap)),
        escape(study_words::reasons_text(group)));
  }
  // Names get the room that few squares leave.
  const size_t width = kCell * facts.columns.size();
  const bool few = width <= kFewSquares;
  return fmt::format(
             "<section aria-labelledby=\"seeds\"><h2 id=\"seeds\">{0}s by {1}s</h2>\n{2}"
             "<table class=\"heat{4}\"><caption class=\"sr\">Result of every trial, and the share "
             "of "
             "failing {1}s</caption><thead><tr><th scope=\"col\">{0}</th><th scope=\"col\" "
             "class=\"strip\"{5}>{3}</th><th scope=\"col\" class=\"n\">Failing</th><th "
             "scope=\"col\">"
             "Share (95% interval)</th><th scope=\"col\" class=\"n\">Median gap</th>"
             "<th scope=\"col\">Why</th></tr></thead><tbody>\n",
             noun, facts.unit(), html::scroll_begin(noun + "s by " + facts.unit() + "s"),
             column_head(facts), few ? " few" : "",
             few ? fmt::format(" style=\"min-width:{}px\"", width) : "") +
         rows + "</tbody></table></div>\n" + map_legend(study) +
         fmt::format(
             "<p class=\"how\">How to read it: each cell is one training. The bar shows which "
             "failure rates fit the {0}s seen so far, with 95% confidence: few {0}s leave a wide "
             "bar even if none of them fails.</p></section>\n",
             facts.unit());
}

}  // namespace halfscope::study_html_parts
