// SPDX-License-Identifier: MIT
#include "analysis/rules/rank_facts.h"

#include <algorithm>
#include <map>

#include "core/error.h"

namespace halfscope {
namespace {

/// A reduced gradient may have this many times the error of one rounding to its format.
constexpr double kFewStores = 3.0;
/// The smallest error that matters, the same as for the gradient of all weights (Harm).
constexpr double kMattersFrom = 0.01;
/// An order of additions is to blame where another one removes at least this share of the error.
constexpr double kMostOfIt = 0.5;

/// Returns the text of the training's own setting; "" if there is none.
std::string reduce_setting(const RunInfo& run) {
  for (size_t i = 0; i + 1 < run.settings.size(); ++i) {
    if (run.settings[i] == "--reduce") return run.settings[i + 1];
  }
  return "";
}

bool is_off(const ReductionError& row) {
  return row.broken > 0 || row.error > kMattersFrom ||
         (row.error > kFewStores * row.stored && row.stored > 0.0);
}

}  // namespace

Reduction reduction_of_lane(const LaneFacts& lane) {
  std::string text = plan_text(lane.info().plan_json, "/variables/reduce");
  if (text.empty()) text = reduce_setting(lane.run().info());
  try {
    return text.empty() ? Reduction{} : parse_reduction(text);
  } catch (const Error&) {
    return {};  // of a newer version
  }
}

std::vector<InexactReduction> inexact_reductions(const LaneFacts& lane) {
  std::vector<InexactReduction> found;
  if (full_precision_plan(lane.info())) return found;
  int64_t ranks = 0;
  for (const ReductionError& row : lane.run().reductions(lane.lane())) {
    ranks = std::max(ranks, row.ranks);
  }
  std::map<int, InexactReduction> by_site;
  for (const ReductionError& row : lane.run().reductions(lane.lane())) {
    if (row.ranks != ranks || !is_off(row)) continue;
    const auto [place, is_new] = by_site.try_emplace(row.site);
    InexactReduction& each = place->second;
    if (is_new) each.first_step = row.step;
    const auto weight = [](const ReductionError& e) { return std::pair(e.broken, e.error); };
    if (is_new || weight(each.worst) < weight(row)) each.worst = row;
  }
  for (auto& [site, each] : by_site) {
    const ReductionError& worst = each.worst;
    each.matters = worst.broken > 0 || worst.error > kMattersFrom;
    each.by_order = worst.broken == 0 && worst.stored <= kMattersFrom &&
                    worst.stored <= kMostOfIt * worst.error;
    found.push_back(each);
  }
  return found;
}

std::optional<Reduction> advised_reduction(const LaneFacts& lane) {
  const Reduction before = reduction_of_lane(lane);
  Reduction advised = before;
  const std::vector<InexactReduction> inexact = inexact_reductions(lane);
  const bool matters = std::any_of(inexact.begin(), inexact.end(),
                                   [](const InexactReduction& each) { return each.matters; });
  const bool by_order = std::all_of(inexact.begin(), inexact.end(),
                                    [](const InexactReduction& each) { return each.by_order; });
  if (matters && by_order) {
    advised.algorithm = Reduction::Algorithm::all_to_all;
  } else if (matters) {
    advised.format = kFp32;
  }
  if (!lane.run().ranks(lane.lane()).empty()) advised.vote = Reduction::Vote::all;
  return advised == before ? std::nullopt : std::optional(advised);
}

PlanEdit reduction_edit(const LaneFacts& lane) {
  const std::optional<Reduction> advised = advised_reduction(lane);
  if (!advised) return {};
  const Reduction before = reduction_of_lane(lane);
  const FixKind kind = advised->algorithm != before.algorithm ? FixKind::reduce_order
                       : advised->format != before.format     ? FixKind::reduce_fp32
                                                              : FixKind::config;
  return PlanEdit::with_reduction(kind, *advised);
}

std::string reduction_advice(const LaneFacts& lane, const Reduction& advised) {
  const Reduction before = reduction_of_lane(lane);
  Reduction same_vote = before;
  same_vote.vote = advised.vote;
  const char* vote = advised.vote == Reduction::Vote::all ? "let all ranks skip a step together"
                                                          : "let each rank skip steps on its own";
  if (same_vote == advised && before != advised) return vote;
  const std::string text = "reduce over ranks by " + reduction_text(advised);
  return before.vote == advised.vote ? text : text + " and " + vote;
}

}  // namespace halfscope
