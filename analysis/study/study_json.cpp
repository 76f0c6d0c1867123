// SPDX-License-Identifier: MIT
// The report of a study as JSON (halfscope.study-report/1, docs/reference/study.md) and CSV.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/export/csv_field.h"
#include "analysis/report/json_number.h"
#include "analysis/study/study_facts.h"

namespace halfscope {
namespace {

using StudyJson = nlohmann::ordered_json;

StudyJson number_or_null(double value) {
  return std::isnan(value) ? StudyJson(nullptr) : report::number(value);
}

StudyJson text_if_any(const std::string& text) {
  return text.empty() ? StudyJson(nullptr) : StudyJson(text);
}

/// Returns the values of a trial or group by the names of their axes.
StudyJson settings_json(const StudyView& study, const std::vector<int>& places) {
  StudyJson json = StudyJson::object();
  for (size_t axis = 0; axis < places.size(); ++axis) {
    if (places[axis] < 0) continue;
    const StudyAxis& each = study.axes()[axis];
    json[each.name] = each.values[static_cast<size_t>(places[axis])];
  }
  return json;
}

StudyJson fan_json(const std::vector<LossBand>& fan) {
  StudyJson json{{"step", StudyJson::array()},           {"min", StudyJson::array()},
                 {"lower_quartile", StudyJson::array()}, {"median", StudyJson::array()},
                 {"upper_quartile", StudyJson::array()}, {"max", StudyJson::array()},
                 {"trials", StudyJson::array()}};
  for (const LossBand& band : fan) {
    json["step"].push_back(static_cast<int64_t>(band.step));
    json["min"].push_back(report::number(band.low));
    json["lower_quartile"].push_back(report::number(band.lower_quartile));
    json["median"].push_back(report::number(band.median));
    json["upper_quartile"].push_back(report::number(band.upper_quartile));
    json["max"].push_back(report::number(band.high));
    json["trials"].push_back(band.trials);
  }
  return json;
}

StudyJson group_json(const StudyView& study, const StudyFacts& facts, size_t index) {
  const StudyGroup& group = facts.groups[index];
  StudyJson json;
  json["name"] = group.name;
  json["baseline"] = group.baseline;
  json["settings"] = settings_json(study, group.places);
  json["planned"] = group.planned;
  json["finished"] = group.finished;
  json["failing"] = group.failing;
  json["not_trained"] = group.not_trained;
  json["ahead"] = group.ahead;
  json["may_be_noise"] = group.may_be_noise(study);
  json["failing_share"] = number_or_null(group.failing_share());
  json["interval"] = {group.interval.low, group.interval.high};
  json["reasons"] = StudyJson::array();
  for (const FailReason& reason : group.reasons) {
    json["reasons"].push_back({{"text", reason.text}, {"trials", reason.trials}});
  }
  json["loss"] = report::number(group.loss);
  json["gap"] = report::number(group.gap);
  json["least_gap"] = report::number(group.least_gap);
  json["worst_gap"] = report::number(group.worst_gap);
  json["test_loss"] = report::number(group.test_loss);
  json["accuracy"] = report::number(group.accuracy);
  json["bits"] = report::number(group.bits);
  json["pareto"] = group.on_front;
  json["cheapest"] = static_cast<int>(index) == facts.cheapest;
  json["first_layers"] = StudyJson::array();
  for (const FirstLayer& layer : group.first_layers) {
    json["first_layers"].push_back({{"layer", layer.layer},
                                    {"role", layer.role},
                                    {"trials", layer.trials},
                                    {"failing", layer.failing},
                                    {"median_step", report::number(layer.median_step)}});
  }
  json["losses"] = fan_json(group.fan);
  return json;
}

StudyJson trial_json(const StudyView& study, const StudyFacts& facts, const TrialRow& trial) {
  StudyJson json;
  json["trial"] = trial.trial;
  json["hash"] = trial.hash;
  json["group"] = facts.group_of(trial.trial);
  json["baseline"] = trial.baseline;
  json["settings"] = settings_json(study, trial.places);
  json["compared_with"] = trial.base ? StudyJson(*trial.base) : StudyJson(nullptr);
  json["status"] = trial_status_name(trial.status);
  json["fails"] = trial.done() ? StudyJson(trial.fails) : StudyJson(nullptr);
  json["why"] = trial.fails ? StudyJson(fail_reason(trial)) : text_if_any(trial.error);
  json["steps"] = trial.steps;
  json["skipped"] = trial.skipped;
  json["loss"] = trial.done() ? report::number(trial.loss) : StudyJson(nullptr);
  json["gap"] = report::number(trial_gap(trial));
  json["test_loss"] = number_or_null(trial.test_loss);
  json["accuracy"] = number_or_null(trial.accuracy);
  json["first_bad"] = trial.first_bad ? StudyJson{{"step", trial.first_bad->step},
                                                  {"layer", trial.first_bad->layer},
                                                  {"role", trial.first_bad->role}}
                                      : StudyJson(nullptr);
  json["cause"] = text_if_any(trial.cause);
  json["cause_layer"] = text_if_any(trial.cause_layer);
  json["headline"] = text_if_any(trial.headline);
  json["bits"] = number_or_null(trial.bits);
  json["run"] = trial.run;
  json["command"] = trial.command;
  return json;
}

std::string csv_number(const std::optional<double>& value) {
  if (!value) return "";  // not measured
  if (std::isnan(*value)) return "nan";
  return fmt::format("{}", *value);
}

std::optional<double> measured_value(double value) {
  return std::isnan(value) ? std::nullopt : std::optional(value);
}

}  // namespace

std::string study_json(const StudyView& study, const StudyFacts& facts) {
  StudyJson json;
  json["schema"] = "halfscope.study-report/1";
  json["version"] = study.info().version;
  json["name"] = facts.title;
  json["verdict"] = {{"state", verdict_name(facts.verdict.state)},
                     {"headline", facts.verdict.headline},
                     {"more", facts.verdict.more}};
  json["trials_planned"] = facts.planned;
  json["trials_finished"] = facts.finished;
  json["trials_failing"] = facts.failing;
  json["trials_not_trained"] = facts.not_trained;
  json["baseline"] = text_if_any(study.info().baseline);
  json["tolerance"] = report::number(study.info().tolerance);
  json["axes"] = StudyJson::array();
  for (const StudyAxis& axis : study.axes()) {
    json["axes"].push_back({{"name", axis.name}, {"values", axis.values}});
  }
  json["groups"] = StudyJson::array();
  for (size_t i = 0; i < facts.groups.size(); ++i) {
    json["groups"].push_back(group_json(study, facts, i));
  }
  json["trials"] = StudyJson::array();
  for (const TrialRow& trial : study.trials()) {
    json["trials"].push_back(trial_json(study, facts, trial));
  }
  // Names may hold any bytes; invalid UTF-8 is replaced rather than refused.
  return json.dump(2, ' ', false, StudyJson::error_handler_t::replace) + "\n";
}

std::string study_csv(const StudyView& study, const StudyFacts& facts) {
  std::string csv = "trial,hash,group,baseline";
  for (const StudyAxis& axis : study.axes()) csv += "," + csv_field(axis.name);
  csv +=
      ",status,fails,why,steps,skipped,loss,gap,test_loss,accuracy,first_bad_step,first_bad_layer,"
      "first_bad_role,cause,cause_layer,bits,run,command\n";
  for (const TrialRow& trial : study.trials()) {
    const int group = facts.group_of(trial.trial);
    csv += fmt::format("{},{},{},{}", trial.trial, csv_field(trial.hash),
                       csv_field(facts.groups[static_cast<size_t>(group)].name),
                       trial.baseline ? 1 : 0);
    for (size_t axis = 0; axis < study.axes().size(); ++axis) {
      csv += "," + csv_field(study.value(trial, axis));
    }
    const bool done = trial.done();
    csv += fmt::format(",{},{},{},{},{},{},{},{},{}", trial_status_name(trial.status),
                       !done         ? ""
                       : trial.fails ? "1"
                                     : "0",
                       csv_field(trial.fails ? fail_reason(trial) : trial.error), trial.steps,
                       trial.skipped, done ? csv_number(trial.loss) : "",
                       csv_number(trial_gap(trial)), csv_number(measured_value(trial.test_loss)),
                       csv_number(measured_value(trial.accuracy)));
    csv += trial.first_bad
               ? fmt::format(",{},{},{}", trial.first_bad->step, csv_field(trial.first_bad->layer),
                             csv_field(trial.first_bad->role))
               : ",,,";
    csv += fmt::format(",{},{},{},{},{}\n", csv_field(trial.cause), csv_field(trial.cause_layer),
                       csv_number(measured_value(trial.bits)), csv_field(trial.run),
                       csv_field(trial.command));
  }
  return csv;
}

}  // namespace halfscope
