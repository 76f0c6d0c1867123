// SPDX-License-Identifier: MIT
#include "cli/sweep/sweep_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <utility>

#include "analysis/loss_gap.h"
#include "analysis/rules/text.h"
#include "cli/sweep/study_folder.h"
#include "cli/terminal/lane_summary.h"
#include "core/data/stored_array.h"

namespace halfscope {
namespace {

constexpr size_t kErrorsInJson = 20;

PlanSummary summarize_plan(std::string plan, bool baseline,
                           const std::vector<const TrialRow*>& trials) {
  PlanSummary summary{.plan = std::move(plan), .baseline = baseline, .trials = trials.size()};
  std::vector<double> losses;
  std::map<std::string, size_t> layers;
  for (const TrialRow* trial : trials) {
    summary.done += trial->done() ? 1 : 0;
    summary.failed += trial->status == TrialStatus::failed ? 1 : 0;
    summary.failing += trial->fails ? 1 : 0;
    if (std::isfinite(trial->loss)) losses.push_back(trial->loss);
    // A loss scaler may overflow now and then in trainings that do not fail.
    const std::string& layer = trial->first_bad ? trial->first_bad->layer : trial->cause_layer;
    if (trial->fails && !layer.empty()) ++layers[layer];
  }
  summary.median_loss = losses.empty() ? std::nan("") : median(std::move(losses));
  for (const auto& [layer, count] : layers) {
    if (count <= summary.first_trials) continue;
    summary.first_layer = layer;
    summary.first_trials = count;
  }
  return summary;
}

std::vector<std::string> table_row(const PlanSummary& plan) {
  const bool any = plan.done > 0;
  return {printable_name(plan.plan) + (plan.baseline ? " (baseline)" : ""),
          fmt::format("{}/{}", plan.done, plan.trials),
          any ? fmt::format("{}/{}", plan.failing, plan.done) : "-",
          any ? percent(static_cast<double>(plan.failing) / static_cast<double>(plan.done)) : "-",
          table_number(plan.median_loss),
          plan.first_layer.empty()
              ? "-"
              : fmt::format("{} ({})", printable_name(plan.first_layer), plan.first_trials)};
}

}  // namespace

std::vector<PlanSummary> summarize_plans(const StudyView& study) {
  std::vector<PlanSummary> plans;
  std::vector<const TrialRow*> baselines;
  for (const TrialRow& trial : study.trials()) {
    if (trial.baseline) baselines.push_back(&trial);
  }
  if (!baselines.empty()) plans.push_back(summarize_plan(study.info().baseline, true, baselines));
  const std::optional<size_t> axis = study.find_axis("plan");
  if (!axis) return plans;
  const std::vector<std::string>& names = study.axes()[*axis].values;
  for (size_t place = 0; place < names.size(); ++place) {
    std::vector<const TrialRow*> trials;
    for (const TrialRow& trial : study.trials()) {
      if (!trial.baseline && trial.places[*axis] == static_cast<int>(place)) {
        trials.push_back(&trial);
      }
    }
    plans.push_back(summarize_plan(names[place], false, trials));
  }
  return plans;
}

std::string sweep_text(const StudyView& study, const std::string& folder, size_t width) {
  std::vector<std::vector<std::string>> rows{
      {"plan", "trials", "fail", "share", "loss", "first failing layer"}};
  for (const PlanSummary& plan : summarize_plans(study)) rows.push_back(table_row(plan));
  std::string text = aligned(rows, {false, true, true, true, true, false}, width);
  if (study.count(TrialStatus::waiting) > 0) {
    text += fmt::format("{} of {} trials finished; the same command continues\n",
                        study.count(TrialStatus::done), study.trials().size());
  }
  return text + "study: " + folder + "\n";
}

Json sweep_json(const StudyView& study, const std::string& folder) {
  Json json{{"schema", "halfscope.sweep/1"},
            {"version", study.info().version},
            {"study", folder},
            {"name", study.info().name},
            {"trials", study.trials().size()},
            {"done", study.count(TrialStatus::done)},
            {"failed", study.count(TrialStatus::failed)},
            {"waiting", study.count(TrialStatus::waiting)},
            {"plans", Json::array()},
            {"errors", Json::array()}};
  for (const PlanSummary& plan : summarize_plans(study)) {
    json["plans"].push_back(
        {{"plan", plan.plan},
         {"baseline", plan.baseline},
         {"trials", plan.trials},
         {"done", plan.done},
         {"failed", plan.failed},
         {"failing", plan.failing},
         {"median_loss",
          std::isnan(plan.median_loss) ? Json(nullptr) : json_number(plan.median_loss)},
         {"first_layer", plan.first_layer.empty() ? Json(nullptr) : Json(plan.first_layer)},
         {"first_layer_trials", plan.first_trials}});
  }
  for (const TrialRow& trial : study.trials()) {
    if (trial.status != TrialStatus::failed) continue;
    if (json["errors"].size() == kErrorsInJson) break;
    json["errors"].push_back(
        {{"trial", trial.trial}, {"hash", trial.hash}, {"error", trial.error}});
  }
  return json;
}

std::optional<Error> sweep_error(const StudyView& study, const std::string& folder) {
  const size_t failed = study.count(TrialStatus::failed);
  if (failed == 0) return std::nullopt;
  const auto first =
      std::find_if(study.trials().begin(), study.trials().end(),
                   [](const TrialRow& row) { return row.status == TrialStatus::failed; });
  const std::string file = error_file(std::filesystem::path(folder) / first->run).string();
  return Error(fmt::format("{} of {} trials could not be trained, the first: {}", failed,
                           study.trials().size(), first->error),
               fmt::format("see {}, and run the same command again to try them once more", file));
}

}  // namespace halfscope
