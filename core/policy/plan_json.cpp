// SPDX-License-Identifier: MIT
// Plans as JSON (docs/reference/plans.md, "Plan JSON"). Strict: an unknown key is an error, because
// a misspelt key would silently leave a layer in low precision.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/error.h"
#include "core/graph/op_def.h"
#include "core/json_keys.h"
#include "core/near_miss.h"
#include "core/numeric/sums/tensor_core.h"
#include "core/policy/frameworks.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kSchema = "halfscope.plan/1";
/// Run files are SQLite databases. This detects one that is passed as a plan.
constexpr std::string_view kRunFileStart = "SQLite format 3";

/// "a number", "an array"
std::string kind_of(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_boolean()) return "true or false";
  if (value.is_number()) return "a number";
  if (value.is_string()) return "a string";
  return value.is_array() ? "an array" : "an object";
}

void check_keys(const Json& object, const std::string& where,
                const std::vector<std::string>& known) {
  if (!object.is_object()) {
    throw usage_error("plan: " + where + " must be an object, not " + kind_of(object),
                      "write { \"" + known.front() + "\": ... }");
  }
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    throw usage_error("plan: unknown key \"" + key + "\" in " + where,
                      did_you_mean(key, known, "known keys: " + comma_list(known)));
  }
}

std::string text_of(const Json& object, const char* key, const std::string& where) {
  if (!object.at(key).is_string()) {
    throw usage_error(
        "plan: " + where + "." + key + " must be a string, not " + kind_of(object.at(key)),
        std::string("write \"") + key + "\": \"...\"");
  }
  return object.at(key).get<std::string>();
}

FloatFormat format_of(const Json& object, const char* key, const std::string& where) {
  const std::string text = text_of(object, key, where);
  const std::optional<FloatFormat> format = parse_format(text);
  if (!format) {
    throw usage_error("plan: " + where + "." + key + ": unknown format \"" + text + "\"",
                      format_hint(text));
  }
  if (format->flush_in && !format->flush_out) {
    throw usage_error("plan: " + where + "." + key + ": \"" + text + "\" only flushes operands",
                      "use :ftz or :ftz-out, which flush tensors when they are written");
  }
  return *format;
}

Accumulation accumulation_of(const Json& object, const std::string& where) {
  const std::string text = text_of(object, "accumulate", where);
  const std::optional<Accumulation> accumulation = parse_accumulation(text);
  if (!accumulation) {
    throw usage_error("plan: " + where + ".accumulate: unknown value \"" + text + "\"",
                      accumulation_hint(text));
  }
  return *accumulation;
}

TensorScale scale_of(const Json& object, const char* key, const std::string& where) {
  const std::string text = text_of(object, key, where);
  const std::optional<TensorScale> scale = parse_scale(text);
  if (!scale) {
    throw usage_error("plan: " + where + "." + key + ": unknown value \"" + text + "\"",
                      scale_hint(text));
  }
  return *scale;
}

RoundingChoice rounding_of(const Json& object, const char* key, const std::string& where) {
  const std::string text = text_of(object, key, where);
  const std::optional<RoundingChoice> rounding = parse_rounding(text);
  if (!rounding) {
    std::vector<std::string> names;
    for (const RoundingMode mode : kAllRoundingModes) names.emplace_back(rounding_mode_name(mode));
    throw usage_error(
        "plan: " + where + "." + key + ": unknown value \"" + text + "\"",
        did_you_mean(text, names,
                     "use " + comma_list(names) + "; stochastic:N draws N bits, 1 to 32"));
  }
  return *rounding;
}

bool stagewise_of(const Json& object, const char* key, const std::string& where) {
  const std::string text = text_of(object, key, where);
  if (text != "fused" && text != "stagewise") {
    throw usage_error("plan: " + where + "." + key + ": unknown value \"" + text + "\"",
                      "use fused or stagewise");
  }
  return text == "stagewise";
}

constexpr const char* kInRange = "in-range";
constexpr const char* kAsGiven = "as-given";

/// Returns whether constants are moved into the range of a format.
bool constants_of(const Json& object, const std::string& where) {
  const std::string text = text_of(object, "constants", where);
  if (text != kInRange && text != kAsGiven) {
    throw usage_error("plan: " + where + ".constants: unknown value \"" + text + "\"",
                      "use in-range or as-given");
  }
  return text == kInRange;
}

constexpr const char* kAsRead = "as-read";
constexpr const char* kAsStored = "as-stored";

