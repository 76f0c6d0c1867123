// SPDX-License-Identifier: MIT
// `halfscope report`: a run explained, as HTML, Markdown, JSON or CSV, and its tables as CSV.
#include "analysis/report/report.h"

#include <memory>
#include <optional>
#include <sstream>
#include <vector>

#include "analysis/export/csv.h"
#include "cli/args/arguments.h"
#include "cli/commands/command.h"
#include "cli/terminal/output.h"
#include "core/error.h"

namespace halfscope {
namespace {

struct ReportOptions {
  std::string run, fail_on;
  std::string html, md, json, csv;          ///< files of the report
  std::string steps, stats, sums, kernels;  ///< files of tables
  bool force = false, quiet = false, summary = false;
};

/// An output file and the function that makes its content.
struct ResultFile {
  const std::string& file;
  std::string (*report)(const Report&);  ///< null for a table
  void (*table)(const RunView&, std::ostream&) = nullptr;
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

std::string text_of(const ResultFile& result, const RunView& run, LazyReport& report) {
  if (result.table == nullptr) return result.report(report.get());
  std::ostringstream text;
  result.table(run, text);
  return text.str();
}

int report_command(const ReportOptions& options) {
  const ResultFile results[] = {{options.html, report_html},
                                {options.md, report_markdown},
                                {options.json, report_json},
                                {options.csv, report_csv},
                                {options.steps, nullptr, write_steps_csv},
                                {options.stats, nullptr, write_stats_csv},
                                {options.sums, nullptr, write_sums_csv},
                                {options.kernels, nullptr, write_kernels_csv}};
  std::vector<std::string> files{options.run};
  for (const ResultFile& result : results) {
    if (result.file.empty()) continue;
    files.push_back(result.file);
    check_result_file(result.file, options.force);
    if (options.summary && result.file == kStandardOutput) {
      throw usage_error("--summary and - both write to standard output", "leave out one of them");
    }
  }
  check_distinct(files);
  if (options.summary && options.quiet) {
    throw usage_error("--summary and --quiet exclude each other", "leave out one of them");
  }
  exit_code({}, options.fail_on);  // a misspelt severity shows before the work
  const RunView run = RunView::open(options.run);
  LazyReport report(run);
  for (const ResultFile& result : results) {
    if (result.file.empty()) continue;
    write_result(result.file, text_of(result, run, report), options.force);
  }
  if (options.summary) {
    write_out(report_markdown_summary(report.get()));
  } else if (files.size() == 1 && !options.quiet) {
    write_out(report_markdown(report.get()));
  }
  return options.fail_on.empty() ? 0 : exit_code(report.get().findings, options.fail_on);
}

}  // namespace

void add_report(CLI::App& app, Invocation& call) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* sub = app.add_subcommand("report", "Explain a run as HTML, Markdown, JSON or CSV");
  sub->footer("Example:  halfscope report run.hscope --html report.html");
  add_run_file(*sub, options->run);
  add_output(*sub, "--html", options->html, "*.html", "Write one self-contained page");
  add_output(*sub, "--md", options->md, "*.md",
             "Write Markdown, short enough for a pull request [printed]");
  add_output(*sub, "--json", options->json, "*.json", "Write everything as JSON, for programs");
  add_output(*sub, "--csv", options->csv, "*.csv", "Write the table of layers");
  const auto table = [&](const char* flag, std::string& file, const char* rows) {
    add_output(*sub, flag, file, "*.csv", rows)->group("Tables, as CSV");
  };
  table("--steps", options->steps, "One row per lane and step");
  table("--stats", options->stats, "One row per lane, step and tensor");
  table("--sums", options->sums, "One row per lane, compared step and matrix product");
  table("--kernels", options->kernels, "One row per GPU lane, compared step and tensor");
  add_force(*sub, options->force);
  sub->add_flag("--summary", options->summary,
                "Print about ten lines of Markdown, for a CI summary")
      ->group(group::kOutput);
  sub->add_flag("--quiet", options->quiet, "Print nothing")->group(group::kOutput);
  add_fail_on(*sub, options->fail_on);
  sub->callback([options, &call] { call.action = [options] { return report_command(*options); }; });
}

}  // namespace halfscope
