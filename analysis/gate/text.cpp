// SPDX-License-Identifier: MIT
// The result of a gate as lines of text and as JSON.
#include "analysis/rules/text.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/gate/gate.h"

namespace halfscope {
namespace {

using GateResultJson = nlohmann::ordered_json;
using State = GateCheck::State;

const char* word_of(State state) {
  return state == State::failed ? "fail" : state == State::known ? "known" : "not measured";
}

GateResultJson number_json(double value) {
  if (std::isnan(value)) return nullptr;
  if (std::isinf(value)) return "inf";
  return value;
}

GateResultJson check_json(const GateResult& result, const GateCheck& check) {
  const auto word = [](const std::string& text) {
    return text.empty() ? GateResultJson(nullptr) : GateResultJson(text);
  };
  return {{"rule", result.rule_of(check).name},
          {"state", state_name(check.state)},
          {"lane", result.lane_of(check)},
          {"layer", word(check.layer)},
          {"site", word(check.site)},
          {"kind", check.finding ? "finding" : "limit"},
          {"measure", check.of},
          {"value", number_json(check.value)},
          {"limit", number_json(check.limit)},
          {"baseline", check.before ? number_json(*check.before) : GateResultJson(nullptr)},
          {"severity", severity_name(check.severity)},
          {"text", check.text}};
}

}  // namespace

std::string gate_text(const GateResult& result) {
  std::string text;
  for (const State state : {State::failed, State::not_measured, State::known}) {
    for (const GateCheck& check : result.checks) {
      if (check.state != state) continue;
      const std::string place = check.site.empty() ? "" : check.site + ": ";
      text += fmt::format("{}: {}: {}: {}{}\n", word_of(state), result.rule_of(check).name,
                          result.lane_of(check), place, check.text);
    }
  }
  const int64_t failed = result.count(State::failed), known = result.count(State::known);
  const bool baseline = !result.baseline.empty();
  text += fmt::format("gate: {}, {}", result.passed() ? "passed" : "failed",
                      counted(failed, baseline ? "new violation" : "violation"));
  if (baseline) text += fmt::format(", {} known", known);
  if (const int64_t unknown = result.count(State::not_measured); unknown > 0) {
    text += fmt::format(", {} not measured", unknown);
  }
  return text +
         fmt::format(" ({})\n", counted(static_cast<int64_t>(result.checks.size()), "check"));
}

std::string with_gate(const std::string& report_json, const GateResult& result) {
  GateResultJson json = GateResultJson::parse(report_json);
  const auto word = [](const std::string& text) {
    return text.empty() ? GateResultJson(nullptr) : GateResultJson(text);
  };
  GateResultJson gate;
  gate["passed"] = result.passed();
  gate["file"] = word(result.gate.file);
  gate["baseline"] = word(result.baseline);
  gate["checks"] = result.checks.size();
  gate["violations"] = result.count(State::failed);
  gate["known"] = result.count(State::known);
  gate["not_measured"] = result.count(State::not_measured);
  gate["results"] = GateResultJson::array();
  for (const GateCheck& check : result.checks) {
    if (check.state != State::passed) gate["results"].push_back(check_json(result, check));
  }
  json["gate"] = std::move(gate);
  return json.dump(2, ' ', false, GateResultJson::error_handler_t::replace) + "\n";
}

}  // namespace halfscope
