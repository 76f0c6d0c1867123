// SPDX-License-Identifier: MIT
// report.json, as docs/reference/report-json.md and docs/report.schema.json
// checks it.
#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/report/json_number.h"
#include "analysis/report/report_parts.h"

namespace halfscope {
namespace {

using Json = nlohmann::ordered_json;

/// Returns null for NaN, which means "not measured" here.
Json measured(double value) { return std::isnan(value) ? Json(nullptr) : report::number(value); }

Json object_of(const std::string& text) {
  Json value = Json::parse(text, nullptr, false);
  return value.is_object() ? value : Json::object();
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

const std::string& lane_name(const Report& report, int lane) {
  return report.lanes[static_cast<size_t>(lane)].name;
}

Json run_json(const Report& report) {
  const RunInfo& run = report.run;
  return {{"kind", run.inference ? "inference" : "training"},
          {"model", run.model},
          {"data", run.data},
          {"optimizer", run.optimizer},
          {"evaluated", run.evaluates_averages ? "averages" : "weights"},
          {"batch", run.batch},
          {"steps_planned", run.steps_planned},
          {"seed", run.seed},
          {"status", status_name(report.status)},
          {"every", run.every},
          {"threads", run.threads},
          {"isa", run.isa},
          {"command", run.command},
          {"settings", run.settings},
          {"steps", report.steps},
          {"classes", run.classes},
          {"train_samples", run.train_samples},
          {"test_samples", run.test_samples}};
}

Json harm_json(const Harm& harm) {
  Json json{{"items", Json::array()}, {"unchecked", harm.unchecked}};
  for (const HarmItem& item : harm.items) {
    json["items"].push_back({{"result", harm_name(item.of)},
                             {"name", item.name},
                             {"step", item.step >= 0 ? Json(item.step) : Json(nullptr)},
                             {"error", report::number(item.error)},
                             {"tolerance", report::number(item.tolerance)},
                             {"severe", item.severe},
                             {"text", item.text}});
  }
  json["inconclusive"] = text_or_null(harm.inconclusive);
  return json;
}

Json lane_json(const Report& report, size_t index) {
  const LaneReport& lane = report.lanes[index];
  Json json;
  json["name"] = lane.name;
  json["backend"] = lane.backend;
  json["reference"] = lane.reference;
  json["state"] = verdict_name(lane.state);
  json["harm"] = lane.reference ? Json(nullptr) : harm_json(lane.harm);
  json["lost"] =
      lane.lost ? Json{{"step", lane.lost->step}, {"why", lane.lost->why}} : Json(nullptr);
  json["steps"] = lane.steps;
  json["skipped"] = lane.skipped;
  json["last_skipped"] = lane.last_skipped >= 0 ? Json(lane.last_skipped) : Json(nullptr);
  json["first_loss"] = report::number(lane.first_loss);
  json["last_loss"] = report::number(lane.last_loss);
  json["loss_gap"] = report::number(lane.loss_gap);
  json["output_error"] = report::number(lane.output_error);
  json["loss_scaling"] = text_or_null(lane.loss_scaling);
  json["last_loss_scale"] = report::number(lane.last_loss_scale);
  json["test_loss"] = report::number(lane.test_loss);
  json["test_accuracy"] = report.run.detects ? Json(nullptr) : report::number(lane.test_accuracy);
  json["test_map50"] = report.run.detects ? report::number(lane.test_accuracy) : Json(nullptr);
  json["test_auc"] = report::number(lane.test_auc);
  json["test_mean_iou"] = report::number(lane.test_mean_iou);
  json["plan"] = object_of(lane.plan_json);
  const std::string& proof = report.lane_proofs[index];
  json["proof"] = proof.empty() ? Json(nullptr) : object_of(proof);
  return json;
}

Json finding_json(const Report& report, size_t index) {
  const Finding& finding = report.findings[index];
  Json evidence = Json::object();
  for (const auto& [key, value] : finding.evidence) {
    evidence[key] = std::holds_alternative<double>(value) ? report::number(std::get<double>(value))
                                                          : Json(std::get<std::string>(value));
  }
  Json action;
  action["kind"] = action_name(finding.action.edit);
  action["layers"] = finding.action.layers;
  action["loss_scale"] = report::number(finding.action.edit.loss_scale());
  action["text"] = finding.action.text;

  Json json;
  json["id"] = report.finding_ids[index];
  json["rule"] = finding.rule;
  json["lane"] = lane_name(report, finding.lane);
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

Json cost_json(const std::optional<Cost>& cost) {
  if (!cost) return nullptr;
  Json json;
  json["weight_bytes"] = cost->weight_bytes;
  json["activation_bytes"] = cost->activation_bytes;
  json["weight_share"] = report::number(cost->weight_share);
  json["multiply_share"] = report::number(cost->multiply_share);
  json["followers"] = cost->followers;
  return json;
}

Json action_json(const Report& report, const ActionReport& action) {
  Json json;
  json["kind"] = action_name(action.edit);
  json["lane"] = lane_name(report, action.lane);
  json["layers"] = action.edit.fp32_layers();
  json["loss_scale"] = report::number(action.edit.loss_scale());
  json["text"] = action.text;
  json["effect"] = action.effect;
  json["cost"] = cost_json(action.cost);
  json["confidence"] = action.confidence;
  json["basis"] = action.basis;
  json["change_my_mind"] = action.change_my_mind;
  json["plan_of"] = action.of_cure ? Json(lane_name(report, *report.cure)) : Json(nullptr);
  return json;
}

Json site_json(const SiteReport& site) {
  Json exponents = Json::object();
  for (const auto& [exponent, count] : site.exponents) exponents[std::to_string(exponent)] = count;
  Json json;
  json["site"] = site.name;
  json["role"] = role_name(site.role);
  json["format"] = format_name(site.format);
  json["scale"] = site.scale.empty() ? Json(nullptr) : Json(site.scale);
  json["n"] = site.n;
  json["zero"] = site.zero;
  json["overflow"] = site.overflow;
  json["underflow"] = site.underflow;
  json["subnormal"] = site.subnormal;
  json["non_finite"] = site.non_finite();
  json["lost"] = site.lost;
  json["max_abs"] = report::number(site.max_abs);
  json["min_abs"] = report::number(site.min_abs);
  json["rms"] = report::number(site.rms);
  json["headroom_bits"] = report::number(site.headroom_bits);
  json["headroom_down_bits"] = report::number(site.headroom_down_bits);
  json["exponents"] = std::move(exponents);
  return json;
}

Json layer_json(const Report& report, const LayerReport& layer) {
  Json json;
  json["lane"] = lane_name(report, layer.lane);
  json["path"] = layer.path;
  json["op"] = layer.op;
  json["read"] = format_name(layer.read);
  json["write"] = format_name(layer.write);
  json["parameters"] = layer.parameters;
  json["advice"] = text_or_null(layer.advice);
  json["sites"] = Json::array();
  for (const SiteReport& site : layer.sites) json["sites"].push_back(site_json(site));
  return json;
}

Json errors_json(const Report& report, const ErrorReport& errors) {
  Json json;
  json["lane"] = lane_name(report, errors.lane);
  json["other"] = lane_name(report, errors.other);
  json["steps"] = errors.steps;
  json["first_step"] = errors.first_step >= 0 ? Json(errors.first_step) : Json(nullptr);
  json["first_site"] = text_or_null(errors.first_site);
  json["text"] = errors.text;
  json["sites"] = Json::array();
  for (const SiteErrorReport& site : errors.sites) {
    Json each;
    each["site"] = site.name;
    each["samples"] = site.samples;
    each["n"] = site.n;
    each["differing"] = site.differing;
    each["sign_flips"] = site.sign_flips;
    each["total"] = report::number(site.total);
    each["worst_total"] = report::number(site.worst_total);
    each["local_fp32"] = report::number(site.local_fp32);
    each["local_fp64"] = report::number(site.local_fp64);
    each["inherited"] = report::number(site.inherited);
    each["max_ulps"] = report::number(site.max_ulps);
    each["ulps"] = site.ulps;
    json["sites"].push_back(std::move(each));
  }
  return json;
}

Json sums_json(const Report& report, const SumReport& sums) {
  Json json;
  json["lane"] = lane_name(report, sums.lane);
  json["site"] = sums.name;
  json["format"] = format_name(sums.format);
  json["accumulation"] = sums.accumulation;
  json["samples"] = sums.samples;
  json["sums"] = sums.counts.sums;
  json["products"] = sums.counts.products;
  json["swamped"] = sums.counts.swamped;
  json["largest"] = report::number(sums.counts.largest);
  json["overflowed"] = sums.counts.overflowed;
  json["first_overflow"] =
      sums.counts.first_overflow >= 0 ? Json(sums.counts.first_overflow) : Json(nullptr);
  return json;
}

Json kernels_json(const Report& report, const KernelReport& kernels) {
  Json json;
  json["lane"] = lane_name(report, kernels.lane);
  json["steps"] = kernels.steps;
  json["text"] = kernels.text;
  json["sites"] = Json::array();
  for (const KernelSiteReport& site : kernels.sites) {
    Json each;
    each["site"] = site.name;
    each["op"] = site.op;
    each["format"] = format_name(site.format);
    each["samples"] = site.samples;
    each["n"] = site.n;
    each["differing"] = site.differing;
    each["max_ulps"] = report::number(site.max_ulps);
    each["worst"] = text_or_null(site.worst);
    each["beyond"] = site.beyond ? Json(*site.beyond) : Json(nullptr);
    each["kernel"] = text_or_null(site.kernel);
    each["order"] = text_or_null(site.order);
    each["sampled"] = site.sampled;
    each["explained"] = site.explained;
    each["unexplained"] = text_or_null(site.unexplained);
    json["sites"].push_back(std::move(each));
  }
  return json;
}

Json event_json(const Report& report, const EventReport& event) {
  Json json;
  json["lane"] = lane_name(report, event.lane);
  json["step"] = event.step;
  json["loss_scale"] = event.loss_scale > 0.0 ? report::number(event.loss_scale) : Json(nullptr);
  json["chain"] = Json::array();
  for (const EventLink& link : event.links) {
    json["chain"].push_back({{"name", link.name}, {"note", text_or_null(link.note)}});
  }
  return json;
}

Json steps_json(const LaneReport& lane, bool inference) {
  Json json;
  for (const char* key :
       {"step", "loss", "loss_scale", "skipped", "grad_norm", "accuracy", "learning_rate"}) {
    json[key] = Json::array();
  }
  for (const StepRow& row : lane.rows) {
    json["step"].push_back(row.step);
    json["loss"].push_back(inference ? measured(row.loss) : report::number(row.loss));
    json["loss_scale"].push_back(report::number(row.loss_scale));
    json["skipped"].push_back(row.skipped ? 1 : 0);
    json["grad_norm"].push_back(inference ? measured(row.grad_norm)
                                          : report::number(row.grad_norm));
    json["accuracy"].push_back(measured(row.accuracy));
    json["learning_rate"].push_back(measured(row.learning_rate));
  }
  json["thinned"] = lane.thinned();
  json["kept_every"] = lane.kept_every;
  return json;
}

Json recommendation_json(const Report& report) {
  if (!report.recommendation) return nullptr;
  const Recommendation& advice = *report.recommendation;
  Json json;
  json["lane"] = lane_name(report, advice.lane);
  json["layers"] = advice.edit.fp32_layers();
  json["plan"] = object_of(advice.plan_json);
  json["loss_scale"] = report::number(advice.edit.loss_scale());
  json["text"] = advice.text;
  const LaneReport* cure = report::cure_with(report, advice.lane, advice.edit.fp32_layers());
  json["cured_by"] = cure != nullptr ? Json(cure->name) : Json(nullptr);
  json["pytorch"] = report::fix_of(report, advice, FixTarget::pytorch);
  for (FixTarget target : all_fix_targets()) {
    if (target == FixTarget::plan) continue;  // that is "plan"
    json["fixes"][fix_target_name(target)] = report::fix_of(report, advice, target);
  }
  return json;
}

template <typename Item, typename Write>
Json list(const Report& report, const std::vector<Item>& items, Write write) {
  Json json = Json::array();
  for (const Item& item : items) json.push_back(write(report, item));
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
  for (size_t i = 0; i < report.lanes.size(); ++i) json["lanes"].push_back(lane_json(report, i));
  json["findings"] = Json::array();
  for (size_t i = 0; i < report.findings.size(); ++i) {
    json["findings"].push_back(finding_json(report, i));
  }
  json["gate"] = nullptr;  // with_gate() fills it in
  json["recommendation"] = recommendation_json(report);
  json["actions"] = list(report, report.actions, action_json);
  json["diagnosis"] =
      report.diagnosis ? Json::parse(diagnosis_json(*report.diagnosis)) : Json(nullptr);
  json["proof"] = report.proof ? Json::parse(proof_json(*report.proof)) : Json(nullptr);
  json["layers"] = list(report, report.layers, layer_json);
  json["errors"] = list(report, report.errors, errors_json);
  json["sums"] = list(report, report.sums, sums_json);
  json["kernels"] = list(report, report.kernels, kernels_json);
  json["events"] = list(report, report.events, event_json);
  json["steps"] = Json::object();
  for (const LaneReport& lane : report.lanes) {
    json["steps"][lane.name] = steps_json(lane, report.run.inference);
  }
  json["reproduce"] = report.reproduce;
  // Names may hold any bytes; invalid UTF-8 is replaced rather than refused.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace halfscope
