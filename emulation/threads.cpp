// SPDX-License-Identifier: MIT
#include "emulation/threads.h"

#include <omp.h>
#include <unistd.h>

#include <cstdlib>

namespace halfscope {

void limit_spinning(char** argv) noexcept {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  // One turn is a pause instruction: 40 to 140 cycles on current processors.
  if (setenv("GOMP_SPINCOUNT", "2000", 1) == 0) execv("/proc/self/exe", argv);
}

OneThread::OneThread() noexcept : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
OneThread::~OneThread() { omp_set_num_threads(before_); }

}  // namespace halfscope
