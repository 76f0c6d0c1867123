// SPDX-License-Identifier: MIT
// side_by_side: independent pieces of work on several threads, which share the cores that one of
// them would have had to itself.
#pragma once

#include <cstddef>
#include <functional>

namespace halfscope {

/// How many trainings or runs of a small network are worth running side by side on the CPU: one a
/// core, eight at most, since each has its own activations in memory.
int trials_at_once() noexcept;

/// Calls work(0) to work(n - 1), `at_once` of them at a time; each has its share of the threads
/// that OpenMP may use. `work` must not throw. With one at a time it runs on the calling thread.
void side_by_side(size_t n, int at_once, const std::function<void(size_t)>& work);

}  // namespace halfscope
