// SPDX-License-Identifier: MIT
// `halfscope runs`: one line per lane of one or more run files.
#include <fmt/format.h>
#include <memory>

#include "analysis/run_view.h"
#include "cli/command.h"

namespace halfscope {
namespace {

int runs_command(const std::vector<std::string>& files) {
  std::vector<std::vector<std::string>> rows{
      {"run", "model", "data", "lane", "status", "steps", "last loss", "skipped", "test acc"}};
  for (const std::string& file : files) {
    const RunView run = RunView::open(file);
    for (int lane = 0; lane < run.lane_count(); ++lane) {
      const auto steps = run.steps(lane);
      int64_t skipped = 0;
      for (const StepRow& row : steps) skipped += row.skipped ? 1 : 0;
      const auto evals = run.evals(lane);
      rows.push_back({file, run.info().model, run.info().data, run.lane(lane).name, status_name(run.status()),
                      fmt::format("{}/{}", steps.size(), run.info().steps_planned),
                      steps.empty() ? "-" : table_number(steps.back().loss), std::to_string(skipped),
                      evals.empty() ? "-" : fmt::format("{:.2f}%", 100.0 * evals.back().accuracy)});
    }
  }
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print("{}\n", line);
  }
  return 0;
}

}  // namespace

void add_runs(CLI::App& app, Command& command) {
  auto files = std::make_shared<std::vector<std::string>>();
  CLI::App* sub = app.add_subcommand("runs", "List the lanes of run files");
  sub->footer("Example:  halfscope runs run.hscope hot.hscope");
  sub->add_option("run", *files, "Run files")->required();
  sub->callback([files, &command] { command = [files] { return runs_command(*files); }; });
}

}  // namespace halfscope
