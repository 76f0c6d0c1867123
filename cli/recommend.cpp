// SPDX-License-Identifier: MIT
// `halfscope recommend`: the findings of a run and the plan that would cure one of its lanes.
#include <algorithm>
#include <fmt/format.h>
#include <memory>

#include "analysis/output_file.h"
#include "analysis/rules/recommend.h"
#include "analysis/rules/rules.h"
#include "cli/command.h"
#include "core/error.h"

namespace halfscope {
namespace {

struct Options {
  std::string run, lane, out, fail_on;
  bool force = false;
};

int recommend_command(const Options& options) {
  check_distinct({options.run, options.out});
  const RunView run = RunView::open(options.run);
  const std::vector<Finding> findings = run_rules(run);
  const int code = exit_code(findings, options.fail_on);
  int lane = default_lane(run, findings);
  if (!options.lane.empty()) {
    const std::optional<int> found = run.find_lane(options.lane);
    if (!found) {
      std::string names;
      for (const LaneInfo& each : run.info().lanes) names += (names.empty() ? "" : ", ") + each.name;
      throw usage_error("the run has no lane " + options.lane, "lanes: " + names);
    }
    lane = *found;
  }
  if (lane < 0) throw Error(options.run + " has no lanes");
  fmt::print("lane {}\n", run.lane(lane).name);
  for (const Finding& finding : findings) {
    if (finding.lane == lane) fmt::print("  {}: {}\n", severity_name(finding.severity), finding.text);
  }
  const std::optional<Recommendation> advice = recommend(run, findings, lane);
  if (!advice) {
    const bool trouble = std::any_of(findings.begin(), findings.end(), [&](const Finding& finding) {
      return finding.lane == lane && finding.severity >= Severity::warning;
    });
    fmt::print("advice: {}\n", trouble ? "none that a plan could follow" : "none needed");
    if (!options.out.empty()) fmt::print("{} not written\n", options.out);
    return code;
  }
  fmt::print("advice: {}\n", advice->text);
  if (!options.out.empty()) {
    write_output_file(options.out, advice->plan_json + "\n", options.force);
    const RunInfo& info = run.info();
    std::string next = "halfscope train";
    const auto add = [&](const char* flag, const std::string& value) {
      next += std::string(" ") + flag + " " + shell_quoted(value);
    };
    add("--model", info.model);
    add("--data", info.data);
    add("--plan", options.out);
    if (advice->loss_scale) add("--loss-scale", fmt::format("static:{}", *advice->loss_scale));
    add("--optimizer", info.optimizer);
    add("--batch", std::to_string(info.batch));
    add("--steps", std::to_string(info.steps_planned));
    add("--seed", std::to_string(info.seed));
    fmt::print("plan: {}\nnext: {} --out cured.hscope\n", options.out, next);
  }
  return code;
}

}  // namespace

void add_recommend(CLI::App& app, Command& command) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand("recommend", "Say which layers to keep in fp32, and why");
  sub->footer("Example:  halfscope recommend hot.hscope --out plan.json");
  sub->add_option("run", options->run, "Run file")->required();
  sub->add_option("--lane", options->lane, "Lane; default: the first one with trouble");
  sub->add_option("--out", options->out, "Write the advised plan here");
  sub->add_option("--fail-on", options->fail_on, "Exit with 1 if a finding is at least info, warning or error");
  sub->add_flag("--force", options->force, "Replace an existing output file");
  sub->callback([options, &command] { command = [options] { return recommend_command(*options); }; });
}

}  // namespace halfscope
