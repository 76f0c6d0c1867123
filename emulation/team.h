// SPDX-License-Identifier: MIT
// Work shared by OpenMP threads. Even for one thread, libgomp makes a system call at the end of a
// parallel region and at every barrier, which can take longer than the work of a small network's
// operator. Here one thread just does the work.
#pragma once

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace halfscope {

/// The threads of one call of on_threads().
struct Team {
  int64_t size, self;

  /// Waits for the other threads.
  void wait() const {
    if (size == 1) return;
#pragma omp barrier
  }

  /// Calls f(i) for this thread's part of [0, n). Threads have consecutive parts of nearly equal
  /// length.
  template <class F>
  void for_part(int64_t n, const F& f) const {
    const int64_t end = n * (self + 1) / size;
    for (int64_t i = n * self / size; i < end; ++i) f(i);
  }
};

/// Calls f(team) on `threads` threads at once and returns when all have returned. There may be
/// fewer threads; there is one within another call of on_threads().
template <class F>
void on_threads(int threads, const F& f) {
  if (threads <= 1 || omp_in_parallel() != 0) {
    f(Team{1, 0});
    return;
  }
#pragma omp parallel num_threads(threads)
  f(Team{omp_get_num_threads(), omp_get_thread_num()});
}

/// Calls f(i) for all i in [0, n), in consecutive parts of nearly equal length, one for each of
/// `threads` threads.
template <class F>
void for_each_on(int threads, int64_t n, const F& f) {
  on_threads(threads, [&](const Team& team) { team.for_part(n, f); });
}

/// The same for work of unequal length: a thread that is free takes the next `together` ones.
template <class F>
void for_each_in_turn(int threads, int64_t n, int64_t together, const F& f) {
  std::atomic<int64_t> next = 0;
  on_threads(threads, [&](const Team&) {
    for (int64_t first = next.fetch_add(together); first < n; first = next.fetch_add(together)) {
      for (int64_t i = first; i < std::min(first + together, n); ++i) f(i);
    }
  });
}

}  // namespace halfscope
