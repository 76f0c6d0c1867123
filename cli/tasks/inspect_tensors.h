// SPDX-License-Identifier: MIT
// `halfscope inspect` of files of tensors: what they would lose in reduced formats.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace halfscope {

struct InspectOptions {
  std::string formats = "fp16,bf16,e4m3fn";
  std::optional<int> top{};  ///< tensors to list; all if not given
  std::string csv{};
  int threads = 0;  ///< 0: all cores
  bool force = false;
};

/// Returns whether `path` is a folder or a file of tensors.
bool is_tensor_path(const std::string& path);

/// Prints what every tensor in files and folders would lose. Returns the exit code.
int inspect_tensors(const std::vector<std::string>& paths, const InspectOptions& options,
                    bool json);

}  // namespace halfscope
