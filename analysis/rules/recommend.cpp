// SPDX-License-Identifier: MIT
#include "analysis/rules/recommend.h"

#include <algorithm>

#include "analysis/rules/lane_facts.h"
#include "analysis/rules/rank_facts.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/scale_ceiling.h"
#include "analysis/rules/text.h"
#include "core/error.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

constexpr const char* kSuffix = "+fp32";

/// Returns the lane's plan; a default one if the stored plan cannot be read.
Plan plan_of(const LaneInfo& lane) {
  try {
    return plan_from_json(lane.plan_json);
  } catch (const Error&) {
    Plan plan;
    plan.name = lane.name;
    return plan;
  }
}

std::string advised_name(const std::string& name) {
  return name.ends_with(kSuffix) ? name : name + kSuffix;
}

/// `of_state`: the optimizer's state is the reason for wider storage.
std::string sentence(const PlanEdit& edit, const LaneFacts& lane, bool of_state) {
  const bool dynamic = lane.scales_dynamically();
  std::vector<std::string> parts;
  if (!edit.fp32_layers().empty())
    parts.push_back("keep " + name_list(edit.fp32_layers()) + " in fp32");
  if (edit.has(FixKind::weights_fp32)) {
    parts.emplace_back(of_state ? "keep fp32 master weights and optimizer state"
                                : "keep fp32 master weights");
  }
  if (edit.has(FixKind::buffers_on_step))
    parts.push_back("update running statistics only with the weights");
  if (edit.has(FixKind::schedule_fp32)) parts.push_back("compute the learning rate in fp32");
  if (edit.reduction()) parts.push_back(reduction_advice(lane, *edit.reduction()));
  if (edit.loss_scale()) {
    const std::string scale = scale_text(*edit.loss_scale());
    parts.push_back(dynamic
                        ? "start dynamic loss scaling at " + scale + " or use it as a static scale"
                        : "use dynamic loss scaling or a static scale of " + scale);
  }
  std::string text = name_list(parts) + ".";
  text[0] = static_cast<char>(text[0] - 'a' + 'A');  // every part starts with a small letter
  return text;
}

/// If the forward pass overflows, the run shows nothing of the gradients: once that is fixed, the
/// scale may turn out to be out of reach. Dynamic scaling comes down on its own, but not from any
/// start.
std::optional<double> hidden_scale(const LaneFacts& lane) {
  constexpr double kComesDown = 0x1p16;
  const std::optional<double> ceiling = scale_ceiling(lane);
  if (!ceiling || lane.steps().empty()) return std::nullopt;
  const double most = lane.scales_dynamically() ? kComesDown * *ceiling : *ceiling;
  if (lane.steps().front().loss_scale < most) return std::nullopt;
  return scale_below(*ceiling);
}

/// Returns whether the finding is about the lane's numbers; no plan keeps a device from failing.
bool is_of_numbers(const Finding& finding) {
  const Rule* rule = rule_of(finding);
  return rule == nullptr || rule->of_numbers;
}

}  // namespace

std::optional<Recommendation> recommend(const RunView& run, std::span<const Finding> findings,
                                        int lane) {
  // If full precision does not train either, no format can help.
  const int reference = is_reference(run, lane) ? lane : reference_lane(run, lane);
  for (const Finding& finding : findings) {
    const bool fails = finding.severity == Severity::error && is_of_numbers(finding);
    if (finding.lane == reference && fails) return std::nullopt;
  }
  Recommendation advice{.lane = lane};
  PlanEdit& edit = advice.edit;
  bool of_state = false;
  for (const Finding& finding : findings) {
    const Rule* rule = rule_of(finding);
    const bool counts = finding.lane == lane && finding.severity >= Severity::warning;
    of_state =
        of_state || (counts && rule != nullptr && rule->mechanism == Mechanism::flushed_state);
    // The first scale comes from the weightiest finding.
    if (counts) edit.add(finding.action.edit);
  }
  if (edit.empty()) return std::nullopt;
  const LaneFacts facts(run, lane);
  for (const std::string& layer : facts.in_order(edit.fp32_layers())) edit.keep(layer, true);
  if (!edit.fp32_layers().empty() && !edit.loss_scale()) edit.set_loss_scale(hidden_scale(facts));

  Plan plan = edit.apply(plan_of(run.lane(lane)));
  if (edit.changes_plan()) plan.name = advised_name(run.lane(lane).name);
  advice.plan_json = plan_to_json(plan);
  advice.text = sentence(edit, facts, of_state) + cast_note(run.lane(lane), edit);
  return advice;
}

int default_lane(const RunView& run, std::span<const Finding> findings) {
  for (Severity least : {Severity::warning, Severity::info}) {
    for (const Finding& finding : findings) {  // sorted by lane
      if (finding.severity >= least && is_of_numbers(finding)) return finding.lane;
    }
  }
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    if (!full_precision_lane(run.lane(lane))) return lane;
  }
  return run.lane_count() - 1 < 0 ? -1 : 0;
}

}  // namespace halfscope
