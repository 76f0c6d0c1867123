// SPDX-License-Identifier: MIT
// What benchmarks share that compare with another program in the same run.
#pragma once

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace halfscope {

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0.0 : values[values.size() / 2];
}

/// The JSON that a shell command prints; what is no object if it is not there or prints something
/// else.
inline nlohmann::json json_of(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return nullptr;
  std::string text;
  char buffer[256];
  while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) text += buffer;
  pclose(pipe);
  return nlohmann::json::parse(text, nullptr, false);
}

}  // namespace halfscope