/// Returns whether weights are read in the node's read format everywhere.
bool rounds_weights_of(const Json& object, const std::string& where) {
  const std::string text = text_of(object, "weights", where);
  if (text != kAsRead && text != kAsStored) {
    throw usage_error("plan: " + where + ".weights: unknown value \"" + text + "\"",
                      "use as-read or as-stored");
  }
  return text == kAsRead;
}

constexpr const char* kElementwise = "elementwise";

/// Returns whether chains of element-wise operators round once.
bool fuses_of(const Json& plan) {
  const std::string text = text_of(plan, "fuse", "the plan");
  if (text != kElementwise && text != "none")
    throw usage_error("plan: fuse: unknown value \"" + text + "\"", "use elementwise or none");
  return text == kElementwise;
}

constexpr const char* kSaturate = "saturate";
constexpr const char* kAsFormat = "as-format";

/// Returns whether outputs beyond the range become the largest number.
bool clamps_of(const Json& object, const std::string& where) {
  const std::string text = text_of(object, "overflow", where);
  if (text != kSaturate && text != kAsFormat) {
    throw usage_error("plan: " + where + ".overflow: unknown value \"" + text + "\"",
                      "use saturate or as-format");
  }
  return text == kSaturate;
}

/// Returns the exponent of the power of two.
int prescale_in(const Json& object, const std::string& where) {
  const Json& value = object.at("prescale");
  int exponent = 0;
  const double power = value.is_number() ? value.get<double>() : 0.0;
  const bool is_power = power > 0.0 && std::frexp(power, &exponent) == 0.5;
  if (!is_power || std::abs(exponent - 1) > kLargestPrescale) {
    throw usage_error("plan: " + where + ".prescale must be a power of two, 2^-100 to 2^100",
                      "write for example 0.0625");
  }
  return exponent - 1;
}

BufferCommit buffers_of(const Json& variables) {
  const std::string text = text_of(variables, "buffers", "variables");
  if (text == "on_step") return BufferCommit::on_step;
  if (text == "always") return BufferCommit::always;
  throw usage_error("plan: variables.buffers: unknown value \"" + text + "\"",
                    "use on_step or always");
}

/// Reads the formats of what a step computes besides the gradients.
void read_update_formats(const Json& variables, Plan& plan) {
  const auto read = [&](const char* key, auto& format) {
    if (variables.contains(key)) format = format_of(variables, key, "variables");
  };
  read("state", plan.state);
  read("gradient_sum", plan.gradient_sum);
  read("ema", plan.average);
  read("ema_compute", plan.average_compute);
  read("update_compute", plan.update_compute);
  read("clip", plan.clip);
  read("schedule", plan.schedule);
  if (variables.contains("reduce")) {
    const std::string text = text_of(variables, "reduce", "variables");
    try {
      plan.reduction = parse_reduction(text);
    } catch (const Error& error) {
      throw error.with_text("plan: variables.reduce: " + std::string(error.what()));
    }
  }
  if (variables.contains("clip_mode")) {
    plan.clip_stagewise = stagewise_of(variables, "clip_mode", "variables");
    if (plan.clip_stagewise && plan.clip == kFp32) {
      throw usage_error("plan: variables.clip_mode: stagewise needs a clip format",
                        "add \"clip\": \"float16\", or remove clip_mode");
    }
  }
}

void write_update_formats(const Plan& plan, Json& variables) {
  if (plan.state) variables["state"] = format_name(*plan.state);
  if (plan.gradient_sum) variables["gradient_sum"] = format_name(*plan.gradient_sum);
  if (plan.average) variables["ema"] = format_name(*plan.average);
  const auto write = [&](const char* key, const FloatFormat& format) {
    if (format != kFp32) variables[key] = format_name(format);
  };
  write("ema_compute", plan.average_compute);
  write("update_compute", plan.update_compute);
  write("clip", plan.clip);
  write("schedule", plan.schedule);
  if (plan.clip_stagewise) variables["clip_mode"] = "stagewise";
  if (plan.reduction) variables["reduce"] = reduction_text(*plan.reduction);
}

constexpr const char* kOff = "off";

/// Returns the operators that a rule can select.
std::vector<std::string> operators_of_models() {
  std::vector<std::string> names;
  for (const OpDef& def : op_table()) {
    if (def.autocast != Autocast::internal) names.emplace_back(def.name);
  }
  return names;
}

