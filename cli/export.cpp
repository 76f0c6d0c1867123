// SPDX-License-Identifier: MIT
// `halfscope export`: the tables of a run as CSV.
#include <memory>
#include <sstream>

#include "analysis/export/csv.h"
#include "analysis/output_file.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "core/error.h"

namespace halfscope {
namespace {

struct Options {
  std::string run, steps, stats, sums;
  bool force = false;
};

int export_command(const Options& options) {
  if (options.steps.empty() && options.stats.empty() && options.sums.empty()) {
    throw usage_error("nothing to export", "name --steps FILE, --stats FILE, --sums FILE or more");
  }
  check_distinct({options.run, options.steps, options.stats, options.sums});
  for (const std::string& file : {options.steps, options.stats, options.sums}) {
    if (!file.empty()) check_output_file(file, options.force);
  }
  const RunView run = RunView::open(options.run);
  const auto write = [&](const std::string& file, void (*table)(const RunView&, std::ostream&)) {
    if (file.empty()) return;
    std::ostringstream text;
    table(run, text);
    write_output_file(file, text.str(), options.force);
  };
  write(options.steps, write_steps_csv);
  write(options.stats, write_stats_csv);
  write(options.sums, write_sums_csv);
  return 0;
}

}  // namespace

void add_export(CLI::App& app, Command& command) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand("export", "Write steps, statistics and sums of a run as CSV");
  sub->footer("Example:  halfscope export run.hscope --steps steps.csv --stats stats.csv");
  add_run_file(*sub, options->run);
  add_output(*sub, "--steps", options->steps, "*.csv", "One row per lane and step");
  add_output(*sub, "--stats", options->stats, "*.csv", "One row per lane, step and site");
  add_output(*sub, "--sums", options->sums, "*.csv",
             "One row per lane, compared step and tensor of sums of products");
  add_force(*sub, options->force);
  sub->callback([options, &command] { command = [options] { return export_command(*options); }; });
}

}  // namespace halfscope
