// SPDX-License-Identifier: MIT
#include "cli/terminal/ending.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "analysis/report/further_causes.h"
#include "analysis/rules/recommend.h"
#include "analysis/rules/text.h"

namespace halfscope {
namespace {

constexpr size_t kHanging = 2;
constexpr size_t kCausesShown = 2;

Colour colour_of(Verdict::State state) {
  const std::string_view name = verdict_name(state);
  if (name == "healthy") return Colour::green;
  if (name == "cured") return Colour::cyan;
  if (name == "broken") return Colour::red;
  return Colour::yellow;
}

/// Returns " (mixed_float16)" where several lanes are judged, to say which one is meant.
std::string of_lane(const Report& report, int lane) {
  const auto judged = std::count_if(report.lanes.begin(), report.lanes.end(),
                                    [](const LaneReport& each) { return !each.reference; });
  return judged > 1 && lane >= 0
             ? fmt::format(" ({})", report.lanes[static_cast<size_t>(lane)].name)
             : "";
}

/// Returns the command that trains again with statistics; "" if this run has some, or does not say
/// how it was made.
std::string command_that_records(const RunInfo& info) {
  if (info.every > 0 || info.inference || info.settings.empty()) return "";
  std::string line = "halfscope train";
  for (const auto* words : {&info.settings, &info.lane_settings}) {
    for (const std::string& word : *words) {
      if (word != "--no-record") line += " " + shell_quoted(word);
    }
  }
  return line + " --out " + free_name("recorded", ".hscope");
}

std::string next_command(const RunView& run, const Report& report, const std::string& file) {
  const std::string again = command_that_records(run.info());
  if (!again.empty()) return again;
  const bool refuted = report.proof && !report.proof->holds;
  const bool settled = report.verdict.state == Verdict::State::healthy ||
                       report.verdict.state == Verdict::State::cured;
  if (settled || refuted) return report_command_line(file);
  if (!report.recommendation) {
    // A search may find the cause that the rules did not.
    const bool searchable = report.actions.empty() && !report.proof && report.focus >= 0 &&
                            !reference_fails(report) && can_be_proved(run, report.focus) &&
                            report.verdict.state != Verdict::State::inconclusive;
    return searchable ? advice_command(run, report, report.focus, file, false)
                      : report_command_line(file);
  }
  const bool proved = report.proof && report.proof_lane == report.recommendation->lane;
  return advice_command(run, report, report.recommendation->lane, file, proved);
}

}  // namespace

bool can_be_proved(const RunView& run, int lane) {
  const bool ended = run.status() == RunStatus::complete || run.status() == RunStatus::early_stop;
  return ended && !run.info().settings.empty() &&
         (run.info().inference || !run.lane(lane).loss_scale.empty());
}

void Conclusion::check() const {
  if (problem) throw *problem;
}

Conclusion conclude(const std::string& file) {
  Conclusion conclusion;
  try {
    conclusion.run = RunView::open(file);
    conclusion.report = make_report(*conclusion.run);
  } catch (const Error& e) {
    conclusion.problem = e;
  }
  return conclusion;
}

std::string verdict_text(const Verdict& verdict, const TextStyle& style) {
  std::string text = fmt::format(
      "verdict: {}\n", coloured(verdict_name(verdict.state), colour_of(verdict.state), style));
  for (const std::string& part : {verdict.headline, verdict.more}) {
    if (!part.empty()) text += paragraph(part, style, kHanging, kHanging);
  }
  return text;
}

int advised_lane(const RunView& run, const Report& report) {
  return report.recommendation ? report.recommendation->lane : default_lane(run, report.findings);
}

std::string advice_command(const RunView& run, const Report& report, int lane,
                           const std::string& file, bool proved) {
  std::string line = "halfscope diagnose " + shell_quoted(file);
  if (lane != advised_lane(run, report)) line += " --lane " + shell_quoted(run.lane(lane).name);
  const std::string& backend = run.lane(lane).backend;
  if (is_capture(backend)) return line + " --fix-as " + backend;
  if (!proved && can_be_proved(run, lane)) line += " --verify";
  return line + " --out " + free_name("plan", ".json");
}

std::string report_command_line(const std::string& file) {
  return fmt::format("halfscope report {} --html {}", shell_quoted(file),
                     free_name("report", ".html"));
}

std::string ending_text(const Conclusion& conclusion, const std::string& file,
                        const std::string& proof, const TextStyle& style) {
  std::string text;
  if (conclusion.report) {
    const Report& report = *conclusion.report;
    text += "\n" + verdict_text(report.verdict, style);
    std::vector<const Finding*> causes = further_causes(report);
    causes.resize(std::min(causes.size(), kCausesShown));
    for (const Finding* cause : causes) {
      text += paragraph(fmt::format("cause{}: {}.", of_lane(report, cause->lane), cause->mechanism),
                        style, 0, kHanging);
    }
    const Answer answer = answer_of(report);
    if (!answer.todo.empty()) {
      text += paragraph(fmt::format("advice{}: {}", of_lane(report, answer.lane), answer.todo),
                        style, 0, kHanging);
    }
    // With --verify the lines of the proof follow, which are what it rests on.
    if (!answer.confidence.empty()) {
      text += paragraph(
          "confidence: " + answer.confidence + (proof.empty() ? ". " + answer.basis : "."), style,
          0, kHanging);
    }
  }
  for (size_t at = 0; at < proof.size();) {
    const size_t end = std::min(proof.find('\n', at), proof.size());
    text += paragraph(std::string_view(proof).substr(at, end - at), style, 0, kHanging);
    at = end + 1;
  }
  // Whole lines, as they are made to be copied.
  text += "run file: " + file + "\n";
  if (!conclusion.report) return text;
  return text + "next: " + next_command(*conclusion.run, *conclusion.report, file) + "\n";
}

Json verdict_json(const Conclusion& conclusion) {
  if (!conclusion.report) return nullptr;
  const Verdict& verdict = conclusion.report->verdict;
  return {{"state", verdict_name(verdict.state)}, {"text", verdict.text}};
}

}  // namespace halfscope
