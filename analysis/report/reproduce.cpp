// SPDX-License-Identifier: MIT
// The commands that reproduce a run and its report on any machine: without folders of this one and
// without flags that only name output files. The JSON report has the exact command line.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "analysis/report/report_parts.h"
#include "analysis/rules/text.h"
#include "core/error.h"
#include "core/policy/policy.h"

namespace halfscope::report {
namespace {

using Json = nlohmann::json;

/// Returns "mnist:mnist" for "mnist:/data/me/mnist": what comes after the last slash of a path that
/// starts at the root, after "KIND:" or "NAME=". Values with a relative path stay as they are.
std::string without_folders(const std::string& value) {
  size_t path = 0;
  if (!value.starts_with('/')) {
    path = std::min(value.find(":/"), value.find("=/"));
    if (path == std::string::npos || value.find('/') != path + 1) return value;
    ++path;
  }
  std::string name = value.substr(path);
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  return value.substr(0, path) + name.substr(name.rfind('/') + 1);
}

/// Does the same for every item of a list. Plans given as JSON are unchanged.
std::string list_without_folders(const std::string& list) {
  std::string text;
  for (const std::string& item : split_lanes(list)) {
    text += (text.empty() ? "" : ",") + (item.starts_with('{') ? item : without_folders(item));
  }
  return text;
}

/// Returns arguments for a shell, with files by their names alone.
std::string shell_words(const std::vector<std::string>& words) {
  const std::vector<std::string> of_files{"--model", "--data",   "--init",
                                          "--input", "--labels", "--lanes"};
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string flag = i > 0 && words[i - 1].starts_with("--") ? words[i - 1] : "";
    const bool argument = i == 0 && !words[i].starts_with("--");
    const bool is_file = std::find(of_files.begin(), of_files.end(), flag) != of_files.end();
    const std::string word = argument || is_file ? list_without_folders(words[i]) : words[i];
    text += " " + shell_quoted(word);
  }
  return text;
}

bool is_preset(const LaneReport& lane) {
  const std::optional<Plan> preset = preset_plan(lane.name);
  if (!preset) return false;
  const Json stored = Json::parse(lane.plan_json, nullptr, false);
  return stored == Json::parse(plan_to_json(*preset));
}

/// The default of `train` for lanes that need scaling.
constexpr const char* kUsualScaling = "dynamic:65536";

bool scaled_by_default(const LaneReport& lane) {
  try {
    return needs_loss_scaling(plan_from_json(lane.plan_json));
  } catch (const Error&) {
    return false;  // a plan of another version
  }
}

/// Returns the value of --loss-scale; "" if it is the default, or if lanes differ in it.
std::string unusual_scaling(const Report& report) {
  std::string asked;
  for (const LaneReport& lane : report.lanes) {
    if (lane.loss_scaling.empty() || lane.reference) continue;
    const bool usual = lane.loss_scaling == (scaled_by_default(lane) ? kUsualScaling : "none");
    const std::string scaling = usual ? "" : lane.loss_scaling;
    if (!asked.empty() && !scaling.empty() && scaling != asked) return "";
    if (!scaling.empty()) asked = scaling;
  }
  return asked;
}

/// Returns arguments for the lanes of a run that does not record them.
std::string guessed_lane_arguments(const Report& report) {
  std::string lanes;
  for (const LaneReport& lane : report.lanes) {
    std::string name = lane.name;
    if (!is_preset(lane)) {
      std::replace(name.begin(), name.end(), '/', '-');
      name += ".json";  // the report shows the plan to be saved under this name
    }
    lanes += (lanes.empty() ? "" : ",") + name;
  }
  const std::string scaling = unusual_scaling(report);
  return (scaling.empty() ? "" : " --loss-scale " + shell_quoted(scaling)) + " --lanes " +
         shell_quoted(lanes);
}

}  // namespace

void add_reproduction(const RunView& view, Report& report) {
  const RunInfo& run = report.run;
  if (report.lanes.empty() || run.model.empty()) return;
  if (is_capture(report.lanes.front().backend)) return;  // another program trained
  std::string command = run.inference ? "halfscope run" : "halfscope train";
  const auto add = [&](const std::string& flag, const std::string& value) {
    command += " " + flag + " " + shell_quoted(without_folders(value));
  };
  if (!run.settings.empty()) {
    command += shell_words(run.settings);
  } else {
    add("--model", run.model);
    add("--data", run.data);
    add("--optimizer", run.optimizer);
    add("--batch", std::to_string(run.batch));
    add("--steps", std::to_string(run.steps_planned));
    add("--seed", std::to_string(run.seed));
    if (run.every != 1) add("--every", std::to_string(run.every));
  }
  command +=
      run.lane_settings.empty() ? guessed_lane_arguments(report) : shell_words(run.lane_settings);
  report.reproduce = {command + (run.inference ? " --record" : " --out") + " run.hscope",
                      "halfscope report run.hscope --html report.html"};
  const std::span<const StepRow> rows = view.steps(0);
  if (!rows.empty() && rows.front().step > 0) {
    report.reproduce.push_back(
        fmt::format("# resumed from a checkpoint after step {}; a run from the start is the same "
                    "if the earlier "
                    "steps used these settings",
                    rows.front().step));
  }
}

}  // namespace halfscope::report
