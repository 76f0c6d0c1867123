// SPDX-License-Identifier: MIT
#include "core/memory.h"

#include <cstdlib>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace halfscope {

void keep_freed_memory() noexcept {
#if defined(__GLIBC__)
  // In bytes; tensors larger than kLargest always go back.
  constexpr int kMostKept = 256 << 20, kLargest = 32 << 20;
  mallopt(M_TRIM_THRESHOLD, kMostKept);
  mallopt(M_MMAP_THRESHOLD, kLargest);
#endif
}

void give_back_memory() noexcept {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

}  // namespace halfscope
