// SPDX-License-Identifier: MIT
// Plans as JSON (docs/contracts.md, "Plan JSON"). Strict: an unknown key is an error, since a
// misspelt one would silently leave a layer in low precision.
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/error.h"
#include "core/ops/ops.h"
#include "core/plan/plan.h"

namespace halfscope {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kSchema = "halfscope.plan/1";

void check_keys(const Json& object, const std::string& where, std::initializer_list<const char*> known) {
  if (!object.is_object()) throw usage_error("plan: " + where + " must be an object");
  for (const auto& [key, value] : object.items()) {
    bool found = false;
    std::string list;
    for (const char* each : known) {
      found = found || key == each;
      list += std::string(list.empty() ? "" : ", ") + each;
    }
    if (!found) throw usage_error("plan: unknown key \"" + key + "\" in " + where, "known keys: " + list);
  }
}

std::string text_of(const Json& object, const char* key, const std::string& where) {
  if (!object.at(key).is_string()) throw usage_error("plan: " + where + "." + key + " must be a string");
  return object.at(key).get<std::string>();
}

FloatFormat format_of(const Json& object, const char* key, const std::string& where) {
  const std::string text = text_of(object, key, where);
  const std::optional<FloatFormat> format = parse_format(text);
  if (!format) {
    throw usage_error("plan: " + where + "." + key + ": unknown format \"" + text + "\"",
                      "formats are fp32, tf32, bf16, fp16, e4m3fn, e5m2 or eXmY with X from 2 to 8 and Y from 1 to 23");
  }
  return *format;
}

Accumulation accumulation_of(const Json& object, const std::string& where) {
  const std::string text = text_of(object, "accumulate", where);
  const std::optional<Accumulation> accumulation = parse_accumulation(text);
  if (!accumulation) {
    throw usage_error("plan: " + where + ".accumulate: unknown value \"" + text + "\"",
                      "use fp32, fp64 or format");
  }
  return *accumulation;
}

bool stagewise_of(const Json& object, const std::string& where) {
  const std::string text = text_of(object, "mode", where);
  if (text != "fused" && text != "stagewise") {
    throw usage_error("plan: " + where + ".mode: unknown value \"" + text + "\"", "use fused or stagewise");
  }
  return text == "stagewise";
}

/// Whether a rule can meet the operator: one of ONNX's that is not of our own making, or the one
/// of ours that expansions of composites contain.
bool stands_in_a_model(const std::string& name) {
  for (const OpDef& def : op_table()) {
    if (name == def.name) return (*def.domain == '\0' && name != "Cast") || name == "StopGradient";
  }
  return false;
}

PlanRule rule_from(const Json& object, const std::string& where) {
  check_keys(object, where, {"path", "op", "format", "read", "write", "accumulate", "mode"});
  PlanRule rule;
  if (object.contains("path")) rule.path = text_of(object, "path", where);
  if (object.contains("op")) {
    rule.op = text_of(object, "op", where);
    if (!stands_in_a_model(rule.op)) {
      throw usage_error("plan: " + where + ".op: unknown operator \"" + rule.op + "\"",
                        "gradients and updates go with the forward operator");
    }
  }
  if (rule.path.empty() && rule.op.empty()) {
    throw usage_error("plan: " + where + " selects nothing", "give it a path or an op");
  }
  if (object.contains("format")) {
    if (object.contains("read") || object.contains("write")) {
      throw usage_error("plan: " + where + " has format beside read or write", "use one or the other");
    }
    if (text_of(object, "format", where) == "follow") {
      rule.follow = true;
    } else {
      rule.read = rule.write = format_of(object, "format", where);
    }
  }
  if (object.contains("read")) rule.read = format_of(object, "read", where);
  if (object.contains("write")) rule.write = format_of(object, "write", where);
  if (object.contains("accumulate")) rule.accumulation = accumulation_of(object, where);
  if (object.contains("mode")) rule.stagewise = stagewise_of(object, where);
  return rule;
}

Json rule_to(const PlanRule& rule) {
  Json json;
  if (!rule.path.empty()) json["path"] = rule.path;
  if (!rule.op.empty()) json["op"] = rule.op;
  if (rule.follow) {
    json["format"] = "follow";
  } else if (rule.read && rule.write && *rule.read == *rule.write) {
    json["format"] = format_name(*rule.read);
  } else {
    if (rule.read) json["read"] = format_name(*rule.read);
    if (rule.write) json["write"] = format_name(*rule.write);
  }
  if (rule.accumulation) json["accumulate"] = accumulation_name(*rule.accumulation);
  if (rule.stagewise) json["mode"] = *rule.stagewise ? "stagewise" : "fused";
  return json;
}

}  // namespace