/// Reads "autocast": "off": a region without casts.
void read_autocast(const Json& object, const std::string& where, PlanRule& rule) {
  const std::string text = text_of(object, "autocast", where);
  if (text != kOff) {
    throw usage_error("plan: " + where + ".autocast: unknown value \"" + text + "\"",
                      "the only value is off; leave the key out where autocast is on");
  }
  if (object.contains("format") || object.contains("read") || object.contains("write")) {
    throw usage_error("plan: " + where + " sets autocast together with a format",
                      "use autocast for a region without casts, or a format, not both");
  }
  rule.follow = rule.same_formats = true;
}

PlanRule rule_from(const Json& object, const std::string& where) {
  check_keys(object, where,
             {"path", "op", "format", "read", "grad_read", "write", "scale", "second_scale",
              "accumulate", "rounding", "grad_rounding", "mode", "constants", "overflow",
              "prescale", "autocast", "weights", "why", "change"});
  PlanRule rule;
  if (object.contains("why")) rule.why = text_of(object, "why", where);
  if (object.contains("change")) rule.change = text_of(object, "change", where);
  if (object.contains("path")) rule.path = text_of(object, "path", where);
  if (object.contains("op")) {
    rule.op = text_of(object, "op", where);
    const std::vector<std::string> known = operators_of_models();
    if (std::find(known.begin(), known.end(), rule.op) == known.end()) {
      throw usage_error("plan: " + where + ".op: unknown operator \"" + rule.op + "\"",
                        did_you_mean(rule.op, known,
                                     "name the forward operator: gradients and updates follow it"));
    }
  }
  if (rule.path.empty() && rule.op.empty()) {
    throw usage_error("plan: " + where + " selects nothing", "give it a path or an op");
  }
  if (object.contains("format")) {
    if (object.contains("read") || object.contains("write")) {
      throw usage_error("plan: " + where + " sets format together with read or write",
                        "use either format, or read and write");
    }
    if (text_of(object, "format", where) == "follow") {
      rule.follow = true;
    } else {
      rule.read = rule.write = format_of(object, "format", where);
    }
  }
  if (object.contains("autocast")) read_autocast(object, where, rule);
  if (object.contains("read")) rule.read = format_of(object, "read", where);
  if (object.contains("write")) rule.write = format_of(object, "write", where);
  if (object.contains("accumulate")) rule.accumulation = accumulation_of(object, where);
  if (object.contains("grad_read")) rule.grad_read = format_of(object, "grad_read", where);
  if (object.contains("scale")) rule.scale = scale_of(object, "scale", where);
  if (object.contains("second_scale")) {
    rule.second_scale = scale_of(object, "second_scale", where);
  }
  if (object.contains("rounding")) rule.rounding = rounding_of(object, "rounding", where);
  if (object.contains("grad_rounding")) {
    rule.grad_rounding = rounding_of(object, "grad_rounding", where);
  }
  if (object.contains("mode")) rule.stagewise = stagewise_of(object, "mode", where);
  if (object.contains("weights")) rule.rounds_weights = rounds_weights_of(object, where);
  if (object.contains("constants")) rule.constants_in_range = constants_of(object, where);
  if (object.contains("overflow")) rule.clamps = clamps_of(object, where);
  if (object.contains("prescale")) rule.prescale = prescale_in(object, where);
  return rule;
}

Json rule_to(const PlanRule& rule) {
  Json json;
  if (!rule.path.empty()) json["path"] = rule.path;
  if (!rule.op.empty()) json["op"] = rule.op;
  if (rule.follow && rule.same_formats) {
    json["autocast"] = kOff;
  } else if (rule.follow) {
    json["format"] = "follow";
  } else if (rule.read && rule.write && *rule.read == *rule.write) {
    json["format"] = format_name(*rule.read);
  } else {
    if (rule.read) json["read"] = format_name(*rule.read);
    if (rule.write) json["write"] = format_name(*rule.write);
  }
  if (rule.accumulation) json["accumulate"] = accumulation_name(*rule.accumulation);
  if (rule.grad_read) json["grad_read"] = format_name(*rule.grad_read);
  if (rule.scale) json["scale"] = scale_name(*rule.scale);
  if (rule.second_scale) json["second_scale"] = scale_name(*rule.second_scale);
  if (rule.rounding) json["rounding"] = rounding_name(*rule.rounding);
  if (rule.grad_rounding) json["grad_rounding"] = rounding_name(*rule.grad_rounding);
  if (rule.stagewise) json["mode"] = *rule.stagewise ? "stagewise" : "fused";
  if (rule.rounds_weights) json["weights"] = *rule.rounds_weights ? kAsRead : kAsStored;
  if (rule.constants_in_range) json["constants"] = *rule.constants_in_range ? kInRange : kAsGiven;
  if (rule.clamps) json["overflow"] = *rule.clamps ? kSaturate : kAsFormat;
  if (rule.prescale) json["prescale"] = std::ldexp(1.0, *rule.prescale);
  if (!rule.why.empty()) json["why"] = rule.why;
  if (!rule.change.empty()) json["change"] = rule.change;
  return json;
}

