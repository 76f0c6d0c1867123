// SPDX-License-Identifier: MIT
#include "cli/commands/command.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/near_miss.h"

namespace halfscope {

void add_commands(CLI::App& app, Invocation& call) {
#define HALFSCOPE_COMMAND(name, heading) \
  add_##name(app, call);                 \
  app.get_subcommands({}).back()->group(heading);
#include "cli/commands/list.inc"
#undef HALFSCOPE_COMMAND
}

std::string command_name(const std::string& name) {
  constexpr std::pair<const char*, const char*> kOldNames[] = {
      {"recommend", "diagnose"}, {"export", "report"}, {"runs", "inspect"}};
  for (const auto& [old, now] : kOldNames) {
    if (name == old) return now;
  }
  return name;
}

int exit_code(std::span<const Finding> findings, const std::string& threshold) {
  if (threshold.empty()) return 0;
  std::vector<std::string> names;
  for (const Severity each : {Severity::info, Severity::warning, Severity::error}) {
    names.emplace_back(severity_name(each));
    if (threshold != names.back()) continue;
    const auto reached = [each](const Finding& finding) { return finding.severity >= each; };
    return std::any_of(findings.begin(), findings.end(), reached) ? 1 : 0;
  }
  throw usage_error("unknown severity '" + threshold + "'",
                    did_you_mean(threshold, names, "use info, warning or error"));
}

}  // namespace halfscope