Plan plan_from_json(std::string_view text) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& e) {
    throw usage_error(std::string("plan: not JSON: ") + e.what());
  }
  check_keys(json, "the plan", {"schema", "name", "default", "variables", "rules", "precision"});
  for (const char* key : {"schema", "name"}) {
    if (!json.contains(key)) throw usage_error(std::string("plan: key \"") + key + "\" is missing");
  }
  if (const std::string schema = text_of(json, "schema", "the plan"); schema != kSchema) {
    throw usage_error("plan: schema \"" + schema + "\" is not " + kSchema);
  }
  Plan plan;
  plan.name = text_of(json, "name", "the plan");
  if (plan.name.empty() || plan.name.find(',') != std::string::npos) {
    throw usage_error("plan: the name must not be empty or contain a comma");
  }
  if (json.contains("precision")) {
    if (text_of(json, "precision", "the plan") != "double") throw usage_error("plan: precision must be \"double\"");
    plan.double_precision = true;
    for (const char* key : {"default", "variables", "rules"}) {
      if (json.contains(key)) throw usage_error(std::string("plan: precision stands alone, without ") + key);
    }
  }
  if (json.contains("default")) {
    const Json& defaults = json["default"];
    check_keys(defaults, "default", {"format", "read", "write", "accumulate", "mode"});
    NodePlan& node = plan.defaults;
    if (defaults.contains("format")) node.read = node.write = format_of(defaults, "format", "default");
    if (defaults.contains("read")) node.read = format_of(defaults, "read", "default");
    if (defaults.contains("write")) node.write = format_of(defaults, "write", "default");
    if (defaults.contains("accumulate")) node.accumulation = accumulation_of(defaults, "default");
    if (defaults.contains("mode")) node.stagewise = stagewise_of(defaults, "default");
  }
  if (json.contains("variables")) {
    check_keys(json["variables"], "variables", {"storage"});
    if (json["variables"].contains("storage")) plan.storage = format_of(json["variables"], "storage", "variables");
  }
  if (json.contains("rules")) {
    if (!json["rules"].is_array()) throw usage_error("plan: rules must be an array");
    for (size_t i = 0; i < json["rules"].size(); ++i) {
      plan.rules.push_back(rule_from(json["rules"][i], "rules[" + std::to_string(i) + "]"));
    }
  }
  return plan;
}

std::string plan_to_json(const Plan& plan) {
  Json json;
  json["schema"] = kSchema;
  json["name"] = plan.name;
  if (plan.double_precision) {
    json["precision"] = "double";
    return json.dump(2);
  }
  json["default"] = {{"read", format_name(plan.defaults.read)},
                     {"write", format_name(plan.defaults.write)},
                     {"accumulate", accumulation_name(plan.defaults.accumulation)},
                     {"mode", plan.defaults.stagewise ? "stagewise" : "fused"}};
  json["variables"] = {{"storage", format_name(plan.storage)}};
  json["rules"] = Json::array();
  for (const PlanRule& rule : plan.rules) json["rules"].push_back(rule_to(rule));
  return json.dump(2);
}

Plan load_plan(const std::string& name_or_file) {
  if (std::optional<Plan> preset = preset_plan(name_or_file)) return *preset;
  std::string presets;
  for (const std::string& name : preset_names()) presets += (presets.empty() ? "" : ", ") + name;
  std::ifstream file(name_or_file, std::ios::binary);
  if (!file) {
    throw usage_error("no plan named " + name_or_file + " and no such file", "presets: " + presets);
  }
  std::ostringstream text;
  text << file.rdbuf();
  try {
    return plan_from_json(text.str());
  } catch (const Error& e) {
    throw usage_error(name_or_file + ": " + e.what(), e.hint());
  }
}

}  // namespace halfscope
