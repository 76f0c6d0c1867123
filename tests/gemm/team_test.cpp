// SPDX-License-Identifier: MIT
#include "emulation/team.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <vector>

namespace halfscope {
namespace {

TEST(Team, EveryItemIsDoneOnce) {
  for (const int threads : {1, 2, 3, 7}) {
    for (const int64_t n : {0, 1, 2, 5, 16, 1001}) {
      std::vector<std::atomic<int>> parts(static_cast<size_t>(n)), turns(static_cast<size_t>(n));
      for_each_on(threads, n, [&](int64_t i) { ++parts[static_cast<size_t>(i)]; });
      for_each_in_turn(threads, n, 4, [&](int64_t i) { ++turns[static_cast<size_t>(i)]; });
      for (size_t i = 0; i < parts.size(); ++i) {
        EXPECT_EQ(parts[i], 1) << i << " of " << n << " on " << threads;
        EXPECT_EQ(turns[i], 1) << i << " of " << n << " on " << threads;
      }
    }
  }
}

TEST(Team, PartsFollowEachOther) {
  std::vector<int64_t> owner(100, -1);
  on_threads(3, [&](const Team& team) {
    team.for_part(100, [&](int64_t i) { owner[static_cast<size_t>(i)] = team.self; });
  });
  EXPECT_TRUE(std::is_sorted(owner.begin(), owner.end()));
  EXPECT_EQ(owner.front(), 0);
}

TEST(Team, WaitsForWhatOthersWrite) {
  for (int time = 0; time < 200; ++time) {
    std::vector<int64_t> written(64, 0);
    std::atomic<int> missing = 0;
    on_threads(4, [&](const Team& team) {
      for (int64_t round = 1; round <= 5; ++round) {
        team.for_part(64, [&](int64_t i) { written[static_cast<size_t>(i)] = round; });
        team.wait();
        for (const int64_t value : written) missing += value == round ? 0 : 1;
        team.wait();
      }
    });
    ASSERT_EQ(missing, 0);
  }
}

TEST(Team, WithinAnotherThereIsOneThread) {
  std::atomic<int> inner = 0, larger = 0;
  on_threads(2, [&](const Team&) {
    on_threads(2, [&](const Team& team) {
      ++inner;
      larger += team.size > 1 ? 1 : 0;
      team.wait();  // not for the threads of the outer call
    });
  });
  EXPECT_EQ(inner, 2);
  EXPECT_EQ(larger, 0);
}

}  // namespace
}  // namespace halfscope
