// SPDX-License-Identifier: MIT
// Expectations about command lines that are refused.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cli/bad_inputs.h"

namespace halfscope::test {

/// Expects one error line and at most one hint, and nothing on standard output.
inline void expect_refusal(const Outcome& outcome, int code, const std::string& what,
                           const std::string& hint = "") {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  const Words lines = lines_of(outcome.err);
  ASSERT_TRUE(lines.size() == 1 || lines.size() == 2) << outcome.err;
  EXPECT_TRUE(lines[0].starts_with("halfscope: ")) << lines[0];
  EXPECT_THAT(lines[0], testing::HasSubstr(what));
  EXPECT_TRUE(hint.empty() || lines.size() == 2) << "no hint: " << lines[0];
  if (lines.size() == 2) {
    EXPECT_TRUE(lines[1].starts_with("hint: ")) << lines[1];
    EXPECT_THAT(lines[1], testing::HasSubstr(hint));
  }
}

/// The arguments, the exit code, and parts of the message and the hint.
struct ErrorCase {
  Words words;
  int code;
  std::string what, hint{};
};

/// Expects all of these, and that no file is left or changed.
inline void expect_refusals(const Bench& bench, const std::vector<ErrorCase>& cases) {
  const auto before = contents(bench);
  for (const ErrorCase& each : cases) {
    std::string line;
    for (const std::string& word : each.words) line += " " + word;
    SCOPED_TRACE("halfscope" + line);
    expect_refusal(bench.run(each.words), each.code, each.what, each.hint);
    const auto after = contents(bench);
    EXPECT_EQ(after.size(), before.size());
    for (const auto& [file, text] : after) {
      const auto found = before.find(file);
      if (found == before.end()) {
        ADD_FAILURE() << file << " was left behind";
        std::filesystem::remove(file);
      } else {
        EXPECT_TRUE(text == found->second) << file << " has changed";
      }
    }
  }
}

}  // namespace halfscope::test
