// SPDX-License-Identifier: MIT
#include "analysis/proof/proof_record.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/rules/text.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

using Json = nlohmann::ordered_json;

/// Returns a number, or the value of a word for numbers that JSON cannot represent.
double number_of(const Json& json, const char* key, double otherwise) {
  const auto place = json.find(key);
  if (place == json.end()) return otherwise;
  if (place->is_number()) return place->get<double>();
  if (!place->is_string()) return otherwise;
  const std::string word = place->get<std::string>();
  if (word == "inf") return INFINITY;
  if (word == "-inf") return -INFINITY;
  return word == "nan" ? std::nan("") : otherwise;
}

int64_t count_of(const Json& json, const char* key) {
  const auto place = json.find(key);
  return place != json.end() && place->is_number() ? place->get<int64_t>() : 0;
}

std::string string_of(const Json& json, const char* key) {
  const auto place = json.find(key);
  return place != json.end() && place->is_string() ? place->get<std::string>() : "";
}

bool flag_of(const Json& json, const char* key) {
  const auto place = json.find(key);
  return place != json.end() && place->is_boolean() && place->get<bool>();
}

std::vector<std::string> names_of(const Json& json, const char* key) {
  std::vector<std::string> names;
  const auto place = json.find(key);
  if (place == json.end() || !place->is_array()) return names;
  for (const Json& name : *place) {
    if (name.is_string()) names.push_back(name.get<std::string>());
  }
  return names;
}

/// Returns the sentence for files that do not contain one.
std::string proof_sentence(const Proof& proof) {
  size_t needed = 0, tried = 0;
  for (const Trial& trial : proof.trials) {
    if (trial.kind != Trial::Kind::leave_one_out) continue;
    ++tried;
    needed += trial.passes ? 0 : 1;
  }
  std::string text = proof.holds
                         ? "With the change the lane matches fp32, and without it it does not."
                         : "The change was tested and is not enough.";
  if (tried > 0) {
    text +=
        fmt::format(" {} of {} are needed.", needed, counted(static_cast<int64_t>(tried), "layer"));
  }
  return text;
}

PlanEdit edit_of(const Json& item, const char* key) {
  const auto place = item.find(key);
  const std::optional<PlanEdit> edit =
      place == item.end() ? std::nullopt : edit_from_json(place->dump());
  return edit.value_or(PlanEdit{});
}

template <class Read>
void each_object(const Json& json, const char* key, const Read& read) {
  const auto place = json.find(key);
  if (place == json.end() || !place->is_array()) return;
  for (const Json& item : *place) {
    if (item.is_object()) read(item);
  }
}

/// Reads the results of a search.
void read_search(const Json& json, Proof& proof) {
  proof.exhausted = flag_of(json, "exhausted");
  each_object(json, "tried", [&](const Json& item) {
    proof.tried.push_back({.edit = edit_of(item, "changes"),
                           .gap = number_of(item, "gap", std::nan("")),
                           .better = flag_of(item, "better"),
                           .passes = flag_of(item, "passes"),
                           .skipped = count_of(item, "skipped"),
                           .calibration_skips = count_of(item, "calibration_skips"),
                           .last_scale = number_of(item, "last_scale", 1.0),
                           .why = string_of(item, "why")});
  });
  each_object(json, "alternatives",
              [&](const Json& item) { proof.alternatives.push_back(edit_of(item, "changes")); });
  each_object(json, "causes", [&](const Json& item) {
    proof.causes.push_back(
        {.layer = string_of(item, "layer"),
         .site = string_of(item, "site"),
         .mechanism = parse_mechanism(string_of(item, "mechanism")).value_or(Mechanism::unknown),
         .weight = number_of(item, "weight", 0.0),
         .text = string_of(item, "text")});
  });
}

/// Returns a number, or a word if JSON cannot represent it.
Json json_number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

Json changes_of(const PlanEdit& edit) { return Json::parse(edit_to_json(edit)); }

void write_search(const Proof& proof, Json& json) {
  json["tried"] = Json::parse(tried_json(proof.tried));
  json["alternatives"] = Json::array();
  for (const PlanEdit& edit : proof.alternatives) {
    json["alternatives"].push_back({{"changes", changes_of(edit)}});
  }
  json["causes"] = Json::array();
  for (const Cause& cause : proof.causes) {
    json["causes"].push_back({{"layer", cause.layer},
                              {"site", cause.site},
                              {"mechanism", mechanism_name(cause.mechanism)},
                              {"weight", json_number(cause.weight)},
                              {"text", cause.text}});
  }
  json["exhausted"] = proof.exhausted;
}

}  // namespace

