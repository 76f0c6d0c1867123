// SPDX-License-Identifier: MIT
// What benchmarks share that compare with another program in the same run.
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

/// What a shell command printed.
struct OtherOutput {
  nlohmann::json json;  ///< of standard output, as json_of() has it
  std::string error;    ///< the last line of standard error that is not empty
};

inline OtherOutput output_of(const std::string& command) {
  std::string file = (std::filesystem::temp_directory_path() / "halfscope-XXXXXX").string();
  const int descriptor = mkstemp(file.data());
  if (descriptor < 0) return {nullptr, "cannot write to the folder of temporary files"};
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
