// SPDX-License-Identifier: MIT
// Watches the memory that kernels' bodies touch on the host. The bodies are compiled with
// -fsanitize=thread, which calls a function before every access to memory, and with
// -finstrument-functions. watch.cpp defines these functions; no sanitizer is linked. So every
// access is seen, through In and Out as well as through plain pointers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace halfscope::count {

/// One access to device memory.
struct Access {
  uint64_t offset : 48;  ///< from the beginning of device memory
  uint64_t bytes : 15;
  uint64_t writes : 1;
  const void* code;  ///< the instruction
};

struct Watch {
  uintptr_t device = 0, device_bytes = 0;
  uintptr_t shared = 0, shared_bytes = 0;  ///< shared memory of the current block
  // Since the last clear():
  std::vector<Access> accesses{};
  int64_t shared_accesses = 0;
  /// Calls of exp, log, tanh and the like. Parts of a call stand for cheaper functions.
  double functions = 0.0;

  void clear() {
    accesses.clear();
    shared_accesses = 0;
    functions = 0.0;
  }
};

/// The one watch of this program, which has one thread.
extern Watch watch;

/// Enclose what is watched. Not inline, because the compiler does not know that bodies call us.
void begin_watching();
void end_watching();

}  // namespace halfscope::count
