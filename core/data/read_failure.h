// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <system_error>

namespace halfscope {

/// Returns why a file cannot be read, to end a message with: "file not found", "permission denied".
inline std::string read_failure(const std::error_code& code) {
  if (code == std::errc::no_such_file_or_directory) return "file not found";
  if (code == std::errc::permission_denied) return "permission denied";
  return code.message();
}

}  // namespace halfscope
