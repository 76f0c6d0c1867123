// SPDX-License-Identifier: MIT
// `halfscope report`: a run explained, as HTML, Markdown, JSON or CSV.
#include "analysis/report/report.h"

#include <fmt/format.h>
#include <memory>

#include "analysis/output_file.h"
#include "cli/command.h"

namespace halfscope {
namespace {

struct Options {
  std::string run, html, md, json, csv, fail_on;
  bool force = false;
};

int report_command(const Options& options) {
  check_distinct({options.run, options.html, options.md, options.json, options.csv});
  const Report report = make_report(RunView::open(options.run));
  const int code = exit_code(report.findings, options.fail_on);
  const struct {
    const std::string& file;
    std::string (*write)(const Report&);
  } forms[] = {{options.html, report_html},
               {options.md, report_markdown},
               {options.json, report_json},
               {options.csv, report_csv}};
  bool any = false;
  for (const auto& form : forms) {
    if (!form.file.empty()) check_output_file(form.file, options.force);
  }
  for (const auto& form : forms) {
    if (form.file.empty()) continue;
    write_output_file(form.file, form.write(report), options.force);
    any = true;
  }
  if (!any) fmt::print("{}", report_markdown(report));
  return code;
}

}  // namespace

void add_report(CLI::App& app, Command& command) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand("report", "Explain a run: HTML, Markdown, JSON, CSV");
  sub->footer("Example:  halfscope report run.hscope --html report.html");
  sub->add_option("run", options->run, "Run file")->required();
  sub->add_option("--html", options->html, "One self-contained page");
  sub->add_option("--md", options->md, "Markdown that fits a pull-request comment");
  sub->add_option("--json", options->json, "Everything, for programs");
  sub->add_option("--csv", options->csv, "The table of layers");
  sub->add_option("--fail-on", options->fail_on, "Exit with 1 if a finding is at least info, warning or error");
  sub->add_flag("--force", options->force, "Replace existing output files");
  sub->callback([options, &command] { command = [options] { return report_command(*options); }; });
}

}  // namespace halfscope
