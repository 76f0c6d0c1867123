// SPDX-License-Identifier: MIT
// `halfscope report`: a run or a study explained, as HTML, Markdown, JSON or CSV; of a run also its
// tables as CSV, a folder for TensorBoard, and a gate for continuous integration, as text, JSON,
// JUnit and SARIF.
#include "analysis/report/report.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "analysis/export/csv.h"
#include "analysis/export/tensorboard.h"
#include "analysis/gate/gate.h"
#include "analysis/rules/rules.h"
#include "analysis/study/study_view.h"
#include "cli/args/arguments.h"
#include "cli/commands/command.h"
#include "cli/tasks/study_report.h"
#include "cli/terminal/output.h"
#include "core/error.h"

namespace halfscope {
namespace {

struct ReportOptions {
  std::string run, fail_on;
  std::string html, md, json, csv;          ///< files of the report
  std::string steps, stats, sums, kernels;  ///< files of tables
  std::string gate, baseline;               ///< files that are read
  std::string junit, sarif;                 ///< files of the gate's result
  std::string tensorboard;                  ///< a folder
  bool force = false, quiet = false, summary = false;
};

/// An output file and the function that makes its content.
struct ResultFile {
  const std::string& file;
  std::string (*report)(const Report&);  ///< null for a table
  void (*table)(const RunView&, std::ostream&) = nullptr;
  std::string (*gate)(const GateResult&) = nullptr;
};

/// A report that is made on first use: on a large run it takes a while, and tables do not need
/// it.
class LazyReport {
 public:
  explicit LazyReport(const RunView& run) : run_(run) {}
  const Report& get() {
    if (!report_) report_ = make_report(run_);
    return *report_;
  }

 private:
  const RunView& run_;
  std::optional<Report> report_;
};

/// Returns the gate of the options, --fail-on among its rules; empty if there is none.
std::optional<Gate> gate_of(const ReportOptions& options) {
  const std::pair<const char*, const std::string&> needs[] = {
      {"--baseline", options.baseline}, {"--junit", options.junit}, {"--sarif", options.sarif}};
  std::optional<Severity> severity;
  for (const Severity each : {Severity::info, Severity::warning, Severity::error}) {
    if (options.fail_on == severity_name(each)) severity = each;
  }
  if (options.gate.empty() && !severity) {
    for (const auto& [flag, file] : needs) {
      if (file.empty()) continue;
      throw usage_error(fmt::format("{} needs a gate", flag),
                        "add --gate FILE, or --fail-on SEVERITY");
    }
  }
  Gate gate;
  if (!options.gate.empty()) gate = load_gate(options.gate);
  if (severity) gate.rules.push_back(fail_on_rule(*severity));
  const bool wanted = !options.gate.empty() || !options.baseline.empty() ||
                      !options.junit.empty() || !options.sarif.empty();
  return wanted ? std::optional(gate) : std::nullopt;
}

/// Checks the gate. The findings of the run are the report's.
GateResult gate_result(const ReportOptions& options, const Gate& gate, const RunView& run,
                       LazyReport& report) {
  GateResult result = check_gate(gate, run, report.get().findings);
  result.run = options.run;
  result.baseline = options.baseline;
  if (!options.baseline.empty()) {
    const RunView baseline = RunView::open(options.baseline);
    compare_with_baseline(result, baseline, run_rules(baseline));
  }
  return result;
}

std::string text_of(const ResultFile& result, const RunView& run, LazyReport& report,
                    const std::optional<GateResult>& gate) {
  if (result.gate != nullptr) return result.gate(*gate);
  if (result.table == nullptr) {
    const std::string text = result.report(report.get());
    return gate && result.report == report_json ? with_gate(text, *gate) : text;
  }
  std::ostringstream text;
  result.table(run, text);
  return text.str();
}

void write_event_files(const ReportOptions& options, const RunView& run, LazyReport& report) {
  std::vector<std::string> findings;
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    findings.push_back(report_markdown_findings(report.get(), lane));
  }
  write_tensorboard(run, findings, options.tensorboard);
}

/// Refuses what a study does not have.
int report_of_study(const ReportOptions& options) {
  const std::pair<const char*, const std::string&> of_runs[] = {
      {"--steps", options.steps},
      {"--stats", options.stats},
      {"--sums", options.sums},
      {"--kernels", options.kernels},
      {"--tensorboard", options.tensorboard},
      {"--gate", options.gate},
      {"--baseline", options.baseline},
      {"--junit", options.junit},
      {"--sarif", options.sarif},
      {"--fail-on", options.fail_on}};
  for (const auto& [flag, value] : of_runs) {
    if (value.empty()) continue;
    throw usage_error(fmt::format("{} does not apply to a study", flag),
                      "use it on the run file of one trial");
  }
  report_study({.study = options.run,
                .html = options.html,
                .md = options.md,
                .json = options.json,
                .csv = options.csv,
                .force = options.force,
                .quiet = options.quiet,
                .summary = options.summary});
  return 0;
}

/// A report may also be wanted of a study, so hints name both.
RunView open_run(const std::string& file) {
  std::error_code error;
  const auto type = std::filesystem::status(file, error).type();
  if (type == std::filesystem::file_type::not_found) {
    throw Error(fmt::format("cannot read '{}': file not found", file),
                "`halfscope train --out FILE` writes a run file, `halfscope sweep` the folder of a "
                "study");
  }
  if (type == std::filesystem::file_type::directory) {
    throw usage_error(fmt::format("'{}' is a folder without a study", file),
                      "pass the run file in it, or a folder that `halfscope sweep` has made");
  }
  return RunView::open(file);
}

int report_command(const ReportOptions& options) {
  if (options.summary && options.quiet) {
    throw usage_error("--summary and --quiet exclude each other", "leave out one of them");
  }
  if (is_study(options.run)) return report_of_study(options);
  const ResultFile results[] = {{options.html, report_html},
                                {options.md, report_markdown},
                                {options.json, report_json},
                                {options.csv, report_csv},
                                {options.steps, nullptr, write_steps_csv},
                                {options.stats, nullptr, write_stats_csv},
                                {options.sums, nullptr, write_sums_csv},
                                {options.kernels, nullptr, write_kernels_csv},
                                {options.junit, nullptr, nullptr, gate_junit},
                                {options.sarif, nullptr, nullptr, gate_sarif}};
  CommandFiles files{.read = {options.run, options.gate, options.baseline}};
  bool writes = false, printed = false;
  for (const ResultFile& result : results) {
    if (result.file.empty()) continue;
    writes = true;
    printed = printed || result.file == kStandardOutput;
    files.written.push_back(result.file);
    if (options.summary && result.file == kStandardOutput) {
      throw usage_error("--summary and - both write to standard output", "leave out one of them");
    }
  }
  if (!options.tensorboard.empty()) {
    writes = true;
    files.folders.push_back(options.tensorboard);
    check_is_file_name(options.tensorboard, "a TensorBoard folder");
    check_tensorboard_folder(options.tensorboard, options.force);
  }
  check_files(files, options.force);
  exit_code({}, options.fail_on);  // a misspelt severity shows before the work
  const std::optional<Gate> gate = gate_of(options);
  const RunView run = open_run(options.run);
  LazyReport report(run);
  std::optional<GateResult> judged;
  if (gate) judged = gate_result(options, *gate, run, report);
  for (const ResultFile& result : results) {
    if (result.file.empty()) continue;
    write_result(result.file, text_of(result, run, report, judged), options.force);
  }
  if (!options.tensorboard.empty()) write_event_files(options, run, report);
  if (options.summary) {
    write_out(report_markdown_summary(report.get()));
  } else if (!writes && !options.quiet && !judged) {
    write_out(report_markdown(report.get()));
  }
  if (judged) {
    if (!options.quiet) write_message(gate_text(*judged), printed);
    return judged->passed() ? 0 : 1;
  }
  return options.fail_on.empty() ? 0 : exit_code(report.get().findings, options.fail_on);
}

}  // namespace

