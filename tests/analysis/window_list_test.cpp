// SPDX-License-Identifier: MIT
// The policy that keeps a run file bounded, without a file: applies the instructions of add() to a
// list of bounds, as the recorder does to its rows.
#include "analysis/window_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace halfscope {
namespace {

constexpr WindowList::Limits kSmall{.windows = 16, .first_events = 4, .last_events = 4};

/// step -> step_count, as a table of rows.
class Rows {
 public:
  explicit Rows(const WindowList::Limits& limits) : list_(limits), limits_(limits) {}

  void add(int64_t step, bool event) {
    const WindowList::Change change = list_.add(step, event);
    ASSERT_EQ(change.window.last, step);
    if (change.grows) {
      ASSERT_EQ(rows_.rbegin()->first, change.window.step) << "only the newest one grows";
      ASSERT_FALSE(event);
      rows_[change.window.step] = change.window.step_count();
    } else {
      ASSERT_EQ(change.window.step, step);
      rows_[step] = 1;
    }
    if (change.merge) {
      const auto first = rows_.find(change.merge->step);
      ASSERT_NE(first, rows_.end());
      const auto second = std::next(first);
      ASSERT_EQ(second->first, change.merge->removed) << "neighbours";
      ASSERT_NE(second->first, change.window.step);
      first->second = second->first + second->second - first->first;
      ASSERT_EQ(first->second, change.merge->step_count);
      rows_.erase(second);
    }
    if (event) events_.push_back(step);
    steps_.push_back(step);
    check_bound();
  }

  void check_bound() {
    const auto kept = std::min<size_t>(
        events_.size(), static_cast<size_t>(limits_.first_events + limits_.last_events));
    ASSERT_LE(rows_.size(), static_cast<size_t>(limits_.windows) + kept);
  }

  /// Windows cover all steps without overlaps, and events that count have separate windows.
  void check() const {
    auto step = steps_.begin();
    for (const auto& [first, count] : rows_) {
      ASSERT_NE(step, steps_.end());
      ASSERT_EQ(*step, first);
      step = std::lower_bound(step, steps_.end(), first + count);
      ASSERT_EQ(*std::prev(step), first + count - 1) << "the last step is a recorded one";
    }
    ASSERT_EQ(step, steps_.end());
    const auto size = static_cast<int64_t>(events_.size());
    for (int64_t i = 0; i < size; ++i) {
      if (i >= limits_.first_events && i < size - limits_.last_events) continue;
      const auto row = rows_.find(events_[static_cast<size_t>(i)]);
      ASSERT_NE(row, rows_.end()) << "event " << i;
      ASSERT_EQ(row->second, 1) << "event " << i;
    }
  }

  const std::map<int64_t, int64_t>& rows() const { return rows_; }

 private:
  WindowList list_;
  WindowList::Limits limits_;
  std::map<int64_t, int64_t> rows_;
  std::vector<int64_t> steps_, events_;
};

TEST(WindowList, OneStepEachUpToTheLimit) {
  Rows rows(kSmall);
  for (int64_t step = 0; step < 16; ++step) rows.add(step, false);
  EXPECT_EQ(rows.rows().size(), 16u);
  for (const auto& [step, count] : rows.rows()) EXPECT_EQ(count, 1);
  rows.add(16, false);
  EXPECT_EQ(rows.rows().begin()->second, 2) << "the oldest are merged first";
  EXPECT_EQ(rows.rows().size(), 16u);
  rows.check();
}

TEST(WindowList, EquallyLongUpToAFactorOfTwo) {
  Rows rows(kSmall);
  for (int64_t step = 0; step < 5000; ++step) {
    rows.add(step, false);
    int64_t smallest = step + 1;
    int64_t largest = 0;
    for (auto row = rows.rows().begin(); std::next(row) != rows.rows().end(); ++row) {
      smallest = std::min(smallest, row->second);
      largest = std::max(largest, row->second);
    }
    ASSERT_LE(largest, 2 * smallest) << step;
    if (step > 100) {
      ASSERT_EQ(rows.rows().size(), 16u) << step;
    }
  }
  rows.check();
}

TEST(WindowList, RandomEventsAndGaps) {
  for (const int every : {1, 7}) {
    for (const uint32_t rarity : {1u, 2u, 3u, 20u, 500u}) {  // 1: every step is an event
      std::mt19937 random(rarity);
      Rows rows(kSmall);
      for (int64_t step = 0; step < int64_t{3000} * every; step += every) {
        rows.add(step, random() % rarity == 0);
        if (testing::Test::HasFatalFailure()) return;
        if (step % (7 * 97) == 0) rows.check();
      }
      rows.check();
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

/// A lane that overflows in every step must not squeeze the first steps into a few windows.
TEST(WindowList, NothingButEventsKeepsTheWholeCourse) {
  Rows rows(kSmall);
  constexpr int64_t kSteps = 4096;
  for (int64_t step = 0; step < kSteps; ++step) rows.add(step, true);
  rows.check();
  int64_t largest = 0;
  for (const auto& [step, count] : rows.rows()) largest = std::max(largest, count);
  EXPECT_LE(largest, 4 * kSteps / 16);
}

TEST(WindowList, NoRoomAtAll) {
  Rows one({.windows = 2, .first_events = 1, .last_events = 0});
  for (int64_t step = 0; step < 1000; ++step) {
    one.add(step, step % 3 == 0);
    if (testing::Test::HasFatalFailure()) return;
  }
  one.check();
}

}  // namespace
}  // namespace halfscope
