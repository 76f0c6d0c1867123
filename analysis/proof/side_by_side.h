// SPDX-License-Identifier: MIT
// side_by_side: runs independent pieces of work on several threads, which share the cores that one
// piece would otherwise have alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace halfscope {

/// Returns how many trials to run at once on the CPU: one per core, at most eight, and no more than
/// fit into half of the free memory.
/// @param bytes approximate memory of each trial; 0 if unknown, which allows one
int trials_that_fit(int64_t bytes) noexcept;

/// Calls work(0) to work(n - 1), `at_once` of them at a time. Each gets its share of the threads
/// that OpenMP may use. `work` must not throw. With one at a time it runs on the calling thread.
void side_by_side(size_t n, int at_once, const std::function<void(size_t)>& work);

}  // namespace halfscope