void add_report(CLI::App& app, Invocation& call) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* sub =
      app.add_subcommand("report", "Explain a run or a study as HTML, Markdown, JSON or CSV");
  sub->footer(
      "Example:  halfscope report run.hscope --html report.html\n"
      "          halfscope report run.hscope --gate gate.json --baseline main.hscope\n"
      "          halfscope report my-study --html report.html");
  add_run_file(*sub, options->run)
      ->description("Run file, or the folder of a study (`halfscope sweep`)");
  add_output(*sub, "--html", options->html, "*.html", "Write one self-contained page");
  add_output(*sub, "--md", options->md, "*.md",
             "Write Markdown, short enough for a pull request [printed]");
  add_output(*sub, "--json", options->json, "*.json", "Write everything as JSON, for programs");
  add_output(*sub, "--csv", options->csv, "*.csv",
             "Write the table of layers, or of a study's trials");
  const auto table = [&](const char* flag, std::string& file, const char* rows) {
    add_output(*sub, flag, file, "*.csv", rows)->group("Tables, as CSV");
  };
  table("--steps", options->steps, "One row per lane and step");
  table("--stats", options->stats, "One row per lane, step and tensor");
  table("--sums", options->sums, "One row per lane, compared step and matrix product");
  table("--kernels", options->kernels, "One row per GPU lane, compared step and tensor");
  sub->add_option("--tensorboard", options->tensorboard, "Write a new folder for TensorBoard")
      ->type_name("DIR")
      ->group(group::kOutput);
  const auto input = [&](const char* flag, std::string& file, const char* type, const char* glob,
                         const char* text) {
    offer(sub->add_option(flag, file, text)->type_name(type)->group("Gate for CI"),
          {.files = glob});
  };
  input("--gate", options->gate, "FILE", "*.json",
        "Fail (exit code 1) if the run exceeds a limit of this file");
  input("--baseline", options->baseline, "RUN", "*.hscope",
        "Fail only for violations that this older run does not have");
  add_output(*sub, "--junit", options->junit, "*.xml", "Write the gate's result as JUnit XML")
      ->group("Gate for CI");
  add_output(*sub, "--sarif", options->sarif, "*.sarif", "Write the gate's violations as SARIF")
      ->group("Gate for CI");
  add_force(*sub, options->force);
  sub->add_flag("--summary", options->summary,
                "Print about ten lines of Markdown, for a CI summary")
      ->group(group::kOutput);
  sub->add_flag("--quiet", options->quiet, "Print nothing")->group(group::kOutput);
  add_fail_on(*sub, options->fail_on);
  sub->callback([options, &call] { call.action = [options] { return report_command(*options); }; });
}

}  // namespace halfscope
