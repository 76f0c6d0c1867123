// SPDX-License-Identifier: MIT
#include "cli/command.h"

#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <set>

#include "core/error.h"

namespace halfscope {

int exit_code(std::span<const Finding> findings, const std::string& threshold) {
  if (threshold.empty()) return 0;
  for (const Severity each : {Severity::info, Severity::warning, Severity::error}) {
    if (threshold != severity_name(each)) continue;
    for (const Finding& finding : findings) {
      if (finding.severity >= each) return 1;
    }
    return 0;
  }
  throw usage_error("unknown severity " + threshold, "use info, warning or error");
}


std::string table_number(double value) {
  return std::isnan(value) ? "-" : fmt::format("{:.4g}", value);
}

void check_distinct(std::initializer_list<std::string> files) {
  std::set<std::filesystem::path> seen;
  for (const std::string& file : files) {
    if (file.empty() || seen.insert(std::filesystem::weakly_canonical(file)).second) continue;
    throw usage_error(file + " is named twice", "give every input and output a file of its own");
  }
}

std::string shell_quoted(const std::string& argument) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
  if (!argument.empty() && argument.find_first_not_of(kPlain) == std::string::npos) return argument;
  std::string quoted = "'";
  for (const char c : argument) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace halfscope
