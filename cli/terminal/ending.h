// SPDX-License-Identifier: MIT
// Closing text of `train`, `run` and `diagnose`: the report's verdict, its cause, what to do
// and the command to run next. Nothing is judged here, so these commands and `report` agree.
#pragma once

#include <optional>
#include <string>

#include "analysis/report/report.h"
#include "analysis/run_view.h"
#include "cli/terminal/output.h"
#include "core/error.h"

namespace halfscope {

/// A run read back from its file, and the report on it.
struct Conclusion {
  std::optional<RunView> run;
  std::optional<Report> report;
  std::optional<Error> problem;  ///< why there is no report

  /// Throws `problem` if there is one: after everything else has been printed.
  void check() const;
};
/// Reads a run file that has just been completed. Does not throw Error: see `problem`.
Conclusion conclude(const std::string& file);

/// Returns the state of the verdict in its colour, and its sentences below.
std::string verdict_text(const Verdict& verdict, const TextStyle& style);

/// Returns the lane that `diagnose` advises on if the user names none: the one that the report
/// advises on, else default_lane().
int advised_lane(const RunView& run, const Report& report);

/// Returns whether the advice on a lane can be tried by repeating the run, in about the time that
/// it took.
bool can_be_proved(const RunView& run, int lane);

/// Returns the command that writes the advised plan for `lane`. It proves the plan first if that
/// can be done and was not `proved` in the run file before.
std::string advice_command(const RunView& run, const Report& report, int lane,
                           const std::string& file, bool proved);

/// Returns the command that writes the report as a page.
std::string report_command_line(const std::string& file);

/// Returns what is printed at the end of a run: verdict, up to two causes, advice, `proof` (lines
/// of its own; may be empty), the run file and the next command.
std::string ending_text(const Conclusion& conclusion, const std::string& file,
                        const std::string& proof, const TextStyle& style);

/// Returns the member `verdict` of JSON results: {"state", "text"}; null without a report.
Json verdict_json(const Conclusion& conclusion);

}  // namespace halfscope
