// SPDX-License-Identifier: MIT
// State of the simulated device; for its sources only. Functions of the runtime (runtime.cpp) put
// work on streams and run it when someone waits; kernels run in device.cpp.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "tests/gpu/simulated/device.h"

namespace halfscope::simulated {

/// How much work of each stream is done before something else begins.
using Clock = std::map<const CUstream_st*, int64_t>;

/// An allocation that work uses, by its number: another one may get the same address later.
struct Access {
  int64_t allocation;
  bool writes;
};

struct Work {
  std::function<void()> run;
  std::vector<Access> accesses{};
  const void* source = nullptr;  ///< pinned memory that it reads, this many bytes of it
  size_t bytes = 0;
  uint64_t sum = 0;  ///< of those bytes, when it was put on its stream
};

}  // namespace halfscope::simulated

/// A stream: what has not run yet, or what is being captured.
struct CUstream_st {
  std::deque<halfscope::simulated::Work> waiting{}, captured{};
  halfscope::simulated::Clock clock{};  ///< before the next work that is put on it
  bool capturing = false, invalid = false, running = false;
  std::thread::id capturer{};  ///< the thread whose calls the capture restricts
};
/// An event: how often it was put on a stream, and how often one got there.
struct CUevent_st {
  CUstream_st* stream = nullptr;
  halfscope::simulated::Clock clock{};  ///< of the stream, when it was put there last
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

struct Allocation {
  size_t bytes;    ///< as asked for
  int64_t number;  ///< different for each
};
/// When a stream last used an allocation, by its own clock.
struct Uses {
  int64_t read = 0, written = 0;
};

struct Device {
  std::recursive_mutex mutex{};
  std::byte* arena = nullptr;
  size_t used = 0;                          ///< bytes of the arena ever handed out
  std::map<std::byte*, Allocation> live{};  ///< by where they begin
  std::map<std::byte*, size_t> released{};  ///< likewise, with the bytes of their pages
  std::map<int64_t, std::map<const CUstream_st*, Uses>> uses{};  ///< of allocations, by number
  int64_t allocations = 0;                                       ///< ever made
  Clock host{};                                                  ///< what the host waited for
  std::map<const std::byte*, size_t> pinned{};
  std::set<CUstream_st*> streams{};
  std::set<CUevent_st*> events{};
  int64_t memory = int64_t{80} << 30, taken = 0;
  int64_t until_lost = std::numeric_limits<int64_t>::max();
  Launches launches{};
  Transfers transfers{};
  InCapture refused = InCapture::nothing;
  int64_t graphs = 0;  ///< of both kinds, not destroyed yet
  int count = 1;       ///< devices that the runtime lists; they are all this one
  uint64_t draw = 1;
  int64_t clock = 0;  ///< ms: kernels that ran, and what pinning memory took
  int open = 0;       ///< holders of access to the arena
  cudaError_t last = cudaSuccess, lost = cudaSuccess;
  std::atomic<bool> nccl_hangs = false;

  Device();
};

Device& device();

/// Allows this process to access the device's memory, or a part of it, during its lifetime.
class Open {
 public:
  Open() : Open(device().arena, device().used) {}
  Open(std::byte* begin, size_t bytes) : begin_(begin), bytes_(bytes) {
    if (device().open++ == 0) protect(PROT_READ | PROT_WRITE);
  }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;
  ~Open() {
    if (--device().open == 0) protect(PROT_NONE);
  }

 private:
  void protect(int how) const {
    if (bytes_ > 0 && mprotect(begin_, bytes_, how) != 0) violated("mprotect failed");
  }

  std::byte* const begin_;
  const size_t bytes_;
};

/// Remembers an error for cudaGetLastError().
cudaError_t said(cudaError_t error);

/// Returns the error of every call after the device is lost.
#define ALIVE()                                                     \
  const std::lock_guard<std::recursive_mutex> lock(device().mutex); \
  if (device().lost != cudaSuccess) return said(device().lost)

/// Calls that no capture of this thread allows.
#define NOT_IN_CAPTURE()                                                            \
  for (CUstream_st * each : device().streams) {                                     \
    if (!each->capturing || each->capturer != std::this_thread::get_id()) continue; \
    each->invalid = true;                                                           \
    return said(cudaErrorStreamCaptureUnsupported);                                 \
  }                                                                                 \
  static_cast<void>(0)

/// Checks that the pinned memory that work reads is as it was when the work was put on its stream.
void check_source(const Work& work);

/// Later work of `clock` begins after what `other` covers.
void join(Clock& clock, const Clock& other);

/// Runs what waits until `done()`, and no further.
template <class F>
void run_until(CUstream_st& stream, const F& done) {
  if (stream.running) violated("streams wait for each other");
  if (stream.waiting.empty()) return;
  const Open open;
  stream.running = true;
  while (!stream.waiting.empty() && !done()) {
    const Work next = std::move(stream.waiting.front());
    stream.waiting.pop_front();
    check_source(next);
    next.run();
  }
  stream.running = false;
}
void run_all(CUstream_st& stream);
/// Until the event was reached as it was recorded the `recorded`-th time.
void run_to(CUevent_st& event, int64_t recorded);

/// Puts work on a stream, or into what it captures. On a stream, ends the program if the work uses
/// freed memory, or memory that another stream uses with no event or wait in between.
cudaError_t put(CUstream_st* stream, Work work);

/// Returns the number of the allocation that contains `memory` or ends there.
int64_t allocation_of(const void* memory);

}  // namespace halfscope::simulated
