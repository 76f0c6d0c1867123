// SPDX-License-Identifier: MIT
// Gates as JSON. Strict: an unknown or repeated key is an error, because a limit that is silently
// ignored would let a build pass.
#include "analysis/gate/gate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "analysis/rules/rules.h"
#include "core/error.h"
#include "core/json_keys.h"
#include "core/near_miss.h"

namespace halfscope {
namespace {

using GateJson = nlohmann::ordered_json;
constexpr const char* kGateSchema = "halfscope.gate/1";

constexpr std::array kMeasures{
    GateMeasure::overflow,      GateMeasure::underflow,     GateMeasure::lost_updates,
    GateMeasure::skipped_steps, GateMeasure::accuracy_drop, GateMeasure::auc_drop,
    GateMeasure::mean_iou_drop, GateMeasure::ulps,          GateMeasure::error};
constexpr std::array kRoles{
    Role::input,       Role::activation, Role::weight, Role::activation_grad,
    Role::weight_grad, Role::update,     Role::state};
constexpr std::array kSeverities{Severity::info, Severity::warning, Severity::error};

/// Returns the values' names, for hints.
template <class Values, class Name>
std::vector<std::string> names_of(const Values& values, Name name) {
  std::vector<std::string> names;
  for (const auto& value : values) names.emplace_back(name(value));
  return names;
}

/// Returns the value with this name. Throws Error (usage) with the nearest one.
template <class Values, class Name>
auto named(const std::string& text, const Values& values, Name name, const std::string& where) {
  for (const auto& value : values) {
    if (text == name(value)) return value;
  }
  const std::vector<std::string> known = names_of(values, name);
  throw usage_error("gate: " + where + ": unknown value \"" + text + "\"",
                    did_you_mean(text, known, "use one of " + comma_list(known)));
}

std::vector<std::string> rule_ids() {
  return {
#define HALFSCOPE_RULE(name) rule::name.id,
#include "analysis/rules/list.inc"
#undef HALFSCOPE_RULE
  };
}

void check_gate_keys(const GateJson& object, const std::string& where,
                     const std::vector<std::string>& known) {
  if (!object.is_object()) {
    throw usage_error("gate: " + where + " must be an object",
                      "write { \"" + known.front() + "\": ... }");
  }
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    throw usage_error("gate: unknown key \"" + key + "\" in " + where,
                      did_you_mean(key, known, "known keys: " + comma_list(known)));
  }
}

std::string string_of(const GateJson& object, const std::string& key, const std::string& where) {
  const GateJson& value = object.at(key);
  if (!value.is_string() || value.get<std::string>().empty()) {
    throw usage_error("gate: " + where + "." + key + " must be a string that is not empty",
                      "write \"" + key + "\": \"...\"");
  }
  return value.get<std::string>();
}

double limit_of(const GateJson& object, GateMeasure measure, const std::string& where) {
  const GateJson& value = object.at(measure_name(measure));
  const bool share = measure != GateMeasure::ulps && measure != GateMeasure::error;
  const double limit = value.is_number() ? value.get<double>() : -1.0;
  if (!(limit >= 0.0) || !std::isfinite(limit) || (share && limit > 1.0)) {
    throw usage_error("gate: " + where + "." + measure_name(measure) + " must be " +
                          (share ? "a share from 0 to 1" : "a number, 0 or more"),
                      share ? "write for example 0.01 for 1%" : "write for example 0.01");
  }
  return limit;
}

/// Throws Error (usage) for limits on tensors that can never have the measure.
void check_measures(const GateRule& rule, const std::string& where) {
  const auto limits = [&rule](GateMeasure measure) { return rule.limits.contains(measure); };
  for (const auto& [measure, limit] : rule.limits) {
    if (!is_of_lane(measure) || (!rule.role && rule.path.empty())) continue;
    throw usage_error("gate: " + where + ": " + measure_name(measure) + " is about a whole lane",
                      "put it into a rule without path and role");
  }
  if (limits(GateMeasure::lost_updates) && rule.role.value_or(Role::update) != Role::update) {
    throw usage_error("gate: " + where + ": only updates can be lost",
                      "use \"role\": \"update\", or leave out the role");
  }
  const bool updates = rule.role == Role::update || rule.role == Role::state;
  if (updates && (limits(GateMeasure::ulps) || limits(GateMeasure::error))) {
    throw usage_error("gate: " + where + ": updates and states are not compared with the reference",
                      "limit ulps and error of another role, such as weight_grad");
  }
}

GateRule rule_of(const GateJson& object, size_t index) {
  const std::string where = "rules[" + std::to_string(index) + "]";
  std::vector<std::string> keys{"name", "path", "role", "lane", "fail_on", "findings"};
  for (const GateMeasure measure : kMeasures) keys.emplace_back(measure_name(measure));
  check_gate_keys(object, where, keys);
  GateRule rule;
  rule.name = "rule " + std::to_string(index + 1);
  if (object.contains("name")) rule.name = string_of(object, "name", where);
  if (object.contains("path")) rule.path = string_of(object, "path", where);
  if (object.contains("lane")) rule.lane = string_of(object, "lane", where);
  if (object.contains("role")) {
    rule.role = named(string_of(object, "role", where), kRoles, role_name, where + ".role");
  }
  for (const GateMeasure measure : kMeasures) {
    if (object.contains(measure_name(measure))) {
      rule.limits[measure] = limit_of(object, measure, where);
    }
  }
  if (object.contains("findings")) {
    const GateJson& list = object["findings"];
    if (!list.is_array() || list.empty()) {
      throw usage_error("gate: " + where + ".findings must be a list of rules",
                        "write for example [\"forward_overflow\"]");
    }
    const std::vector<std::string> known = rule_ids();
    for (const GateJson& id : list) {
      const std::string text = id.is_string() ? id.get<std::string>() : id.dump();
      rule.findings.push_back(named(
          text, known, [](const std::string& each) { return each; }, where + ".findings"));
    }
    rule.fail_on = Severity::warning;
  }
  if (object.contains("fail_on")) {
    rule.fail_on =
        named(string_of(object, "fail_on", where), kSeverities, severity_name, where + ".fail_on");
  }
  if (rule.limits.empty() && !rule.judges_findings()) {
    throw usage_error(
        "gate: " + where + " sets no limit",
        "add " + comma_list(names_of(kMeasures, measure_name)) + ", fail_on or findings");
  }
  check_measures(rule, where);
  return rule;
}

/// Returns the line of each rule in a gate's text, which is valid JSON: every object in the array
/// of the outermost object is a rule.
std::vector<int> lines_of_rules(std::string_view text) {
  std::vector<int> lines;
  int line = 1, depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    line += c == '\n';
    if (quoted && c == '\\') ++i;
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (c == '{' && depth == 2) lines.push_back(line);
    depth += (c == '{' || c == '[') - (c == '}' || c == ']');
  }
  return lines;
}

