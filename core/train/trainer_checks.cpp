// SPDX-License-Identifier: MIT
// Checks of a training's settings before it starts.
#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/near_miss.h"
#include "core/train/trainer.h"

namespace halfscope {

void Trainer::check_groups(const Executable& executable) const {
  constexpr size_t kShown = 8;
  std::set<std::string> moved;  // states of the optimizer are among them
  for (const Variable& variable : executable.graph.variables()) {
    if (variable.next != kNone) moved.insert(variable.path);
  }
  std::vector<const Variable*> trained;
  std::vector<std::string> paths;
  for (const Variable& variable : model_.graph.variables()) {
    if (variable.buffer || !moved.contains(variable.path)) continue;
    trained.push_back(&variable);
    paths.push_back(variable.path);
  }
  for (const ParameterGroup& group : config_.groups) {
    const std::span<const ParameterGroup> alone(&group, 1);
    const auto belongs = [&](const Variable* each) { return group_of(alone, *each) != nullptr; };
    const auto found = std::find_if(trained.begin(), trained.end(), belongs);
    if (found != trained.end()) {
      optimizer_of(config_.optimizer, alone, **found);  // also where an earlier group applies
      continue;
    }
    const std::vector<std::string> first(
        paths.begin(), paths.begin() + static_cast<int64_t>(std::min(kShown, paths.size())));
    throw usage_error(
        "parameter group '" + group.glob + "' matches no weight that is trained",
        did_you_mean(group.glob, paths,
                     "weights: " + comma_list(first) + (paths.size() > kShown ? " ..." : "")))
        .about({"param_group"});
  }
}

void Trainer::check_trained() const {
  const bool can = config_.every == 0 && parts() == config_.micro_batches &&
                   config_.exchange == nullptr && config_.checkpoint.empty() &&
                   config_.errors.extent != ErrorSampling::Extent::tensors;
  for (const LaneConfig& lane : config_.lanes) {
    if (lane.trained == nullptr) continue;
    if (!can || static_cast<int64_t>(lane.trained->rows.size()) != config_.steps)
      throw Error("lane " + lane.name() + ": an earlier training does not fit these settings");
  }
}

void Trainer::check_schedule() const {
  const Schedule& schedule = config_.schedule;
  if (schedule.kind != Schedule::Kind::file) return;
  const int64_t rates = static_cast<int64_t>(schedule.rates.size());
  if (rates < config_.steps) {
    throw usage_error("schedule: '" + schedule.file + "' has " + std::to_string(rates) +
                          " learning rates, too few for " + std::to_string(config_.steps) +
                          " steps",
                      "use --steps " + std::to_string(rates) + ", or a file with more rates")
        .about({"schedule", "steps"});
  }
  for (const OptionSeries& each : schedule.series) {
    const auto named = [&](const ParameterGroup& group) { return group.glob == each.option.glob; };
    const std::string array = "schedule: '" + schedule.file + "' has an array '" +
                              scheduled_option_text(each.option) + "'";
    if (!has_option(config_.optimizer, each.option.key)) {
      throw usage_error(array + ", but the optimizer has no option '" + each.option.key + "'",
                        "leave the array out, or use another --optimizer")
          .about({"schedule", "optimizer"});
    }
    if (!each.option.glob.empty() &&
        std::none_of(config_.groups.begin(), config_.groups.end(), named)) {
      throw usage_error(array + ", but no parameter group has the glob '" + each.option.glob + "'",
                        "write, for example, --param-group '" + each.option.glob + ":lr=0.1'")
          .about({"schedule", "param_group"});
    }
  }
  const std::vector<ScheduledOption> scheduled = scheduled_options(schedule);
  const auto follows_base = [&](const ParameterGroup& group) {
    return group.sets("lr") && !scheduled_at(scheduled, &group, "lr");
  };
  const bool scales = std::any_of(config_.groups.begin(), config_.groups.end(), follows_base);
  if (scales && config_.optimizer.learning_rate == 0.0) {
    throw usage_error(
        "the rates of the schedule are for the optimizer's lr, which is 0, so rates of groups "
        "cannot "
        "be derived from them",
        "use an lr above 0 with --optimizer")
        .about({"schedule", "optimizer", "param_group"});
  }
}

}  // namespace halfscope
