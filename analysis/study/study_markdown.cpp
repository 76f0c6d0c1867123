// SPDX-License-Identifier: MIT
// The report of a study as Markdown: at most 60 lines, however many trials there are.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/report/markdown_text.h"
#include "analysis/rules/text.h"
#include "analysis/study/study_words.h"

namespace halfscope {
namespace {

constexpr size_t kGroupsShown = 24;
constexpr size_t kFirstLayersShown = 10;
constexpr size_t kFailuresShown = 6;

std::string study_number(const std::optional<double>& value) {
  if (!value) return "-";
  return std::isfinite(*value) ? fmt::format("{:.4g}", *value) : "not finite";
}

std::string study_head(const StudyView& study, const StudyFacts& facts) {
  std::string text =
      fmt::format("## HalfScope study: {}\n\n**{}: {}**\n", markdown::plain(facts.title),
                  verdict_name(facts.verdict.state), markdown::plain(facts.verdict.headline));
  if (!facts.verdict.more.empty()) text += "\n" + markdown::plain(facts.verdict.more) + "\n";
  text += fmt::format("\n{}, {} finished, {} failing. ", counted(facts.planned, "trial"),
                      facts.finished, facts.failing);
  text += study.info().baseline.empty()
              ? "A trial fails if its loss is not finite or its training stops.\n"
              : fmt::format(
                    "A trial fails if its loss is not finite, its training stops, or its "
                    "loss ends more than {} above the loss of {} with the same {}.\n",
                    percent(study.info().tolerance), markdown::plain(study.info().baseline),
                    facts.common());
  return text;
}

std::string groups_table(const StudyFacts& facts) {
  std::string text = fmt::format(
      "\n| {} | failing {}s | share (95% interval) | median loss | median gap | bits | why |\n"
      "| --- | ---: | --- | ---: | ---: | ---: | --- |\n",
      facts.noun, facts.unit());
  const size_t shown = std::min(facts.groups.size(), kGroupsShown);
  for (size_t i = 0; i < shown; ++i) {
    const StudyGroup& group = facts.groups[i];
    text +=
        fmt::format("| {}{} | {} of {} | {} | {} | {} | {} | {} |\n", markdown::plain(group.name),
                    static_cast<int>(i) == facts.cheapest ? " (cheapest that never failed)"
                    : group.on_front                      ? " (Pareto front)"
                                                          : "",
                    group.failing, group.finished, study_words::share_text(group),
                    study_number(group.loss), group.baseline ? "-" : study_gap_text(group.gap),
                    study_number(group.bits), markdown::plain(study_words::reasons_text(group)));
  }
  if (shown < facts.groups.size()) {
    text +=
        fmt::format("\n{} more are in the HTML and JSON reports.\n", facts.groups.size() - shown);
  }
  return text;
}

std::string first_layers_table(const StudyFacts& facts) {
  std::string rows;
  size_t lines = 0, hidden = 0;
  for (const StudyGroup& group : facts.groups) {
    for (const FirstLayer& layer : group.first_layers) {
      if (layer.failing == 0) continue;
      if (++lines > kFirstLayersShown) {
        ++hidden;
        continue;
      }
      rows += fmt::format("| {} | {} | {} | {} | {:.4g} |\n", markdown::plain(group.name),
                          markdown::plain(layer.layer), markdown::plain(layer.role), layer.failing,
                          layer.median_step);
    }
  }
  if (rows.empty()) return "";
  std::string text = fmt::format(
      "\n| {} | first failing layer | tensor | failing {}s | median first step |\n"
      "| --- | --- | --- | ---: | ---: |\n{}",
      facts.noun, facts.unit(), rows);
  if (hidden > 0) text += fmt::format("\n{} more are in the HTML and JSON reports.\n", hidden);
  return text;
}

/// Returns how to repeat the first failing trials.
std::string repeat_list(const StudyView& study, const StudyFacts& facts) {
  std::string text;
  size_t shown = 0, all = 0;
  for (const TrialRow& trial : study.trials()) {
    if (!trial.fails) continue;
    if (++all > kFailuresShown) continue;
    ++shown;
    text += fmt::format("- trial {}, {}: {}\n", trial.trial,
                        markdown::plain(trial_name(study, facts, trial)),
                        markdown::code(trial.command));
  }
  if (text.empty()) return "";
  return fmt::format("\n{} of {} failing trials, to repeat in the study's folder:\n\n", shown,
                     all) +
         text;
}

}  // namespace

std::string study_markdown(const StudyView& study, const StudyFacts& facts) {
  std::string text = study_head(study, facts);
  if (facts.planned == 0) return text;
  return text + groups_table(facts) + first_layers_table(facts) + repeat_list(study, facts);
}

std::string study_markdown_summary(const StudyView& study, const StudyFacts& facts) {
  return study_head(study, facts);
}

}  // namespace halfscope
