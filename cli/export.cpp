// SPDX-License-Identifier: MIT
// `halfscope export`: the tables of a run as CSV.
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "analysis/export/csv.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/output.h"
#include "core/error.h"

namespace halfscope {
namespace {

struct ExportOptions {
  std::string run, steps, stats, sums, kernels;
  bool force = false;
};

int export_command(const ExportOptions& options) {
  const std::pair<const std::string&, void (*)(const RunView&, std::ostream&)> tables[] = {
      {options.steps, write_steps_csv},
      {options.stats, write_stats_csv},
      {options.sums, write_sums_csv},
      {options.kernels, write_kernels_csv}};
  std::vector<std::string> files{options.run};
  for (const auto& [file, table] : tables) {
    if (file.empty()) continue;
    files.push_back(file);
    check_result_file(file, options.force);
  }
  if (files.size() == 1) {
    throw usage_error("nothing to export",
                      "name --steps FILE, --stats FILE, --sums FILE, --kernels FILE or more");
  }
  check_distinct(files);
  const RunView run = RunView::open(options.run);
  for (const auto& [file, table] : tables) {
    if (file.empty()) continue;
    std::ostringstream text;
    table(run, text);
    write_result(file, text.str(), options.force);
  }
  return 0;
}

}  // namespace

void add_export(CLI::App& app, Command& command) {
  auto options = std::make_shared<ExportOptions>();
  CLI::App* sub =
      app.add_subcommand("export", "Write steps, statistics, sums and kernels of a run as CSV");
  sub->footer("Example:  halfscope export run.hscope --steps steps.csv --stats stats.csv");
  add_run_file(*sub, options->run);
  add_output(*sub, "--steps", options->steps, "*.csv", "One row per lane and step");
  add_output(*sub, "--stats", options->stats, "*.csv", "One row per lane, step and site");
  add_output(*sub, "--sums", options->sums, "*.csv",
             "One row per lane, compared step and tensor of sums of products");
  add_output(*sub, "--kernels", options->kernels, "*.csv",
             "One row per lane on a GPU, compared step and tensor: the kernel beside the emulator");
  add_force(*sub, options->force);
  sub->callback([options, &command] { command = [options] { return export_command(*options); }; });
}

}  // namespace halfscope
