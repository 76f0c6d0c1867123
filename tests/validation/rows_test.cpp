// SPDX-License-Identifier: MIT
// The rows of docs/validation.md fail if a value leaves its accepted range, and a stale page is
// noticed.
#include "bench/validation/rows.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/error.h"

namespace halfscope::validation {
namespace {

Table table_of(std::vector<Row> rows) {
  return {.letter = 'Q', .title = "Title", .introduction = "Words.", .rows = std::move(rows)};
}

TEST(ValidationRows, ExactNeedsTheSameText) {
  EXPECT_TRUE(exact("a", "b", "65504, inf", "65504, inf").pass);
  EXPECT_FALSE(exact("a", "b", "65504, inf", "65504, 65504").pass);
}

TEST(ValidationRows, DiffersNeedsAnotherText) {
  EXPECT_TRUE(differs("a", "b", "2048", "4094", "c").pass);
  EXPECT_FALSE(differs("a", "b", "2048", "2048", "c").pass);
}

TEST(ValidationRows, WithinIncludesItsEnds) {
  EXPECT_TRUE(within("a", "b", "1", 0.5, {0.5, 1.0}).pass);
  EXPECT_TRUE(within("a", "b", "1", 1.0, {0.5, 1.0}).pass);
  EXPECT_FALSE(within("a", "b", "1", 0.499, {0.5, 1.0}).pass);
  EXPECT_FALSE(within("a", "b", "1", 1.001, {0.5, 1.0}).pass);
  EXPECT_FALSE(within("a", "b", "1", std::numeric_limits<double>::quiet_NaN(), {0.5, 1.0}).pass);
}

TEST(ValidationRows, WritesRangesInTheirUnit) {
  const Row row = within("a", "b", "2%", 0.02, {0.003, 0.07}, "", Unit::percent);
  EXPECT_EQ(row.ours, "2%");
  EXPECT_EQ(row.accepted, "0.3% to 7%");
}

TEST(ValidationRows, WritesPowersOfTwo) {
  EXPECT_EQ(power(0x1p-24), "2^-24");
  EXPECT_EQ(power(448.0), "448");
  EXPECT_EQ(power(0.0), "0");
}

TEST(ValidationRows, CountsAndShowsFailures) {
  const std::vector<Table> tables{
      table_of({exact("a", "b", "1", "1"), exact("c", "d", "1", "2", "Why.")})};
  EXPECT_EQ(failures(tables), 1);
  const std::string text = markdown(tables);
  EXPECT_NE(text.find("| Q1 | a | b | 1 | 1 | equal | PASS |"), text.npos) << text;
  EXPECT_NE(text.find("| Q2 | c | d | 1 | 2 | equal | **FAIL** |"), text.npos) << text;
  EXPECT_NE(text.find("- Q2: Why."), text.npos) << text;
  EXPECT_EQ(text.find("1 of 2 rows pass"), 0u) << text;
}

TEST(ValidationRows, EscapesCells) {
  const std::string text = markdown({table_of({exact("|x|", "b", "1", "1")})});
  EXPECT_NE(text.find("| Q1 | \\|x\\| | b |"), text.npos) << text;
}

TEST(ValidationRows, NamesCasesOfTheZooInOrder) {
  const Row nine = in_zoo("F9", exact("a", "b", "1", "1"));
  const Row ten = in_zoo("F10", exact("a", "b", "1", "1"));
  const std::string text = markdown({table_of({ten, nine, ten})});
  EXPECT_NE(text.find("F9 (Q2); F10 (Q1, Q3)."), text.npos) << text;
}

TEST(ValidationPage, ReplacesOnlyTheGeneratedPart) {
  const std::string page = std::string("Before\n") + kBegin + "\nold\n" + kEnd + "\nAfter\n";
  const std::string now = with_generated(page, "new");
  EXPECT_EQ(now, std::string("Before\n") + kBegin + "\nnew\n" + kEnd + "\nAfter\n");
  EXPECT_EQ(with_generated(now, "new"), now);
  EXPECT_THROW(with_generated("no marks", "new"), Error);
  EXPECT_THROW(with_generated(std::string(kEnd) + kBegin, "new"), Error);
}

TEST(ValidationPage, FindsTheFirstDifference) {
  EXPECT_EQ(first_difference("a\nb\n", "a\nb\n"), "");
  EXPECT_NE(first_difference("a\nb\n", "a\nc\n").find("2 differs\n  in the page: b"),
            std::string::npos);
  EXPECT_NE(first_difference("a\n", "a\nb\n").find("2 differs"), std::string::npos);
  EXPECT_NE(first_difference("a\n", "a"), "");
}

}  // namespace
}  // namespace halfscope::validation
