// SPDX-License-Identifier: MIT
// rank_disagreement: some ranks skipped a step and others did not, so that their weights are no
// longer the same. What the lane reports is rank 0, and nothing brings the others back.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/rules/rank_facts.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"
#include "core/plan/causes.h"

namespace halfscope {
namespace {

/// Weights this far apart belong to different trainings (Harm: weights).
constexpr double kFarApart = 0.01;

void find_rank_disagreement(const LaneFacts& lane, std::vector<Finding>& findings) {
  const std::span<const RankSpread> rows = lane.run().ranks(lane.lane());
  if (rows.empty()) return;
  const auto split = [](const RankSpread& row) {
    return row.skipped > 0 && row.skipped < row.ranks;
  };
  const int64_t times = std::count_if(rows.begin(), rows.end(), split);
  const RankSpread &first = rows.front(), &last = rows.back();
  const double largest =
      std::max_element(rows.begin(), rows.end(), [](const RankSpread& a, const RankSpread& b) {
        return a.distance < b.distance;
      })->distance;
  const std::string apart = std::isfinite(last.distance)
                                ? fmt::format("the weights of one rank differ from rank 0's by {}",
                                              percent(last.distance))
                                : "the weights of one rank are NaN or infinite";
  Finding finding{.rule = "rank_disagreement", .lane = lane.lane()};
  finding.severity = largest > kFarApart ? Severity::error : Severity::warning;
  finding.step = first.step;
  finding.mechanism = mechanism_text(Mechanism::rank_disagreement);
  finding.evidence = {{"cause", mechanism_name(Mechanism::rank_disagreement)},
                      {"ranks", static_cast<double>(first.ranks)},
                      {"skipped", static_cast<double>(first.skipped)},
                      {"steps", static_cast<double>(times)},
                      {"distance", last.distance},
                      {"largest_distance", largest}};
  finding.text = fmt::format(
      "At step {}, {} of {} ranks skipped the update and the others did not. Each rank decides by "
      "its own gradient. They disagreed in {}; at step {}, {}. Only rank 0 is evaluated.",
      first.step, first.skipped, first.ranks, counted(times, "step"), last.step, apart);
  finding.action.text =
      "All-reduce the overflow flag, so that all ranks skip a step together: vote=all in "
      "\"reduce\".";
  finding.action.edit = reduction_edit(lane);
  findings.push_back(std::move(finding));
}

}  // namespace

const Rule rule::rank_disagreement{.id = "rank_disagreement",
                                   .run = find_rank_disagreement,
                                   .mechanism = Mechanism::rank_disagreement,
                                   .stands_alone = true,
                                   .matters_without_harm = true};

}  // namespace halfscope
