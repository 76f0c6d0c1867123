// SPDX-License-Identifier: MIT
// Helpers for benchmarks that compare with another program in the same run.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace halfscope {

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0.0 : values[values.size() / 2];
}

/// Returns the JSON that a shell command prints. The result is not an object if the command is
/// missing or prints something else.
inline nlohmann::json json_of(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return nullptr;
  std::string text;
  char buffer[256];
  while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) text += buffer;
  pclose(pipe);
  return nlohmann::json::parse(text, nullptr, false);
}

/// Output of a shell command.
struct OtherOutput {
  nlohmann::json json;  ///< from standard output, see json_of()
  std::string error;    ///< the last non-empty line of standard error
};

inline OtherOutput output_of(const std::string& command) {
  std::string file = (std::filesystem::temp_directory_path() / "halfscope-XXXXXX").string();
  const int descriptor = mkstemp(file.data());
  if (descriptor < 0) return {nullptr, "cannot write to the folder for temporary files"};
  close(descriptor);
  OtherOutput output{json_of(command + " 2> '" + file + "'"), ""};
  std::ifstream errors(file);
  for (std::string line; std::getline(errors, line);) {
    if (line.find_first_not_of(" \t\r") != std::string::npos) output.error = line;
  }
  std::remove(file.c_str());
  return output;
}

}  // namespace halfscope
