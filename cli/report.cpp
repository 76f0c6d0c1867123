// SPDX-License-Identifier: MIT
// `halfscope report`: a run explained, as HTML, Markdown, JSON or CSV.
#include "analysis/report/report.h"

#include <memory>

#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/output.h"
#include "core/error.h"

namespace halfscope {
namespace {

struct ReportOptions {
  std::string run, html, md, json, csv, fail_on;
  bool force = false, quiet = false, summary = false;
};

int report_command(const ReportOptions& options) {
  check_distinct({options.run, options.html, options.md, options.json, options.csv});
  const struct {
    const std::string& file;
    std::string (*write)(const Report&);
  } forms[] = {{options.html, report_html},
               {options.md, report_markdown},
               {options.json, report_json},
               {options.csv, report_csv}};
  bool any = false;
  for (const auto& form : forms) {
    if (form.file.empty()) continue;
    check_result_file(form.file, options.force);
    any = true;
    if (options.summary && form.file == kStandardOutput) {
      throw usage_error("--summary and - both write to standard output", "leave out one of them");
    }
  }
  if (options.summary && options.quiet) {
    throw usage_error("--summary and --quiet exclude each other", "leave out one of them");
  }
  exit_code({}, options.fail_on);  // a misspelt severity shows before the work
  const Report report = make_report(RunView::open(options.run));
  for (const auto& form : forms) {
    if (!form.file.empty()) write_result(form.file, form.write(report), options.force);
  }
  if (options.summary) {
    write_out(report_markdown_summary(report));
  } else if (!any && !options.quiet) {
    write_out(report_markdown(report));
  }
  return exit_code(report.findings, options.fail_on);
}

}  // namespace

void add_report(CLI::App& app, Command& command) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* sub = app.add_subcommand("report", "Explain a run: HTML, Markdown, JSON, CSV");
  sub->footer("Example:  halfscope report run.hscope --html report.html");
  add_run_file(*sub, options->run);
  add_output(*sub, "--html", options->html, "*.html", "One self-contained page");
  add_output(*sub, "--md", options->md, "*.md",
             "Markdown that fits a pull-request comment; printed if no file is named");
  add_output(*sub, "--json", options->json, "*.json", "Everything, for programs");
  add_output(*sub, "--csv", options->csv, "*.csv", "The table of layers");
  add_force(*sub, options->force);
  sub->add_flag("--summary", options->summary,
                "Print about ten lines of Markdown, for a build's summary page")
      ->group(group::kOutput);
  sub->add_flag("--quiet", options->quiet, "Print nothing")->group(group::kOutput);
  add_fail_on(*sub, options->fail_on);
  sub->callback([options, &command] { command = [options] { return report_command(*options); }; });
}

}  // namespace halfscope
