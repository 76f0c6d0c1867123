// SPDX-License-Identifier: MIT
#include "cli/tasks/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "analysis/rules/text.h"
#include "cli/args/lanes.h"
#include "cli/args/network.h"
#include "cli/tasks/forward.h"
#include "cli/tasks/training.h"
#include "cli/terminal/lane_summary.h"
#include "core/error.h"
#include "core/models/models.h"
#include "core/near_miss.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

Model training_network(const TrainConfig& config, const Dataset& data) {
  const int64_t parts =
      std::max<int64_t>(1, config.micro_batches) * std::max<int64_t>(1, config.ranks);
  const int64_t batch = std::max<int64_t>(1, config.batch / parts);
  return config.build ? config.build(batch)
                      : build_model(config.model, batch, data.sample_shape, data.classes);
}

Model forward_network(const Settings& settings) {
  const bool samples =
      !settings.inputs.empty() || !settings.data.empty() || settings.random_input.has_value();
  if (samples) return read_work(settings).network;
  NetworkOptions wanted = network_options(settings);
  wanted.batch = std::max<int64_t>(settings.batch, 1);
  return load_network(settings.model, wanted);
}

/// The plans among them that round, or the one of that name.
std::vector<NamedPlan> rounding_plans(const std::vector<NamedPlan>& all, const std::string& name) {
  std::vector<NamedPlan> plans;
  std::vector<std::string> names;
  for (const NamedPlan& each : all) {
    if (is_full_precision(each.plan)) continue;
    names.push_back(each.lane);
    if (name.empty() || each.lane == name) plans.push_back(each);
  }
  if (names.empty()) {
    throw usage_error("nothing to audit: all lanes run in full precision",
                      "add a plan, for example --plan mixed_float16");
  }
  if (plans.empty()) {
    throw usage_error("no reduced-precision lane is named '" + name + "'",
                      did_you_mean(name, names, "lanes: " + comma_list(names)));
  }
  return plans;
}

std::string place_of(const AuditedConstant& each) {
  if (each.path.empty()) return audited_name(each.of);
  return each.op.empty() ? each.path : each.path + " (" + each.op + ")";
}

/// With more digits than sentences have: 1 - 3e-5 is not 1.
std::string digits(double value) { return fmt::format("{:.6g}", value); }

/// "1e-08"; of tensors with the number of their elements.
std::string value_text(const AuditedConstant& each) {
  const std::string value = digits(each.value);
  return each.count == 1 ? value : fmt::format("{} of {}", value, each.count);
}

/// Weights that only round are as many as the network has layers.
bool is_listed(const AuditedConstant& each) {
  return each.of != AuditedConstant::Of::weights || each.zeros + each.infinities > 0;
}

std::string error_text(const AuditedConstant& each) {
  if (std::isinf(each.relative_error)) return "-";
  return each.relative_error == 0.0 ? "exact" : percent(each.relative_error);
}

std::string table_of(const AuditedLane& lane, size_t width) {
  using Key = std::tuple<std::string, std::string, std::string, std::string, std::string, Severity>;
  std::vector<std::pair<Key, std::vector<std::string>>> groups;  // with the places of each
  for (const AuditedConstant& each : lane.constants) {
    if (!is_listed(each)) continue;
    const Key key{
        each.name,        value_text(each), format_name(each.format), digits(each.becomes),
        error_text(each), each.severity};
    const auto same = [&key](const auto& group) { return group.first == key; };
    auto found = std::find_if(groups.begin(), groups.end(), same);
    if (found == groups.end()) found = groups.insert(groups.end(), {key, {}});
    found->second.push_back(place_of(each));
  }
  std::vector<std::vector<std::string>> rows{
      {"constant", "value", "format", "becomes", "error", "harm", "where"}};
  for (const auto& [key, places] : groups) {
    const auto& [name, value, format, becomes, error, severity] = key;
    const std::string more =
        places.size() > 1 ? fmt::format(" and {} more", places.size() - 1) : "";
    const char* harm = severity == Severity::error     ? "yes"
                       : severity == Severity::warning ? "maybe"
                                                       : "no";
    rows.push_back({name, value, format, becomes, error, harm, places.front() + more});
  }
  if (groups.empty()) return "";
  return aligned(rows, {false, true, false, true, true, false, false}, width);
}

