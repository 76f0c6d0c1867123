// SPDX-License-Identifier: MIT
#include "cli/sweep/sweep_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "analysis/rules/text.h"
#include "analysis/study/study_facts.h"
#include "cli/sweep/study_folder.h"
#include "cli/terminal/lane_summary.h"
#include "core/data/stored_array.h"

namespace halfscope {
namespace {

constexpr size_t kErrorsInJson = 20;

/// Returns where most failing trials of a plan overflow or are not finite first, or null.
const FirstLayer* first_failing_layer(const StudyGroup& plan) {
  const bool any = !plan.first_layers.empty() && plan.first_layers.front().failing > 0;
  return any ? &plan.first_layers.front() : nullptr;
}

std::vector<std::string> table_row(const StudyGroup& plan) {
  const bool any = plan.finished > 0;
  const FirstLayer* const first = first_failing_layer(plan);
  return {printable_name(plan.name) + (plan.baseline ? " (baseline)" : ""),
          fmt::format("{}/{}", plan.finished, plan.planned),
          any ? fmt::format("{}/{}", plan.failing, plan.finished) : "-",
          any ? percent(plan.failing_share()) : "-",
          table_number(plan.loss.value_or(std::nan(""))),
          first == nullptr ? "-"
                           : fmt::format("{} ({})", printable_name(first->layer), first->failing)};
}

}  // namespace

std::string sweep_text(const StudyView& study, const std::string& folder, size_t width) {
  std::vector<std::vector<std::string>> rows{
      {"plan", "trials", "fail", "share", "loss", "first failing layer"}};
  for (const StudyGroup& plan : plan_groups(study)) rows.push_back(table_row(plan));
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
  for (const StudyGroup& plan : plan_groups(study)) {
    const FirstLayer* const first = first_failing_layer(plan);
    json["plans"].push_back({{"plan", plan.name},
                             {"baseline", plan.baseline},
                             {"trials", plan.planned},
                             {"done", plan.finished},
                             {"failed", plan.not_trained},
                             {"failing", plan.failing},
                             {"median_loss", plan.loss ? json_number(*plan.loss) : Json(nullptr)},
                             {"first_layer", first == nullptr ? Json(nullptr) : Json(first->layer)},
                             {"first_layer_trials", first == nullptr ? 0 : first->failing}});
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
