// SPDX-License-Identifier: MIT
#include "cli/tasks/plan_lint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "analysis/plans/lint.h"
#include "analysis/rules/text.h"
#include "cli/args/planned_network.h"
#include "cli/tasks/plan_show.h"
#include "cli/terminal/output.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

Json finding_json(const Finding& finding) {
  return {{"name", finding.rule},
          {"severity", severity_name(finding.severity)},
          {"layer", finding.layer.empty() ? Json(nullptr) : Json(finding.layer)},
          {"text", finding.text},
          {"advice", finding.action.text.empty() ? Json(nullptr) : Json(finding.action.text)}};
}

int64_t count_of(const std::vector<Finding>& findings, Severity severity) {
  return std::count_if(findings.begin(), findings.end(),
                       [&](const Finding& each) { return each.severity == severity; });
}

std::string summary(const std::vector<Finding>& findings) {
  const int64_t errors = count_of(findings, Severity::error);
  const int64_t warnings = count_of(findings, Severity::warning);
  if (findings.empty()) return "no findings";
  const int64_t notes = static_cast<int64_t>(findings.size()) - errors - warnings;
  return counted(errors, "error") + ", " + counted(warnings, "warning") + ", " +
         counted(notes, "note");
}

}  // namespace

int plan_lint(const std::string& name, const Settings& settings) {
  const Model network = planned_network(settings);
  const Plan plan = planned(name, settings);
  std::optional<LintedTraining> training;
  if (network.loss != kNone) {
    training = LintedTraining{.config = {}, .scaler = {}};
    training->config.model = settings.model;
    training->config.optimizer = settings.optimizer;
    training->config.schedule = settings.schedule;
    about({"schedule"}, [&] { read_rates(training->config.schedule); });
    training->config.clip_norm = settings.clip_norm;
    training->config.clip_before_unscale = settings.clip_before_unscale;
    training->config.unscale_only = settings.unscale_only;
    training->config.average = settings.average;
    if (needs_loss_scaling(plan)) training->scaler = parse_loss_scale(usual_scaler(name));
    if (settings.loss_scale) training->scaler = *settings.loss_scale;
  }
  const std::vector<Finding> findings =
      lint_plan(network, plan, training, rule_flags(plan, settings));
  const int code = count_of(findings, Severity::error) > 0 ? 1 : 0;
  if (settings.json) {
    Json json{{"schema", "halfscope.plan-lint/1"},
              {"version", HALFSCOPE_VERSION},
              {"network", settings.model},
              {"plan", plan.name},
              {"findings", Json::array()}};
    for (const Finding& each : findings) json["findings"].push_back(finding_json(each));
    write_json(json);
    return code;
  }
  const TextStyle style = text_style(STDOUT_FILENO);
  std::string text = fmt::format("{} for {}: {}\n", plan.name, settings.model, summary(findings));
  for (const Finding& each : findings) {
    const char* severity = each.severity == Severity::info ? "note" : severity_name(each.severity);
    text +=
        "\n" + paragraph(fmt::format("{}[{}]: {}", severity, each.rule, each.text), style, 0, 2);
    if (!each.action.text.empty()) text += paragraph("fix: " + each.action.text, style, 2, 7);
  }
  write_out(text);
  return code;
}

}  // namespace halfscope
