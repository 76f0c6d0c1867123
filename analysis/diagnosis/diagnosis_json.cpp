// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
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

/// Returns the kind of an edit's costliest change.
std::string kind_of(const PlanEdit& edit) {
  FixKind kind = FixKind::nothing;
  for (const Change& change : edit.changes) kind = std::max(kind, change.kind);
  return fix_name(kind);
}

DiagnosisJson fix_cost_json(const Cost& cost) {
  return {{"weight_bytes", cost.weight_bytes},
          {"activation_bytes", cost.activation_bytes},
          {"multiply_share", number_or_null(cost.multiply_share)}};
}

}  // namespace

std::string places_text(const std::vector<Place>& places) {
  std::vector<std::string> names;
  for (const Place& place : places) {
    const bool renamed = !place.node.empty() && place.node != place.layer;
    names.push_back(renamed ? fmt::format("{} ({} in the model file)", place.layer, place.node)
                            : place.layer);
  }
  return name_list(names);
}

std::string cause_sentence(const Diagnosis& diagnosis) {
  std::string text = diagnosis.cause;
  if (diagnosis.likely) return "The likeliest cause: " + text;
  if (text.starts_with(mechanism_text(diagnosis.mechanism))) {
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  }
  return text;
}

std::string mechanism_meaning(const Diagnosis& diagnosis) {
  const std::string text = mechanism_text(diagnosis.mechanism);
  return diagnosis.cause.find(text.substr(1)) == std::string::npos ? text : "";
}

std::string proof_words(const Diagnosis& diagnosis) {
  if (diagnosis.verified) return "proved by " + counted(diagnosis.trials, "trial");
  return diagnosis.trials > 0 ? "tried, but not enough" : "not tried yet";
}

std::vector<std::pair<std::string, std::vector<std::string>>> decoys_by_reason(
    const Diagnosis& diagnosis) {
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;
  for (const Decoy& decoy : diagnosis.decoys) {
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const auto& each) { return each.first == decoy.why; });
    if (group == groups.end()) group = groups.insert(groups.end(), {decoy.why, {}});
    group->second.push_back(decoy.place.layer);
  }
  return groups;
}

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
                   {"text", diagnosis.fix_text},
                   {"cost", fix_cost_json(diagnosis.fix_cost)}};
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
  json["likely"] = diagnosis.likely;
  json["trials"] = diagnosis.trials;
  return json.dump();
}

std::string diagnosis_lines(const Diagnosis& diagnosis, bool instead) {
  if (!diagnosis.harmed) return "";
  std::string text = fmt::format("cause{}: {}\n", diagnosis.likely ? ", only likely" : "",
                                 diagnosis.cause.empty() ? "unknown." : diagnosis.cause);
  if (!diagnosis.root.empty()) text += fmt::format("where: {}\n", places_text(diagnosis.root));
  if (diagnosis.mechanism != Mechanism::unknown) {
    const std::string meaning = mechanism_meaning(diagnosis);
    text += fmt::format("mechanism: {}{}\n", mechanism_name(diagnosis.mechanism),
                        meaning.empty() ? "" : " (" + meaning + ")");
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
    text += fmt::format("{}, {}: {}\n", instead ? "or instead" : "fix", proof_words(diagnosis),
                        diagnosis.fix_text);
    const std::string cost = cost_words(diagnosis.fix_cost);
    if (!cost.empty()) text += fmt::format("costs: {}\n", cost);
  }
  for (const PlanEdit& edit : diagnosis.alternatives) {
    text += fmt::format("or, as small: {}\n", edit_sentence(edit));
  }
  for (const auto& [why, names] : decoys_by_reason(diagnosis)) {
    text += fmt::format("not the cause: {}. {}\n", name_list(names), why);
  }
  text += fmt::format("confidence: {}. {}\n", confidence_name(diagnosis.confidence),
                      diagnosis.reasons.empty() ? "" : diagnosis.reasons.front());
  return text;
}

}  // namespace halfscope
