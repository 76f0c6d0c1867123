// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace halfscope::test {

/// Writes a new file, since cutting an old one to nothing may wait for the disk.
inline void write_text(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::remove(file);
  std::ofstream(file, std::ios::binary) << text;
}

}  // namespace halfscope::test
