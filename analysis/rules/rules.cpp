// SPDX-License-Identifier: MIT
#include "analysis/rules/rules.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "analysis/rules/error_source.h"
#include "analysis/rules/harm.h"
#include "analysis/rules/loss_scale_window.h"

namespace halfscope {
namespace {

constexpr const Rule* kRules[] = {
#define HALFSCOPE_RULE(name) &rule::name,
#include "analysis/rules/list.inc"
#undef HALFSCOPE_RULE
};

void demote_consequences(std::vector<Finding>& findings) {
  for (const Rule* root : kRules) {
    if (root->explains == nullptr) continue;
    const auto found = std::find_if(findings.begin(), findings.end(), [&](const Finding& finding) {
      return finding.rule == root->id && finding.severity == Severity::error;
    });
    if (found == findings.end()) continue;
    for (Finding& finding : findings) {
      const Rule* own = rule_of(finding);
      const bool is_later = finding.step < 0 || finding.step >= found->step;
      if (&finding == &*found || !is_later || (own != nullptr && own->stands_alone)) continue;
      finding.severity = Severity::info;
      finding.action = {.text = root->explains};
    }
  }
}

/// Turns findings about updates into remarks if they do not explain the worst result.
void demote_later_faults(const LaneFacts& lane, std::vector<Finding>& findings) {
  const Harm harm = harm_of(lane);
  for (Finding& finding : findings) {
    if (finding.severity < Severity::warning || may_explain(lane, harm, finding)) continue;
    finding.severity = Severity::info;
    finding.action.edit = {};
    finding.text +=
        " This is not the first problem: results are also wrong for equal weights. Fix that "
        "first.";
  }
}

/// Turns harmless findings into remarks: rules see ranges, harm is measured.
void demote_harmless(const LaneFacts& lane, std::vector<Finding>& findings) {
  if (is_reference(lane.run(), lane.lane())) {
    // An output of a network may be infinite: the logarithm of a probability that is 0.
    for (Finding& finding : findings) {
      const Rule* own = rule_of(finding);
      if (own != nullptr && own->matters_without_harm) continue;
      const std::optional<int> site = lane.run().find_site(lane.lane(), finding.site);
      if (!site || !lane.inference() || lane.run().total(lane.lane(), *site).nan > 0) continue;
      finding.severity = Severity::info;
    }
    return;
  }
  const Harm harm = harm_of(lane);
  if (!harm.none()) return;
  for (Finding& finding : findings) {
    const Rule* own = rule_of(finding);
    if (own != nullptr && own->matters_without_harm) continue;
    const std::optional<int> site = lane.run().find_site(lane.lane(), finding.site);
    const bool of_update = site && lane.site(*site).phase == Phase::update;
    // A gradient is a sum of products: what has no energy in an operand has none in it.
    const bool negligible = site && lane.site(*site).phase == Phase::backward &&
                            finding.weight > 0.0 && finding.weight < kFlushedEnergy;
    if (harm.doubtful && !of_update && !negligible) {
      finding.severity = std::min(finding.severity, Severity::warning);
      continue;
    }
    finding.open = of_update && harm.lags && finding.severity >= Severity::warning;
    finding.severity = Severity::info;
    finding.action = {.text = finding.open
                                  ? "This run cannot show whether it does harm: halfscope diagnose "
                                    "can, by training float32 again."
                                  : "Nothing to change: it is harmless in this run."};
  }
}

/// Sorts the findings of a lane by severity, then place. Those about the whole lane (no site) come
/// before those about one place.
void sort_findings(const RunView& run, int lane, std::vector<Finding>& findings) {
  const auto site_of = [&](const Finding& finding) {
    return finding.site.empty() ? -1 : run.find_site(lane, finding.site).value_or(-1);
  };
  std::map<std::pair<std::string, Severity>, int> earliest;  // of findings with a weight
  for (const Finding& finding : findings) {
    if (finding.weight == 0.0) continue;
    const auto [place, is_new] =
        earliest.try_emplace({finding.rule, finding.severity}, site_of(finding));
    place->second = std::min(place->second, site_of(finding));
  }
  const auto key = [&](const Finding& finding) {
    const auto found = earliest.find({finding.rule, finding.severity});
    const bool weighted = finding.weight != 0.0;
    return std::tuple(-static_cast<int>(finding.severity),
                      weighted ? found->second : site_of(finding), -finding.weight);
  };
  std::stable_sort(findings.begin(), findings.end(),
                   [&](const Finding& a, const Finding& b) { return key(a) < key(b); });
}

}  // namespace

const Rule* rule_of(const Finding& finding) noexcept {
  const auto found = std::find_if(std::begin(kRules), std::end(kRules),
                                  [&](const Rule* rule) { return finding.rule == rule->id; });
  return found == std::end(kRules) ? nullptr : *found;
}

std::vector<Finding> run_rules(const RunView& run) {
  std::vector<Finding> all;
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    const LaneFacts facts(run, lane);
    std::vector<Finding> found;
    for (const Rule* rule : kRules) rule->run(facts, found);
    demote_consequences(found);
    demote_later_faults(facts, found);
    demote_harmless(facts, found);
    sort_findings(run, lane, found);
    std::move(found.begin(), found.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace halfscope
