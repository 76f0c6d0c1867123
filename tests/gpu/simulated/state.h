// SPDX-License-Identifier: MIT
// State of the simulated device; for its sources only. Functions of the runtime (runtime.cpp) put
// work on streams and run it when someone waits; kernels run in device.cpp.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <set>

#include "tests/gpu/simulated/device.h"

namespace halfscope::simulated {
using Work = std::function<void()>;
}  // namespace halfscope::simulated

/// A stream: what has not run yet, or what is being captured.
struct CUstream_st {
  std::deque<halfscope::simulated::Work> waiting{}, captured{};
  bool capturing = false, invalid = false, running = false;
};
/// An event: how often it was put on a stream, and how often one got there.
struct CUevent_st {
  CUstream_st* stream = nullptr;
  int64_t recorded = 0, reached = 0;
  int64_t time = 0;  ///< when it was reached last
};
/// A graph, and one that can be launched.
struct CUgraph_st {
  std::deque<halfscope::simulated::Work> work{};
};
struct CUgraphExec_st {
  std::deque<halfscope::simulated::Work> work{};
};

namespace halfscope::simulated {

inline constexpr size_t kArena = size_t{64} << 30, kPage = 4096;

struct Device {
  std::recursive_mutex mutex{};
  std::byte* arena = nullptr;
  size_t used = 0;                                  ///< bytes of the arena ever handed out
  std::map<std::byte*, size_t> live{}, released{};  ///< begin and pages' bytes; live: asked bytes
  std::map<const std::byte*, size_t> pinned{};
  std::set<CUstream_st*> streams{};
  std::set<CUevent_st*> events{};
  int64_t memory = int64_t{80} << 30, taken = 0;
  int64_t until_lost = std::numeric_limits<int64_t>::max();
  Launches launches{};
  Transfers transfers{};
  InCapture refused = InCapture::nothing;
  int64_t graphs = 0;  ///< of both kinds, not destroyed yet
  uint64_t draw = 1;
  int64_t clock = 0;  ///< kernels that ran
  int open = 0;       ///< holders of access to the arena
  cudaError_t last = cudaSuccess, lost = cudaSuccess;

  Device();
};

Device& device();

/// Allows this process to access the device's memory during its lifetime.
class Open {
 public:
  Open() {
    if (device().open++ == 0) protect(PROT_READ | PROT_WRITE);
  }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;
  ~Open() {
    if (--device().open == 0) protect(PROT_NONE);
  }

 private:
  static void protect(int how) {
    if (device().used > 0 && mprotect(device().arena, device().used, how) != 0) {
      violated("mprotect failed");
    }
  }
};

/// Remembers an error for cudaGetLastError().
cudaError_t said(cudaError_t error);

/// Returns the error of every call after the device is lost.
#define ALIVE()                                                     \
  const std::lock_guard<std::recursive_mutex> lock(device().mutex); \
  if (device().lost != cudaSuccess) return said(device().lost)

/// Calls that no capture allows.
#define NOT_IN_CAPTURE()                            \
  for (CUstream_st * each : device().streams) {     \
    if (!each->capturing) continue;                 \
    each->invalid = true;                           \
    return said(cudaErrorStreamCaptureUnsupported); \
  }                                                 \
  static_cast<void>(0)

/// Runs what waits until `done()`, and no further.
template <class F>
void run_until(CUstream_st& stream, const F& done) {
  const Open open;
  if (stream.running) violated("streams wait for each other");
  stream.running = true;
  while (!stream.waiting.empty() && !done()) {
    const Work next = std::move(stream.waiting.front());
    stream.waiting.pop_front();
    next();
  }
  stream.running = false;
}
void run_all(CUstream_st& stream);
/// Until the event was reached as it was recorded the `recorded`-th time.
void run_to(CUevent_st& event, int64_t recorded);

/// On a stream, or into what it captures.
cudaError_t put(CUstream_st* stream, Work work);

}  // namespace halfscope::simulated
