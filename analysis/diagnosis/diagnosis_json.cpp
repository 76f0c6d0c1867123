// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/diagnosis/diagnosis.h"
#include "analysis/rules/text.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

using DiagnosisJson = nlohmann::ordered_json;

DiagnosisJson number_or_word(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0.0 ? "inf" : "-inf";
}
DiagnosisJson number_or_null(const std::optional<double>& value) {
  return value ? number_or_word(*value) : DiagnosisJson(nullptr);
}
DiagnosisJson word_or_null(const std::string& text) {
  return text.empty() ? DiagnosisJson(nullptr) : DiagnosisJson(text);
}

DiagnosisJson place_json(const Place& place) {
  return {{"layer", place.layer},
          {"node", word_or_null(place.node)},
          {"site", word_or_null(place.site)}};
}

DiagnosisJson changes_json(const PlanEdit& edit) {
  return DiagnosisJson::parse(edit_to_json(edit));
}

/// The kind that stands for an edit: of its costliest change.
std::string kind_of(const PlanEdit& edit) {
  FixKind kind = FixKind::nothing;
  for (const Change& change : edit.changes) kind = std::max(kind, change.kind);
  return fix_name(kind);
}

}  // namespace

std::string diagnosis_json(const Diagnosis& diagnosis) {
  DiagnosisJson json{{"harmed", diagnosis.harmed}};
  json["mechanism"] = diagnosis.harmed ? DiagnosisJson(mechanism_name(diagnosis.mechanism))
                                       : DiagnosisJson(nullptr);
  json["root"] = DiagnosisJson::array();
  for (const Place& place : diagnosis.root) json["root"].push_back(place_json(place));
  json["cause"] = word_or_null(diagnosis.cause);
  json["first_symptom"] = nullptr;
  if (diagnosis.first_symptom) {
    json["first_symptom"] = place_json(*diagnosis.first_symptom);
    json["first_symptom"]["text"] = diagnosis.symptom;
  }
  json["chain"] = DiagnosisJson::array();
  for (const Hop& hop : diagnosis.chain) {
    json["chain"].push_back({{"site", hop.site},
                             {"layer", hop.layer},
                             {"largest", number_or_null(hop.largest)},
                             {"reference_largest", number_or_null(hop.reference)},
                             {"error", number_or_null(hop.error)},
                             {"text", word_or_null(hop.text)}});
  }
  json["fix"] = nullptr;
  if (!diagnosis.fix.empty()) {
    json["fix"] = {{"kind", kind_of(diagnosis.fix)},
                   {"changes", changes_json(diagnosis.fix)},
                   {"text", diagnosis.fix_text}};
  }
  json["alternatives"] = DiagnosisJson::array();
  for (const PlanEdit& edit : diagnosis.alternatives) {
    json["alternatives"].push_back({{"kind", kind_of(edit)}, {"changes", changes_json(edit)}});
  }
  json["decoys_rejected"] = DiagnosisJson::array();
  for (const Decoy& decoy : diagnosis.decoys) {
    DiagnosisJson item = place_json(decoy.place);
    item["why"] = decoy.why;
    json["decoys_rejected"].push_back(std::move(item));
  }
  json["does_not_help"] = DiagnosisJson::array();
  for (const TriedEdit& tried : diagnosis.does_not_help) {
    json["does_not_help"].push_back(
        {{"changes", changes_json(tried.edit)}, {"gap", number_or_word(tried.gap)}});
  }
  json["confidence"] = confidence_name(diagnosis.confidence);
  json["reasons"] = diagnosis.reasons;
  json["verified"] = diagnosis.verified;
  json["trials"] = diagnosis.trials;
  return json.dump();
}

std::string diagnosis_lines(const Diagnosis& diagnosis) {
  if (!diagnosis.harmed) return "";
  std::vector<std::string> layers;
  for (const Place& place : diagnosis.root) layers.push_back(place.layer);
  std::string text = "cause: " + (diagnosis.cause.empty() ? "unknown." : diagnosis.cause) + "\n";
  if (!layers.empty()) {
    text += fmt::format("where: {} ({})\n", name_list(layers), mechanism_text(diagnosis.mechanism));
  }
  if (diagnosis.chain.size() > 1) {
    text += "leads to:";
    for (const Hop& hop : diagnosis.chain) {
      text += fmt::format(" {}{}", &hop == &diagnosis.chain.front() ? "" : "-> ", hop.layer);
      if (!hop.text.empty()) text += fmt::format(" ({})", hop.text);
    }
    text += "\n";
  }
  if (!diagnosis.fix.empty()) {
    text += fmt::format("fix{}: {}\n", diagnosis.verified ? ", proved" : "", diagnosis.fix_text);
  }
  for (const PlanEdit& edit : diagnosis.alternatives) {
    text += fmt::format("or: {}.\n", edit_text(edit));
  }
  if (!diagnosis.decoys.empty()) {
    std::vector<std::string> names;
    for (const Decoy& decoy : diagnosis.decoys) names.push_back(decoy.place.layer);
    text += fmt::format("not the cause: {}\n", name_list(names));
  }
  text += fmt::format("confidence: {}\n", confidence_name(diagnosis.confidence));
  return text;
}

}  // namespace halfscope
