// SPDX-License-Identifier: MIT
// `halfscope inspect`: one line per lane of one or more run files.
#include <fmt/format.h>

#include <memory>

#include "analysis/run_view.h"
#include "cli/args/arguments.h"
#include "cli/commands/command.h"
#include "cli/terminal/lane_summary.h"

namespace halfscope {
namespace {

struct InspectOptions {
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

int inspect(const InspectOptions& options) {
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

void add_inspect(CLI::App& app, Invocation& call) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* sub = app.add_subcommand(
      "inspect", "List the lanes in run files, including runs still in progress");
  sub->footer("Example:  halfscope inspect run.hscope hot.hscope");
  offer(sub->add_option("run", options->files, "Run files, as `halfscope train` writes them")
            ->required()
            ->type_name("RUN")
            ->group(group::kArguments),
        {.files = "*.hscope"});
  sub->add_flag("--json", options->json, "Print the list as JSON")->group(group::kOutput);
  sub->callback([options, &call] { call.action = [options] { return inspect(*options); }; });
}

}  // namespace halfscope
