// SPDX-License-Identifier: MIT
#include "analysis/proof/side_by_side.h"

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace halfscope {

int trials_that_fit(int64_t bytes) noexcept {
  constexpr int64_t kMost = 8;
  if (bytes <= 0) return 1;
  const int64_t free =
      static_cast<int64_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  const int64_t cores = std::min<int64_t>(omp_get_max_threads(), kMost);
  return static_cast<int>(std::clamp<int64_t>(free / 2 / bytes, 1, std::max<int64_t>(cores, 1)));
}

void side_by_side(size_t n, int at_once, const std::function<void(size_t)>& work) {
  const size_t workers = std::min(n, static_cast<size_t>(std::max(at_once, 1)));
  if (workers < 2) {
    for (size_t i = 0; i < n; ++i) work(i);
    return;
  }
  const int threads = std::max(omp_get_max_threads() / static_cast<int>(workers), 1);
  std::atomic<size_t> next{0};
  const auto take = [&] {
    omp_set_num_threads(threads);  // for this thread only
    for (size_t i = next++; i < n; i = next++) work(i);
  };
  std::vector<std::jthread> pool;
  for (size_t i = 0; i < workers; ++i) pool.emplace_back(take);
}

}  // namespace halfscope
