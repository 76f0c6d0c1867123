// SPDX-License-Identifier: MIT
// Helpers for the tests of file readers: bytes to and from temporary files, the data that is not
// part of the repository, and a check for Errors.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

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

namespace halfscope::test {

using Bytes = std::vector<uint8_t>;

/// A temporary folder for the running test, removed at its end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    const testing::TestInfo& info = *testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::path(testing::TempDir()) /
            ("halfscope_" + std::string(info.test_suite_name()) + "_" + info.name() + "_" +
             std::to_string(getpid()));  // two builds may be tested at the same time
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }

  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

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
