// SPDX-License-Identifier: MIT
// The house rules on the whole tree. A failure names every file and line that breaks one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/house/rules.h"

namespace halfscope::house {
namespace {

const std::vector<File>& tree() {
  static const std::vector<File> files = read_tree(HALFSCOPE_SOURCE_DIR);
  return files;
}

/// Runs `rule` on the files that `wanted` selects; fails with the list of violations.
template <class Wanted>
void expect_clean(Violations (*rule)(const File&), Wanted wanted) {
  int seen = 0;
  std::string list;
  for (const File& file : tree()) {
    if (!wanted(file)) continue;
    ++seen;
    for (const Violation& violation : rule(file)) list += "\n  " + violation.text();
  }
  EXPECT_GT(seen, 0) << "the rule looked at no file at all";
  EXPECT_TRUE(list.empty()) << list;
}

bool is_cpp_file(const File& file) { return is_cpp(file.path); }
bool is_header(const File& file) { return file.path.ends_with(".h"); }
bool is_any(const File&) { return true; }
/// CMake files need no licence line.
bool wants_spdx(const File& file) {
  return is_cpp(file.path) || is_bash(file) || file.text.starts_with("#!");
}

/// Runs a command on a file in the source directory and returns its exit status.
int run_on(const std::string& command, const std::string& path) {
  return std::system(("cd '" HALFSCOPE_SOURCE_DIR "' && " + command + " '" + path + "'").c_str());
}

TEST(Tree, HasTheFilesWeExpect) {
  for (const char* path : {"CMakeLists.txt", "core/error.h", "scripts/test", ".ci/run"}) {
    EXPECT_TRUE(std::any_of(tree().begin(), tree().end(), [&](const File& file) {
      return file.path == path;
    })) << path;
  }
}

TEST(Tree, IncludesFollowTheRooms) { expect_clean(check_includes, is_cpp_file); }
TEST(Tree, NoFileIsTooLong) { expect_clean(check_length, is_source); }
TEST(Tree, LicenceComesFirst) { expect_clean(check_spdx, wants_spdx); }
TEST(Tree, SourceIsAsciiWithoutTabs) { expect_clean(check_characters, is_source); }
TEST(Tree, NoPathOfOneMachine) { expect_clean(check_machine_paths, is_any); }
TEST(Tree, ElementaryFunctionsAreOurs) { expect_clean(check_elementary_functions, is_cpp_file); }
TEST(Tree, HeadersAreGuarded) { expect_clean(check_pragma_once, is_header); }

TEST(Tree, TextsArePlainEnglish) { expect_clean(check_phrases, is_cpp_file); }
TEST(Tree, CommentsAreSentences) { expect_clean(check_comment_beginnings, is_cpp_file); }

TEST(Tree, OwnHeadersComeFirst) {
  const auto check = [](const File& file) { return check_own_header_first(file, tree()); };
  expect_clean(check, is_cpp_file);
}

TEST(Scripts, ParseAsBash) {
  for (const File& file : tree()) {
    if (!is_bash(file)) continue;
    EXPECT_EQ(run_on("bash -n", file.path), 0) << file.path;
  }
}

TEST(Scripts, BadOnesAreCaught) {
  EXPECT_NE(std::system("bash -n -c 'if true; then' 2>/dev/null"), 0);
}

TEST(Scripts, PassShellcheck) {
  if (std::system("command -v shellcheck >/dev/null") != 0) {
    GTEST_SKIP() << "shellcheck is not installed";
  }
  for (const File& file : tree()) {
    if (!is_bash(file)) continue;
    EXPECT_EQ(run_on("shellcheck -x", file.path), 0) << file.path;
  }
}

}  // namespace
}  // namespace halfscope::house
