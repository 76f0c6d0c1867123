// SPDX-License-Identifier: MIT
// report.json, as docs/contracts.md describes it ("Report JSON").
#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/report/report.h"

namespace halfscope {
namespace {

using Json = nlohmann::ordered_json;

/// JSON has no infinities and no NaN; the contract writes them as words.
Json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0.0 ? "inf" : "-inf";
  return value;
}

Json number(const std::optional<double>& value) { return value ? number(*value) : Json(nullptr); }

Json object_of(const std::string& text) {
  Json value = Json::parse(text, nullptr, false);
  return value.is_object() ? value : Json::object();
}

Json run_json(const Report& report) {
  const RunInfo& run = report.run;
  return {{"model", run.model},
          {"data", run.data},
          {"optimizer", run.optimizer},
          {"batch", run.batch},
          {"steps_planned", run.steps_planned},
          {"seed", run.seed},
          {"status", status_name(report.status)},
          {"every", run.every},
          {"threads", run.threads},
          {"isa", run.isa},
          {"command", run.command}};
}

Json lane_json(const LaneReport& lane) {
  Json json;
  json["name"] = lane.name;
  json["backend"] = lane.backend;
  json["reference"] = lane.reference;
  json["steps"] = lane.steps;
  json["skipped"] = lane.skipped;
  json["first_loss"] = number(lane.first_loss);
  json["last_loss"] = number(lane.last_loss);
  json["last_loss_scale"] = number(lane.last_loss_scale);
  json["test_loss"] = number(lane.test_loss);
  json["test_accuracy"] = number(lane.test_accuracy);
  json["plan"] = object_of(lane.plan_json);
  return json;
}

Json finding_json(const Report& report, size_t index) {
  const Finding& finding = report.findings[index];
  Json evidence = Json::object();
  for (const auto& [key, value] : finding.evidence) {
    evidence[key] = std::holds_alternative<double>(value) ? number(std::get<double>(value))
                                                          : Json(std::get<std::string>(value));
  }
  Json action;
  action["kind"] = action_name(finding.action.kind);
  action["layers"] = finding.action.layers;
  action["loss_scale"] =
      finding.action.loss_scale > 0.0 ? number(finding.action.loss_scale) : Json(nullptr);
  action["text"] = finding.action.text;

  Json json;
  json["id"] = report.finding_ids[index];
  json["rule"] = finding.rule;
  json["lane"] = report.lanes[static_cast<size_t>(finding.lane)].name;
  json["severity"] = severity_name(finding.severity);
  json["site"] = finding.site;
  json["layer"] = finding.layer;
  json["step"] = finding.step >= 0 ? Json(finding.step) : Json(nullptr);
  json["mechanism"] = finding.mechanism;
  json["evidence"] = std::move(evidence);
  json["text"] = finding.text;
  json["action"] = std::move(action);
  return json;
}

Json site_json(const SiteReport& site) {
  Json exponents = Json::object();
  for (const auto& [exponent, count] : site.exponents) exponents[std::to_string(exponent)] = count;
  Json json;
  json["site"] = site.name;
  json["role"] = role_name(site.role);
  json["format"] = format_name(site.format);
  json["n"] = site.n;
  json["zero"] = site.zero;
  json["overflow"] = site.overflow;
  json["underflow"] = site.underflow;
  json["subnormal"] = site.subnormal;
  json["non_finite"] = site.non_finite;
  json["lost"] = site.lost;
  json["max_abs"] = number(site.max_abs);
  json["min_abs"] = number(site.min_abs);
  json["rms"] = number(site.rms);
  json["headroom_bits"] = number(site.headroom_bits);
  json["exponents"] = std::move(exponents);
  return json;
}

Json layer_json(const Report& report, const LayerReport& layer) {
  Json json;
  json["lane"] = report.lanes[static_cast<size_t>(layer.lane)].name;
  json["path"] = layer.path;
  json["op"] = layer.op;
  json["read"] = format_name(layer.read);
  json["write"] = format_name(layer.write);
  json["parameters"] = layer.parameters;
  json["sites"] = Json::array();
  for (const SiteReport& site : layer.sites) json["sites"].push_back(site_json(site));
  return json;
}

Json steps_json(const LaneReport& lane) {
  Json json;
  for (const char* key : {"step", "loss", "loss_scale", "skipped", "grad_norm"}) {
    json[key] = Json::array();
  }
  for (const StepRow& row : lane.rows) {
    json["step"].push_back(row.step);
    json["loss"].push_back(number(row.loss));
    json["loss_scale"].push_back(number(row.loss_scale));
    json["skipped"].push_back(row.skipped ? 1 : 0);
    json["grad_norm"].push_back(number(row.grad_norm));
  }
  json["thinned"] = lane.thinned;
  return json;
}

Json recommendation_json(const Report& report) {
  if (!report.recommendation) return nullptr;
  const Recommendation& advice = *report.recommendation;
  Json json;
  json["lane"] = report.lanes[static_cast<size_t>(advice.lane)].name;
  json["layers"] = advice.layers;
  json["plan"] = object_of(advice.plan_json);
  json["loss_scale"] = number(advice.loss_scale);
  json["text"] = advice.text;
  return json;
}

}  // namespace

std::string report_json(const Report& report) {
  Json json;
  json["schema"] = "halfscope.report/1";
  json["version"] = report.run.version;
  json["run"] = run_json(report);
  json["verdict"] = {{"state", verdict_name(report.verdict.state)}, {"text", report.verdict.text}};
  json["lanes"] = Json::array();
  for (const LaneReport& lane : report.lanes) json["lanes"].push_back(lane_json(lane));
  json["findings"] = Json::array();
  for (size_t i = 0; i < report.findings.size(); ++i) {
    json["findings"].push_back(finding_json(report, i));
  }
  json["recommendation"] = recommendation_json(report);
  json["layers"] = Json::array();
  for (const LayerReport& layer : report.layers) {
    json["layers"].push_back(layer_json(report, layer));
  }
  json["steps"] = Json::object();
  for (const LaneReport& lane : report.lanes) json["steps"][lane.name] = steps_json(lane);
  // Names may hold any bytes; invalid UTF-8 is replaced rather than refused.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace halfscope
