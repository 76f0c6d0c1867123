// SPDX-License-Identifier: MIT
// Edits become rules at the end of the plan, because the last rule wins.
#include "gui/state/edited_plan.h"

#include <algorithm>

#include "analysis/rules/text.h"
#include "core/error.h"
#include "core/policy/policy.h"

namespace halfscope::gui {
namespace {

constexpr const char* kSuffix = "+edited";

}  // namespace

std::string edited_plan(const LaneInfo& lane, const PlanEdit& edits) {
  Plan plan = edits.apply(plan_from_json(lane.plan_json));
  if (edits.changes_plan() && !plan.name.ends_with(kSuffix)) plan.name += kSuffix;
  return plan_to_json(plan);
}

std::string plan_argument(const LaneInfo& lane, const std::string& plan_file) {
  // The plan alone selects between the two CPU backends.
  const bool on_processor = lane.backend == "emulated" || lane.backend == "float64";
  return on_processor ? plan_file : lane.backend + ":" + plan_file;
}

std::vector<std::string> trial_command(const RunInfo& run, int reference, const PlanEdit& edits,
                                       const std::string& plan, const std::string& out) {
  if (run.settings.empty()) {
    throw Error("this run file does not say how it was trained",
                "save the plan and train it with the program that made this run");
  }
  std::vector<std::string> words{run.inference ? "run" : "train"};
  words.insert(words.end(), run.settings.begin(), run.settings.end());
  std::string lanes = plan;
  if (reference >= 0) {
    const std::string& name = run.lanes.at(static_cast<size_t>(reference)).name;
    if (preset_plan(name)) lanes = name + "," + lanes;
  }
  words.insert(words.end(), {"--lanes", lanes});
  if (run.inference) {
    words.insert(words.end(), {"--record", out, "--force"});
    return words;
  }
  if (edits.loss_scale()) {
    std::string scale = short_number(*edits.loss_scale());
    const int64_t whole = static_cast<int64_t>(*edits.loss_scale());
    if (static_cast<double>(whole) == *edits.loss_scale()) scale = std::to_string(whole);
    words.insert(words.end(), {"--loss-scale", "static:" + scale});
  } else {
    const auto flag = std::find(run.lane_settings.begin(), run.lane_settings.end(), "--loss-scale");
    if (flag != run.lane_settings.end() && flag + 1 != run.lane_settings.end()) {
      words.insert(words.end(), {*flag, *(flag + 1)});
    }
  }
  words.insert(words.end(), {"--out", out, "--force"});
  return words;
}

std::string command_text(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + shell_quoted(word);
  return text;
}

}  // namespace halfscope::gui
