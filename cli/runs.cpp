// SPDX-License-Identifier: MIT
// `halfscope runs`: one line per lane of one or more run files.
#include <fmt/format.h>

#include <memory>

#include "analysis/run_view.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/lane_summary.h"

namespace halfscope {
namespace {

struct RunsOptions {
  std::vector<std::string> files;
  bool json = false;
};

Json run_json(const std::string& file, const RunView& run) {
  const RunInfo& info = run.info();
  Json json;
  json["run"] = file;
  json["version"] = info.version;
  json["model"] = info.model;
  json["data"] = info.data;
  json["optimizer"] = info.optimizer;
  json["batch"] = info.batch;
  json["seed"] = info.seed;
  json["status"] = status_name(run.status());
  json["steps_planned"] = info.steps_planned;
  json["settings"] = info.settings;
  json["command"] = info.command;
  json["lanes"] = to_json(lane_summaries(run));
  return json;
}

int runs_command(const RunsOptions& options) {
  std::vector<std::vector<std::string>> rows{
      {"run", "model", "data", "lane", "status", "steps", "last loss", "skipped", "test acc"}};
  Json runs = Json::array();
  for (const std::string& file : options.files) {
    const RunView run = RunView::open(file);
    const RunInfo& info = run.info();
    if (options.json) {
      runs.push_back(run_json(file, run));
      continue;
    }
    for (const LaneSummary& lane : lane_summaries(run)) {
      rows.push_back({file, info.model, info.data, lane.name,
                      lane.lost ? "lost" : status_name(run.status()),
                      fmt::format("{}/{}", lane.steps_done(), info.steps_planned),
                      lane.last_loss_text(), std::to_string(lane.skipped), lane.accuracy_text()});
    }
  }
  if (options.json) {
    write_json(Json{{"schema", "halfscope.runs/1"}, {"version", kVersion}, {"runs", runs}});
  } else {
    write_out(aligned(rows, {false, false, false, false, false, true, true, true, true}));
  }
  return 0;
}

}  // namespace

void add_runs(CLI::App& app, Command& command) {
  auto options = std::make_shared<RunsOptions>();
  CLI::App* sub = app.add_subcommand("runs", "List the lanes of run files, also of growing ones");
  sub->footer("Example:  halfscope runs run.hscope hot.hscope");
  offer(sub->add_option("run", options->files, "Files that `halfscope train` has written")
            ->required()
            ->type_name("RUN")
            ->group(group::kArguments),
        {.files = "*.hscope"});
  sub->add_flag("--json", options->json, "Print the list as JSON")->group(group::kOutput);
  sub->callback([options, &command] { command = [options] { return runs_command(*options); }; });
}

}  // namespace halfscope
