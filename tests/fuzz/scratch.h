// SPDX-License-Identifier: MIT
// A folder for fuzz targets of readers that open a file by its name.
#pragma once

#include <stdlib.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

namespace halfscope::fuzz {

/// Returns a folder of this process, which is removed when it ends normally.
inline const std::filesystem::path& scratch_folder() {
  static const std::filesystem::path folder = [] {
    const std::filesystem::path memory = "/dev/shm";  // writing to a disk takes longer than reading
    const std::filesystem::path parent =
        std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path();
    std::string name = (parent / "halfscope-fuzz-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    return std::filesystem::path(name);
  }();
  static const int removes = std::atexit([] { std::filesystem::remove_all(scratch_folder()); });
  (void)removes;
  return folder;
}

/// Writes a file of the folder and returns its path.
inline std::filesystem::path scratch_file(const std::string& name, std::span<const uint8_t> bytes) {
  std::filesystem::path file = scratch_folder() / name;
  std::ofstream(file, std::ios::binary | std::ios::trunc)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  return file;
}

}  // namespace halfscope::fuzz