std::string tried_json(const std::vector<TriedEdit>& tried) {
  Json list = Json::array();
  for (const TriedEdit& each : tried) {
    list.push_back({{"changes", changes_of(each.edit)},
                    {"gap", json_number(each.gap)},
                    {"skipped", each.skipped},
                    {"calibration_skips", each.calibration_skips},
                    {"last_scale", json_number(each.last_scale)},
                    {"better", each.better},
                    {"passes", each.passes},
                    {"why", each.why.empty() ? Json(nullptr) : Json(each.why)}});
  }
  return list.dump();
}

std::vector<TriedEdit> read_tried(const std::string& text) {
  Json json = Json::object();
  json["tried"] = Json::parse(text, nullptr, false);
  Proof proof;
  read_search(json, proof);
  return proof.tried;
}

std::string within_text(double gap) {
  const std::string text = difference_by(gap);
  return text.starts_with("< ") ? text.substr(2) : text;
}

std::string by_text(double gap) {
  const std::string text = difference_by(gap);
  return text.starts_with("< ") ? "less than " + text.substr(2) : text;
}

const char* trial_name(Trial::Kind kind) noexcept {
  switch (kind) {
    case Trial::Kind::original:
      return "original";
    case Trial::Kind::advised:
      return "advised";
    case Trial::Kind::leave_one_out:
      return "leave_one_out";
  }
  return "unknown";
}

std::optional<Proof> read_proof(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("trials") || !json["trials"].is_array()) {
    return std::nullopt;
  }
  Proof proof;
  proof.lane = string_of(json, "lane");
  proof.advised = string_of(json, "advised");
  const std::optional<PlanEdit> changes =
      json.contains("changes") ? edit_from_json(json["changes"].dump()) : std::nullopt;
  proof.edit = changes ? *changes : PlanEdit::in_fp32(names_of(json, "layers"));
  if (!changes && json.contains("loss_scale") && json["loss_scale"].is_number()) {
    proof.edit.set_loss_scale(json["loss_scale"].get<double>());
  }
  proof.holds = flag_of(json, "holds");
  proof.steps = count_of(json, "steps");
  proof.seed = static_cast<uint64_t>(count_of(json, "seed"));
  proof.tolerance = number_of(json, "tolerance", 0.01);
  proof.twin_spread = number_of(json, "twin_spread", 0.0);
  proof.dropped = names_of(json, "dropped");
  for (const Json& item : json["trials"]) {
    if (!item.is_object()) continue;
    Trial trial;
    trial.name = string_of(item, "name");
    const std::string kind = string_of(item, "kind");
    if (kind == "advised") trial.kind = Trial::Kind::advised;
    if (kind == "leave_one_out") trial.kind = Trial::Kind::leave_one_out;
    trial.without = string_of(item, "without");
    trial.gap = number_of(item, "gap", std::nan(""));
    trial.skipped = count_of(item, "skipped");
    trial.calibration_skips = count_of(item, "calibration_skips");
    trial.better = flag_of(item, "better");
    trial.passes = flag_of(item, "passes");
    proof.trials.push_back(std::move(trial));
  }
  read_search(json, proof);
  const auto plan = json.find("plan");
  if (plan != json.end() && plan->is_object()) proof.plan_json = plan->dump();
  proof.text = string_of(json, "text");
  if (proof.text.empty()) proof.text = proof_sentence(proof);
  return proof;
}

std::string proof_json(const Proof& proof) {
  const std::optional<double> scale = proof.edit.loss_scale();
  Json json{{"lane", proof.lane},
            {"advised", proof.advised},
            {"layers", proof.edit.fp32_layers()},
            {"loss_scale", scale ? Json(*scale) : Json(nullptr)},
            {"changes", Json::parse(edit_to_json(proof.edit))},
            {"holds", proof.holds},
            {"steps", proof.steps},
            {"seed", proof.seed},
            {"tolerance", json_number(proof.tolerance)},
            {"twin_spread", json_number(proof.twin_spread)}};
  json["trials"] = Json::array();
  for (const Trial& trial : proof.trials) {
    const Json without = trial.without.empty() ? Json(nullptr) : Json(trial.without);
    json["trials"].push_back({{"name", trial.name},
                              {"kind", trial_name(trial.kind)},
                              {"without", without},
                              {"gap", json_number(trial.gap)},
                              {"skipped", trial.skipped},
                              {"calibration_skips", trial.calibration_skips},
                              {"better", trial.better},
                              {"passes", trial.passes}});
  }
  json["dropped"] = proof.dropped;
  write_search(proof, json);
  json["plan"] = proof.plan_json.empty() ? Json(nullptr) : Json::parse(proof.plan_json);
  json["text"] = proof.text;
  return json.dump();
}

}  // namespace halfscope