GateJson json_of(std::string_view text, const std::string& file) {
  GateJson json = GateJson::parse(text, nullptr, false);
  if (json.is_discarded()) {
    throw usage_error("gate: '" + file + "' is not valid JSON: " + json_problem(text), kJsonHint);
  }
  if (const std::string twice = repeated_key(text); !twice.empty()) {
    throw usage_error("gate: key \"" + twice + "\" is given twice in one object",
                      "remove one of the two");
  }
  return json;
}

}  // namespace

const char* measure_name(GateMeasure measure) noexcept {
  switch (measure) {
    case GateMeasure::overflow:
      return "overflow";
    case GateMeasure::underflow:
      return "underflow";
    case GateMeasure::lost_updates:
      return "lost_updates";
    case GateMeasure::skipped_steps:
      return "skipped_steps";
    case GateMeasure::accuracy_drop:
      return "accuracy_drop";
    case GateMeasure::auc_drop:
      return "auc_drop";
    case GateMeasure::mean_iou_drop:
      return "mean_iou_drop";
    case GateMeasure::ulps:
      return "ulps";
    case GateMeasure::error:
      return "error";
  }
  return "";
}

Gate parse_gate(std::string_view text, const std::string& file) {
  const GateJson json = json_of(text, file);
  check_gate_keys(json, "the gate", {"schema", "missing", "tolerance", "rules"});
  const auto holds = [&json](const char* key, bool (GateJson::*is)() const noexcept) {
    return json.contains(key) && (json[key].*is)();
  };
  if (!holds("schema", &GateJson::is_string) || json["schema"] != kGateSchema) {
    throw usage_error("gate: '" + file + "' does not have the schema " + kGateSchema,
                      std::string(R"(begin with {"schema": ")") + kGateSchema + R"(", ...})");
  }
  if (!holds("rules", &GateJson::is_array) || json["rules"].empty()) {
    throw usage_error("gate: the rules are missing",
                      R"(write for example "rules": [{"fail_on": "error"}])");
  }
  Gate gate;
  gate.file = file;
  if (json.contains("missing")) {
    const std::vector<std::string> words{"fail", "pass"};
    gate.missing_passes = named(
                              string_of(json, "missing", "the gate"), words,
                              [](const std::string& each) { return each; }, "missing") == "pass";
  }
  if (json.contains("tolerance")) {
    gate.tolerance = json["tolerance"].is_number() ? json["tolerance"].get<double>() : -1.0;
    if (!(gate.tolerance >= 0.0) || !std::isfinite(gate.tolerance)) {
      throw usage_error("gate: tolerance must be a number, 0 or more",
                        "write for example 0.1: a known violation may grow by 10%");
    }
  }
  const std::vector<int> lines = lines_of_rules(text);
  std::set<std::string> names;
  for (size_t i = 0; i < json["rules"].size(); ++i) {
    gate.rules.push_back(rule_of(json["rules"][i], i));
    gate.rules.back().line = i < lines.size() ? lines[i] : 1;
    if (!names.insert(gate.rules.back().name).second) {
      throw usage_error("gate: two rules have the name \"" + gate.rules.back().name + "\"",
                        "give each rule its own name");
    }
  }
  return gate;
}

Gate load_gate(const std::string& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) {
    throw Error("cannot open '" + file + "': file not found",
                "write a gate as in docs/reference/gate.md");
  }
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  if (!stream || std::filesystem::is_directory(file, ignored) || !(text << stream.rdbuf())) {
    throw usage_error("cannot read '" + file + "'", "name a JSON file that you may read");
  }
  return parse_gate(text.view(), file);
}

GateRule fail_on_rule(Severity severity) {
  return {.name = "--fail-on " + std::string(severity_name(severity)),
          .lane = "*",
          .fail_on = severity};
}

}  // namespace halfscope
