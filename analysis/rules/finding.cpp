// SPDX-License-Identifier: MIT
#include "analysis/finding.h"

#include "analysis/rules/text.h"

namespace halfscope {
namespace {

std::string change_text(const Change& change) {
  switch (change.kind) {
    case FixKind::operator_fp32:
      return "keep " + change.path + " in fp32";
    case FixKind::store_fp32:
      return "keep the result of " + change.path + " in fp32";
    case FixKind::accumulate_fp32:
      return "sum in fp32 in " + change.path;
    case FixKind::constant:
      return "replace the constant that " + change.path + " reads by one that the format has";
    case FixKind::loss_scale:
      return "use a loss scale of " + scale_text(change.value);
    case FixKind::reduce_order:
    case FixKind::reduce_fp32:
    case FixKind::config:
      return std::string(fix_text(change.kind)) +
             (change.text.empty() ? "" : " (" + change.text + ")");
    case FixKind::format:
      return "use " + change.text + " in place of the lane's narrow formats";
    case FixKind::stochastic_rounding:
      return "round " + change.text + " stochastically";
    default:
      return fix_text(change.kind);
  }
}

}  // namespace

std::string edit_text(const PlanEdit& edit) {
  std::vector<std::string> parts;
  const std::vector<std::string> layers = edit.fp32_layers();
  if (!layers.empty()) parts.push_back("keep " + name_list(layers) + " in fp32");
  for (const Change& change : edit.changes) {
    if (change.kind != FixKind::operator_fp32) parts.push_back(change_text(change));
  }
  return name_list(parts);
}

std::string edit_sentence(const PlanEdit& edit) {
  std::string text = edit_text(edit) + ".";
  text[0] = static_cast<char>(text[0] - 'a' + 'A');  // every part starts with a small letter
  return text;
}

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