int64_t harmful_of(const AuditedLane& lane) {
  return std::count_if(lane.constants.begin(), lane.constants.end(),
                       [](const AuditedConstant& each) { return each.is_harmful(); });
}

}  // namespace

Settings settings_of_run(const std::string& file, const RunInfo& info) {
  if (info.settings.empty()) {
    throw usage_error(file + " does not say how it was recorded, so it cannot be audited",
                      "name the network and its settings in place of the file");
  }
  return parse_settings(info.inference ? kRun : kTrain, info.settings);
}

std::vector<NamedPlan> plans_of(const Settings& settings) {
  std::vector<NamedPlan> plans;
  for (const LaneConfig& lane : lanes_of(settings)) plans.push_back({lane.name(), lane.plan});
  return plans;
}

std::vector<NamedPlan> plans_of(const RunInfo& info) {
  std::vector<NamedPlan> plans;
  for (const LaneInfo& lane : info.lanes) {
    plans.push_back({lane.name, plan_from_json(lane.plan_json)});
  }
  return plans;
}

std::vector<AuditedLane> audit_lanes(const Settings& settings, const std::vector<NamedPlan>& all,
                                     const std::string& lane) {
  const std::vector<NamedPlan> plans = rounding_plans(all, lane);
  const NamedTensors init = read_initial_weights(settings);
  std::optional<TrainConfig> training;
  Dataset data;
  Model network;
  if (settings.command == kTrain) {
    training = train_config(settings);
    data = load_training_data(settings);
    attach_network(*training, settings, data);
    network = training_network(*training, data);
  } else {
    network = forward_network(settings);
  }
  std::vector<AuditedLane> audited;
  for (const NamedPlan& each : plans) {
    audited.push_back(
        {each.lane, audit_constants(network, each.plan, training ? &*training : nullptr, init)});
  }
  return audited;
}

std::string audit_text(const std::vector<AuditedLane>& lanes, const TextStyle& style) {
  std::string text;
  for (const AuditedLane& lane : lanes) {
    const int64_t harmful = harmful_of(lane);
    const std::string all = counted(static_cast<int64_t>(lane.constants.size()), "constant");
    text += fmt::format("{}lane {}: {} checked, {} harmful\n", text.empty() ? "" : "\n", lane.name,
                        all, harmful == 0 ? "none" : std::to_string(harmful));
    text += table_of(lane, style.width);
    for (const AuditedConstant& each : lane.constants) {
      if (each.text.empty()) continue;
      std::string line = fmt::format("{}: {}.", severity_name(each.severity), each.text);
      if (!each.advice.empty()) {
        std::string advice = each.advice;
        advice[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(advice[0])));
        line += " " + advice + ".";
      }
      text += paragraph(line, style, 0, 2);
    }
  }
  return text;
}

Json audit_result(const Settings& settings, const std::vector<AuditedLane>& lanes) {
  Json json{{"schema", "halfscope.audit/1"},
            {"version", HALFSCOPE_VERSION},
            {"network", settings.model},
            {"trains", settings.command == kTrain},
            {"lanes", Json::array()}};
  for (const AuditedLane& lane : lanes) {
    json["lanes"].push_back({{"name", lane.name},
                             {"harmful", harmful_of(lane)},
                             {"constants", Json::parse(audit_json(lane.constants))}});
  }
  return json;
}

std::vector<Finding> audit_findings(const std::vector<AuditedLane>& lanes) {
  std::vector<Finding> findings;
  for (size_t i = 0; i < lanes.size(); ++i) {
    for (const AuditedConstant& each : lanes[i].constants) {
      if (!each.is_harmful()) continue;
      findings.push_back({.rule = "audit",
                          .lane = static_cast<int>(i),
                          .severity = each.severity,
                          .layer = each.path,
                          .text = each.text});
    }
  }
  return findings;
}

}  // namespace halfscope
