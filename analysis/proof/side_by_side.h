// SPDX-License-Identifier: MIT
// side_by_side: independent pieces of work on several threads, which share the cores that one of
// them would have had to itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace halfscope {

/// How many trials are worth running side by side on the CPU: one a core, eight at most, and no
/// more than fit into half of the memory that is free.
/// @param bytes that each of them takes, about; 0 if that is not known, which allows one
int trials_that_fit(int64_t bytes) noexcept;

/// Calls work(0) to work(n - 1), `at_once` of them at a time; each has its share of the threads
/// that OpenMP may use. `work` must not throw. With one at a time it runs on the calling thread.
void side_by_side(size_t n, int at_once, const std::function<void(size_t)>& work);

}  // namespace halfscope
