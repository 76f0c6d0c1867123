// SPDX-License-Identifier: MIT
#include "analysis/finding.h"

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

const char* action_name(Action::Kind kind) noexcept {
  switch (kind) {
    case Action::Kind::none:
      return "none";
    case Action::Kind::keep_fp32:
      return "keep_fp32";
    case Action::Kind::loss_scale:
      return "loss_scale";
    case Action::Kind::format:
      return "format";
  }
  return "unknown";
}

std::string Finding::id(const RunView& run) const {
  std::string text = rule + ":" + run.lane(lane).name;
  if (!site.empty()) text += ":" + site;
  return text;
}

}  // namespace halfscope
