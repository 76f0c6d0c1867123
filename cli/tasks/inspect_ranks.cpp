// SPDX-License-Identifier: MIT
#include "cli/tasks/inspect_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "analysis/rules/rank_estimate.h"
#include "analysis/rules/rank_facts.h"
#include "analysis/rules/text.h"
#include "cli/terminal/lane_summary.h"
#include "core/numeric/statistics/rates.h"

namespace halfscope {
namespace {

double lost_share(const ReductionError& row) { return share_of(row.swamped, row.additions); }

/// As it was done: in the format of the reduced gradient, which is fp32 in full-precision lanes.
std::string text_of(const LaneFacts& lane, const RecordedReduction& recorded) {
  Reduction how = reduction_of_lane(lane);
  how.format = lane.site(recorded.site).format;
  return reduction_text(how);
}

std::string table_of(const RecordedReduction& recorded) {
  std::vector<std::vector<std::string>> rows{{"ranks", "error", "lost", "overflow", ""}};
  for (const ReductionError& row : recorded.rows) {
    rows.push_back({std::to_string(row.ranks), short_number(row.error), percent(lost_share(row)),
                    percent(share_of(row.broken, row.n)), "recorded"});
  }
  for (const RankEstimate& each : recorded.estimates) {
    const std::string least = short_number(each.least), most = short_number(each.most);
    rows.push_back({std::to_string(each.ranks), least == most ? least : least + " to " + most,
                    percent(each.lost), "-", "estimate"});
  }
  return aligned(rows, {true, true, true, true, false});
}

/// Why the table ends with the run's ranks; "" if it does not.
std::string no_estimates(const RecordedReduction& recorded) {
  if (!recorded.estimates.empty() || recorded.rows.back().ranks >= kMostRanks) return "";
  const bool overflows = std::any_of(recorded.rows.begin(), recorded.rows.end(),
                                     [](const ReductionError& row) { return row.broken > 0; });
  return overflows ? "No estimate for more ranks: sums overflow.\n"
                   : fmt::format("No estimate for more ranks: this needs a run with {} ranks.\n",
                                 kRanksToEstimate);
}

}  // namespace

std::string reductions_text(const std::string& file, const RunView& run) {
  std::string text;
  bool estimates = false;
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    const LaneFacts facts(run, lane);
    const std::vector<RecordedReduction> found = recorded_reductions(facts);
    if (found.empty()) continue;
    // Errors of a few numbers, such as a bias, are mostly chance.
    const RecordedReduction& largest = *std::max_element(
        found.begin(), found.end(), [](const RecordedReduction& a, const RecordedReduction& b) {
          return a.rows.back().n < b.rows.back().n;
        });
    text += fmt::format("{}, {}, {}: {}, step {}\n", file, run.lane(lane).name,
                        text_of(facts, largest), facts.site(largest.site).name(), largest.step);
    text += table_of(largest) + no_estimates(largest);
    estimates = estimates || !largest.estimates.empty();
  }
  if (text.empty()) {
    return fmt::format("{}: no reductions. Train with --ranks to record them.\n", file);
  }
  if (estimates) text += "Estimates are extrapolated from the recorded rows, not simulated.\n";
  return text;
}

Json reductions_json(const RunView& run) {
  Json list = Json::array();
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    const LaneFacts facts(run, lane);
    for (const RecordedReduction& each : recorded_reductions(facts)) {
      Json ranks = Json::array(), estimates = Json::array();
      for (const ReductionError& row : each.rows) {
        ranks.push_back({{"ranks", row.ranks},
                         {"error", json_number(row.error)},
                         {"stored_error", json_number(row.stored)},
                         {"lost", lost_share(row)},
                         {"overflow", share_of(row.broken, row.n)}});
      }
      for (const RankEstimate& estimate : each.estimates) {
        estimates.push_back({{"ranks", estimate.ranks},
                             {"least_error", estimate.least},
                             {"most_error", estimate.most},
                             {"lost", estimate.lost}});
      }
      list.push_back({{"lane", run.lane(lane).name},
                      {"reduction", text_of(facts, each)},
                      {"site", facts.site(each.site).name()},
                      {"step", each.step},
                      {"recorded", ranks},
                      {"estimated", estimates}});
    }
  }
  return list;
}

}  // namespace halfscope
