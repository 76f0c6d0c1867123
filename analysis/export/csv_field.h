// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

namespace halfscope {

/// Returns a field of a CSV file, quoted where RFC 4180 requires it.
inline std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace halfscope
