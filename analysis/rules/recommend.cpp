// SPDX-License-Identifier: MIT
#include "analysis/rules/recommend.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "analysis/rules/lane_facts.h"
#include "analysis/rules/scale_ceiling.h"
#include "analysis/rules/text.h"
#include "core/plan/plan.h"

namespace halfscope {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSuffix = "+fp32";

/// The lane's plan; a bare one if the file does not hold it.
Json plan_of(const LaneInfo& lane) {
  Json plan = Json::parse(lane.plan_json, nullptr, false);
  if (!plan.is_object()) plan = Json{{"schema", "halfscope.plan/1"}, {"name", lane.name}};
  return plan;
}

std::string advised_name(const std::string& name) {
  return name.ends_with(kSuffix) ? name : name + kSuffix;
}

std::string sentence(const Recommendation& advice, bool fp32_storage, bool safe_buffers,
                     bool dynamic) {
  std::vector<std::string> parts;
  if (!advice.layers.empty()) parts.push_back("keep " + name_list(advice.layers) + " in fp32");
  if (fp32_storage) parts.push_back("keep the variables in fp32 (master weights)");
  if (safe_buffers) parts.push_back("let running statistics move with the update");
  if (advice.loss_scale) {
    const std::string scale = scale_text(*advice.loss_scale);
    parts.push_back(dynamic ? "start dynamic loss scaling at " + scale +
                                  " or use that as a static scale"
                            : "use dynamic loss scaling or a static scale of " + scale);
  }
  std::string text = name_list(parts) + ".";
  text[0] = static_cast<char>(text[0] - 'a' + 'A');  // every part starts with a small letter
  return text;
}

/// Where the forward pass overflows, nothing is seen of the gradients: with that mended, the scale
/// may turn out to be out of reach. Dynamic scaling comes down by itself, if not from anywhere.
std::optional<double> hidden_scale(const LaneFacts& lane) {
  constexpr double kComesDown = 0x1p16;
  const std::optional<double> ceiling = scale_ceiling(lane);
  if (!ceiling || lane.steps().empty()) return std::nullopt;
  const double most = lane.scales_dynamically() ? kComesDown * *ceiling : *ceiling;
  if (lane.steps().front().loss_scale < most) return std::nullopt;
  return scale_below(*ceiling);
}

/// Whether it is about what the lane computed; no plan keeps a device from failing.
bool is_of_numbers(const Finding& finding) { return finding.rule != "lane_lost"; }

}  // namespace

std::optional<Recommendation> recommend(const RunView& run, std::span<const Finding> findings,
                                        int lane) {
  // If full precision does not train either, no format can help.
  const int reference = reference_lane(run);
  for (const Finding& finding : findings) {
    const bool fails = finding.severity == Severity::error && is_of_numbers(finding);
    if (finding.lane == reference && fails) return std::nullopt;
  }
  Recommendation advice{.lane = lane};
  bool fp32_storage = false, safe_buffers = false;
  for (const Finding& finding : findings) {
    if (finding.lane != lane || finding.severity < Severity::warning) continue;
    if (finding.rule == "unsafe_buffers") safe_buffers = true;
    const Action& action = finding.action;
    if (action.kind == Action::Kind::keep_fp32) {
      advice.layers.insert(advice.layers.end(), action.layers.begin(), action.layers.end());
    }
    if (action.kind == Action::Kind::format) fp32_storage = true;
    // The first scale named comes from the weightiest finding.
    if (action.loss_scale > 0.0 && !advice.loss_scale) advice.loss_scale = action.loss_scale;
  }
  if (advice.layers.empty() && !fp32_storage && !advice.loss_scale && !safe_buffers) {
    return std::nullopt;
  }
  const LaneFacts facts(run, lane);
  advice.layers = facts.in_order(std::move(advice.layers));
  if (!advice.layers.empty() && !advice.loss_scale) advice.loss_scale = hidden_scale(facts);

  Json plan = plan_of(run.lane(lane));
  if (!advice.layers.empty() || fp32_storage || safe_buffers)
    plan["name"] = advised_name(run.lane(lane).name);
  if (fp32_storage) plan["variables"]["storage"] = "fp32";
  if (safe_buffers) plan["variables"]["buffers"] = "on_step";
  if (!advice.layers.empty()) {
    Json& rules = plan["rules"];
    if (!rules.is_array()) rules = Json::array();
    for (const std::string& layer : advice.layers) {
      rules.push_back(Json{{"path", exact_glob(layer)}, {"format", "fp32"}});  // later rules win
    }
  }
  advice.plan_json = plan.dump(2, ' ', false, Json::error_handler_t::replace);
  advice.text = sentence(advice, fp32_storage, safe_buffers, facts.scales_dynamically());
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
