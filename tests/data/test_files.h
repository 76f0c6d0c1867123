// SPDX-License-Identifier: MIT
// Helpers for the tests of file readers: bytes to and from temporary files, the data that is not
// part of the repository, and a check for Errors.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "tests/temporary_folder.h"

namespace halfscope::test {

using Bytes = std::vector<uint8_t>;

inline void write_bytes(const std::filesystem::path& file, const Bytes& bytes) {
  std::ofstream stream(file, std::ios::binary | std::ios::trunc);
  stream.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(stream.good()) << file;
}

inline Bytes read_bytes(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  EXPECT_TRUE(stream.good()) << file;
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

/// A file made by numpy, committed next to this header.
inline std::filesystem::path committed(const std::string& name) {
  return std::filesystem::path(HALFSCOPE_SOURCE_DIR) / "tests/data/files" / name;
}

/// Large data that is not committed; the file or folder may not exist, then the test skips.
inline std::filesystem::path outside_data(const std::string& name) {
  const char* const folder = std::getenv("HALFSCOPE_TEST_DATA");
  if (folder != nullptr) return std::filesystem::path(folder) / name;
  return std::filesystem::path(HALFSCOPE_SOURCE_DIR) / "../shared/data" / name;
}

/// Expects an Error of this kind with a hint, whose message contains all parts.
inline void expect_error(const std::function<void()>& action, ErrorKind kind,
                         std::initializer_list<std::string_view> parts) {
  try {
    action();
  } catch (const Error& error) {
    const std::string what = error.what();
    for (const std::string_view part : parts) {
      EXPECT_NE(what.find(part), std::string::npos) << '"' << part << "\" not in: " << what;
    }
    EXPECT_EQ(error.kind(), kind) << what;
    EXPECT_FALSE(error.hint().empty()) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    return;
  }
  ADD_FAILURE() << "no Error";
}

}  // namespace halfscope::test
