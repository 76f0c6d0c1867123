// SPDX-License-Identifier: MIT
#include "analysis/finding.h"

#include "analysis/rules/text.h"

namespace halfscope {

const char* severity_name(Severity severity) noexcept {
  switch (severity) {
    case Severity::info:
      return "info";
    case Severity::warning:
      return "warning";
    case Severity::error:
      return "error";
  }
  return "unknown";
}

const char* action_name(const PlanEdit& edit) noexcept {
  if (!edit.fp32_layers().empty()) return "keep_fp32";
  if (edit.has(FixKind::weights_fp32)) return "format";
  if (edit.reduction()) return "reduce";
  return edit.loss_scale() ? "loss_scale" : "none";
}

Action keep_in_fp32(std::vector<std::string> layers) {
  std::string text = "Keep " + name_list(layers) + " in fp32.";
  return {.edit = PlanEdit::in_fp32(layers), .layers = std::move(layers), .text = std::move(text)};
}

std::string Finding::id(const RunView& run) const {
  std::string text = rule + ":" + run.lane(lane).name;
  if (!site.empty()) text += ":" + site;
  return text;
}

}  // namespace halfscope
