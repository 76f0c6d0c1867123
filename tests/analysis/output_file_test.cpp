// SPDX-License-Identifier: MIT
#include "analysis/output_file.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "core/error.h"
#include "tests/analysis/sample_run.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;
using namespace test;  // NOLINT: the helpers of these tests
using testing::HasSubstr;

int64_t file_count(const fs::path& folder) {
  return std::distance(fs::directory_iterator(folder), {});
}

TEST(OutputFile, WritesAndReplacesOnlyWhenAsked) {
  const TemporaryFolder folder;
  const fs::path file = folder / "report.md";
  write_output_file(file, std::string("a\0b\n", 4), false);
  EXPECT_EQ(read_text(file), std::string("a\0b\n", 4));
  try {
    write_output_file(file, "new", false);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), HasSubstr("'" + file.string() + "' already exists"));
    EXPECT_THAT(error.hint(), HasSubstr("--force"));
  }
  EXPECT_NE(read_text(file), "new");
  fs::permissions(file, fs::perms(0600));
  write_output_file(file, "new", true);
  EXPECT_EQ(read_text(file), "new");
  EXPECT_EQ(fs::status(file).permissions(), fs::perms(0600));
  EXPECT_EQ(file_count(folder.path()), 1);
}

TEST(OutputFile, DashIsAName) {
  const TemporaryFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  write_output_file("-", "text", false);
  EXPECT_EQ(read_text("-"), "text");
  fs::current_path(before);
}

TEST(OutputFile, WrongNames) {
  const TemporaryFolder folder;
  EXPECT_THROW(write_output_file("", "x", false), Error);
  EXPECT_THROW(write_output_file(folder.path(), "x", true), Error);
  EXPECT_THROW(write_output_file(folder / "missing/x", "x", true), Error);
  EXPECT_THROW(check_output_file(folder / "missing/x", false), Error);
  EXPECT_NO_THROW(check_output_file(folder / "x", false));
  EXPECT_EQ(file_count(folder.path()), 0);
}

TEST(OutputFile, LinksAndDevices) {
  const TemporaryFolder folder;
  write_text(folder / "real.md", "old");
  fs::create_symlink("real.md", folder / "link.md");
  write_output_file(folder / "link.md", "new", true);
  EXPECT_TRUE(fs::is_symlink(folder / "link.md"));
  EXPECT_EQ(read_text(folder / "real.md"), "new");
  fs::create_symlink("away/x", folder / "dangling.md");
  try {
    check_output_file(folder / "dangling.md", true);
    ADD_FAILURE() << "a link into a folder that does not exist";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("whose folder does not exist"));
  }
  fs::create_directory(folder / "away");
  write_output_file(folder / "dangling.md", "y", false);
  EXPECT_EQ(read_text(folder / "away/x"), "y");
  write_output_file("/dev/null", "x", true);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_THROW(write_output_file("/dev/full", "x", false), Error);
}

TEST(OutputFile, FullDiskKeepsTheOldFile) {
  const TemporaryFolder folder;
  const fs::path file = folder / "report.md";
  write_text(file, "old");
  const int code = in_child([&file] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit size{10'000, 10'000};
    if (::setrlimit(RLIMIT_FSIZE, &size) != 0) return 1;
    try {
      write_output_file(file, std::string(50'000, 'x'), true);
    } catch (const Error& error) {
      return error.hint().empty() ? 2 : 42;
    }
    return 0;
  });
  EXPECT_EQ(code, 42);
  EXPECT_EQ(read_text(file), "old");
  EXPECT_EQ(file_count(folder.path()), 1);
}

TEST(OutputFile, ReadOnlyFolder) {
  const TemporaryFolder folder;
  fs::permissions(folder.path(), fs::perms(0555));
  const int code = in_unprivileged_child([&folder] {
    try {
      write_output_file(folder / "x", "x", false);
    } catch (const Error& error) {
      return std::string(error.what()).find("Permission") == std::string::npos ? 2 : 42;
    }
    return 0;
  });
  if (code == 77) GTEST_SKIP() << "may not change the user";
  EXPECT_EQ(code, 42);
}

}  // namespace
}  // namespace halfscope
