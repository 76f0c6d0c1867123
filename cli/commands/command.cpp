// SPDX-License-Identifier: MIT
#include "cli/commands/command.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
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
  throw usage_error("unknown severity " + threshold,
                    did_you_mean(threshold, names, "use info, warning or error"));
}

void check_distinct(std::span<const std::string> files) {
  std::set<std::filesystem::path> seen;
  for (const std::string& file : files) {
    if (file.empty()) continue;
    // absolute(): weakly_canonical() leaves a name that is not there yet relative.
    std::error_code ignored;
    const std::filesystem::path path = std::filesystem::absolute(file, ignored);
    std::filesystem::path canonical = std::filesystem::weakly_canonical(path, ignored);
    if (!seen.insert(canonical.empty() ? path : canonical).second) {
      throw usage_error(file + " is named twice", "give every input and output a file of its own");
    }
  }
}

void check_distinct(std::initializer_list<std::string> files) {
  check_distinct(std::span(files.begin(), files.size()));
}

}  // namespace halfscope