Error not_json(std::string_view text) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    return usage_error("plan: the text is empty",
                       "print a plan to start from: halfscope plan show mixed_float16 --json");
  if (text.find('\0') != std::string_view::npos) {
    return usage_error("plan: not a text file",
                       "use a JSON plan; halfscope diagnose can write one");
  }
  return usage_error("plan: not JSON: " + json_problem(text), kJsonHint);
}

}  // namespace

Plan plan_from_json(std::string_view text) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::parse_error&) {
    throw not_json(text);
  } catch (const Json::exception&) {  // a number beyond a double's range
    throw usage_error("plan: not JSON: a number is too large", "use numbers below 1e308");
  }
  if (const std::string twice = repeated_key(text); !twice.empty()) {
    throw usage_error("plan: key \"" + twice + "\" is given twice in one object",
                      "remove one of the two");
  }
  if (json.is_object() && json.contains("schema") && json["schema"].is_string() &&
      json["schema"].get<std::string>().ends_with("-config/1")) {
    throw usage_error("plan: this is a configuration file", "pass it to --config");
  }
  check_keys(json, "the plan",
             {"schema", "name", "default", "variables", "rules", "precision", "fuse"});
  for (const char* key : {"schema", "name"}) {
    if (!json.contains(key)) {
      throw usage_error(
          std::string("plan: key \"") + key + "\" is missing",
          std::string(R"(begin with {"schema": ")") + kSchema + R"(", "name": "my-plan", ...})");
    }
  }
  if (const std::string schema = text_of(json, "schema", "the plan"); schema != kSchema) {
    throw usage_error("plan: schema \"" + schema + "\" is not " + kSchema,
                      schema.starts_with("halfscope.report")
                          ? "extract recommendation.plan from the report"
                          : std::string("write \"schema\": \"") + kSchema + "\"");
  }
  Plan plan;
  plan.name = text_of(json, "name", "the plan");
  constexpr size_t kLongestName = 200;
  const bool printable = std::all_of(plan.name.begin(), plan.name.end(), [](unsigned char c) {
    return c >= ' ' && c != 0x7f && c != ',';
  });
  if (plan.name.empty() || !printable || plan.name.size() > kLongestName) {
    throw usage_error(
        "plan: the name must not be empty, longer than 200 bytes or contain a comma or control "
        "characters",
        "write for example \"name\": \"my-plan\"");
  }
  if (json.contains("precision")) {
    if (text_of(json, "precision", "the plan") != "double")
      throw usage_error("plan: precision must be \"double\"",
                        "leave it out, or use default and rules for other formats");
    plan.double_precision = true;
    for (const char* key : {"default", "variables", "rules", "fuse"}) {
      if (json.contains(key))
        throw usage_error(std::string("plan: precision cannot be combined with ") + key,
                          "leave out one of them");
    }
  }
  if (json.contains("default")) {
    const Json& defaults = json["default"];
    check_keys(defaults, "default",
               {"format", "read", "grad_read", "write", "scale", "second_scale", "accumulate",
                "rounding", "grad_rounding", "mode", "why", "change"});
    NodePlan& node = plan.defaults;
    if (defaults.contains("format"))
      node.read = node.write = format_of(defaults, "format", "default");
    if (defaults.contains("read")) node.read = format_of(defaults, "read", "default");
    if (defaults.contains("write")) node.write = format_of(defaults, "write", "default");
    if (defaults.contains("accumulate")) node.accumulation = accumulation_of(defaults, "default");
    if (defaults.contains("grad_read")) {
      node.grad_read = format_of(defaults, "grad_read", "default");
    }
    if (defaults.contains("scale")) node.scale = scale_of(defaults, "scale", "default");
    if (defaults.contains("second_scale")) {
      node.second_scale = scale_of(defaults, "second_scale", "default");
    }
    if (defaults.contains("rounding")) node.rounding = rounding_of(defaults, "rounding", "default");
    if (defaults.contains("grad_rounding")) {
      node.grad_rounding = rounding_of(defaults, "grad_rounding", "default");
    }
    if (defaults.contains("mode")) node.stagewise = stagewise_of(defaults, "mode", "default");
    if (defaults.contains("why")) plan.why = text_of(defaults, "why", "default");
    if (defaults.contains("change")) plan.change = text_of(defaults, "change", "default");
  }
  if (json.contains("variables")) {
    check_keys(json["variables"], "variables",
               {"storage", "initial", "rounding", "buffers", "state", "gradient_sum", "reduce",
                "ema", "ema_compute", "update_compute", "clip", "clip_mode", "schedule"});
    if (json["variables"].contains("storage"))
      plan.storage = format_of(json["variables"], "storage", "variables");
    if (json["variables"].contains("initial"))
      plan.initial = format_of(json["variables"], "initial", "variables");
    if (json["variables"].contains("rounding"))
      plan.storage_rounding = rounding_of(json["variables"], "rounding", "variables");
    if (json["variables"].contains("buffers")) plan.buffers = buffers_of(json["variables"]);
    read_update_formats(json["variables"], plan);
  }
  if (json.contains("fuse")) plan.fuses = fuses_of(json);
  if (json.contains("rules")) {
    if (!json["rules"].is_array()) {
      throw usage_error("plan: rules must be an array, not " + kind_of(json["rules"]),
                        R"(write "rules": [{"path": "conv1", "format": "fp32"}])");
    }
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
  if (plan.defaults.rounding != RoundingChoice{}) {
    json["default"]["rounding"] = rounding_name(plan.defaults.rounding);
  }
  if (plan.defaults.grad_read) {
    json["default"]["grad_read"] = format_name(*plan.defaults.grad_read);
  }
  if (plan.defaults.scale.any()) json["default"]["scale"] = scale_name(plan.defaults.scale);
  if (plan.defaults.second_scale) {
    json["default"]["second_scale"] = scale_name(*plan.defaults.second_scale);
  }
  if (plan.defaults.grad_rounding) {
    json["default"]["grad_rounding"] = rounding_name(*plan.defaults.grad_rounding);
  }
  if (!plan.why.empty()) json["default"]["why"] = plan.why;
  if (!plan.change.empty()) json["default"]["change"] = plan.change;
  json["variables"] = {{"storage", format_name(plan.storage)}};
  if (plan.initial) json["variables"]["initial"] = format_name(*plan.initial);
  if (plan.storage_rounding != RoundingChoice{}) {
    json["variables"]["rounding"] = rounding_name(plan.storage_rounding);
  }
  if (plan.buffers == BufferCommit::always) json["variables"]["buffers"] = "always";
  write_update_formats(plan, json["variables"]);
  if (plan.fuses) json["fuse"] = kElementwise;
  json["rules"] = Json::array();
  for (const PlanRule& rule : plan.rules) json["rules"].push_back(rule_to(rule));
  return json.dump(2);
}

Plan load_plan(const std::string& name_or_file) {
  if (std::optional<Plan> preset = preset_plan(name_or_file)) return *preset;
  std::error_code ignored;
  if (std::filesystem::is_directory(name_or_file, ignored)) {
    throw usage_error("'" + name_or_file + "' is a folder, not a plan",
                      "list them with: halfscope plan list");
  }
  std::ifstream file(name_or_file, std::ios::binary);
  if (!file) {
    if (std::filesystem::exists(name_or_file, ignored)) {
      throw Error("cannot read '" + name_or_file + "'", "check its permissions");
    }
    check_apex_options(name_or_file);
    throw usage_error("no plan named '" + name_or_file + "', and no file with this name",
                      plan_hint(name_or_file));
  }
  std::ostringstream content;
  content << file.rdbuf();
  const std::string text = content.str();
  if (std::string_view(text).starts_with(kRunFileStart)) {
    throw usage_error(
        "'" + name_or_file + "' is a run file, not a plan",
        "write the recommended plan with: halfscope diagnose " + name_or_file + " --out plan.json");
  }
  try {
    return plan_from_json(text);
  } catch (const Error& e) {
    throw usage_error(name_or_file + ": " + e.what(), e.hint());
  }
}

}  // namespace halfscope
