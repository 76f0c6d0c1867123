// SPDX-License-Identifier: MIT
#include "tests/gpu/simulated/device.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "core/numeric/rng.h"

namespace halfscope::simulated {
namespace {

using Work = std::function<void()>;

constexpr size_t kArena = size_t{64} << 30, kUnit = 256, kPage = 4096;
constexpr size_t kStack = size_t{64} << 10;
constexpr unsigned char kFresh = 0xff, kFence = 0xa5;  // 0xff...: NaN in every format but e4m3

}  // namespace
}  // namespace halfscope::simulated

/// A stream: what has not run yet, or what is being captured.
struct CUstream_st {
  std::vector<halfscope::simulated::Work> waiting{}, captured{};
  bool capturing = false, invalid = false;
};
/// A graph, and one that can be launched.
struct CUgraph_st {
  std::vector<halfscope::simulated::Work> work{};
};
struct CUgraphExec_st {
  std::vector<halfscope::simulated::Work> work{};
};

namespace halfscope::simulated {
namespace {

struct Device {
  std::recursive_mutex mutex{};
  std::byte* arena = nullptr;
  size_t used = 0;                                  ///< bytes of the arena ever handed out
  std::map<std::byte*, size_t> live{}, released{};  ///< begin and pages' bytes; live: asked bytes
  std::map<const std::byte*, size_t> pinned{};
  std::set<CUstream_st*> streams{};
  int64_t memory = int64_t{80} << 30, taken = 0;
  int64_t until_lost = std::numeric_limits<int64_t>::max();
  Launches launches{};
  int64_t graphs = 0;  ///< of both kinds that are not destroyed
  uint64_t draw = 1;
  int open = 0;  ///< of those who may touch the arena
  cudaError_t last = cudaSuccess, lost = cudaSuccess;

  Device() {
    void* const place =
        mmap(nullptr, kArena, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED) violated("no room for the memory of the simulated device");
    arena = static_cast<std::byte*>(place);
    if (const char* const text = std::getenv("HALFSCOPE_SIMULATED_MEMORY"))
      memory = std::atoll(text);
    if (const char* const text = std::getenv("HALFSCOPE_SIMULATED_LOST_AFTER")) {
      until_lost = std::atoll(text);
    }
  }
};

Device& device() {
  static Device* const one = new Device;  // streams may outlive everything else
  return *one;
}

size_t pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
size_t units(size_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

/// As long as it lives, this process may touch the device's memory.
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

cudaError_t said(cudaError_t error) {
  if (error != cudaSuccess) device().last = error;
  return error;
}

/// The error that every call gives once the device is lost.
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

/// The bytes behind an allocation, up to the page's end, are as they were.
void check_fence(std::byte* begin, size_t bytes) {
  const auto kept = [](std::byte b) { return b == std::byte{kFence}; };
  if (!std::all_of(begin + units(bytes), begin + pages(bytes), kept)) {
    violated("a kernel wrote behind its memory");
  }
}

void run_all(std::vector<Work>& work) {
  const Open open;
  // What runs may not add to what runs.
  for (const Work& each : std::exchange(work, {})) each();
}

cudaError_t put(CUstream_st* stream, Work work) {
  if (stream == nullptr) violated("the default stream, which waits for all others, is used");
  if (device().streams.count(stream) == 0) violated("a stream that is gone is used");
  (stream->capturing ? stream->captured : stream->waiting).push_back(std::move(work));
  return cudaSuccess;
}

bool is_pinned(const void* host, size_t bytes) {
  const auto* const at = static_cast<const std::byte*>(host);
  auto after = device().pinned.upper_bound(at);
  return after != device().pinned.begin() &&
         at + bytes <= std::prev(after)->first + std::prev(after)->second;
}

// Threads of a block: the first one runs on a stack of its own. If it never comes to a barrier, the
// others are plain calls; if it does, each gets a stack, and they go on in turns.

struct Fiber {
  std::unique_ptr<std::byte[]> stack = std::make_unique<std::byte[]>(kStack);
  ucontext_t context{};
  jmp_buf where{};
  bool started = false, ended = false;
};

struct Block {
  std::vector<std::unique_ptr<Fiber>> fibers{};
  jmp_buf scheduler{};
  ucontext_t scheduler_context{};
  Fiber* current = nullptr;
  const Work* kernel = nullptr;
};

Block& block() {
  static Block one;
  return one;
}

/// One kernel after the other.
void fiber_main() {
  for (;;) {
    (*block().kernel)();
    Fiber& self = *block().current;
    self.ended = true;
    if (_setjmp(self.where) == 0) _longjmp(block().scheduler, 1);
  }
}

/// Until its next barrier, or its end.
void go_on(Fiber& fiber) {
  block().current = &fiber;
  if (_setjmp(block().scheduler) != 0) {
    block().current = nullptr;
    return;
  }
  if (fiber.started) _longjmp(fiber.where, 1);
  fiber.started = true;
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStack;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, fiber_main, 0);
  setcontext(&fiber.context);
}

/// All of [0, n) in some order, another one each time.
std::vector<unsigned> shuffled(unsigned n) {
  std::vector<unsigned> order(n);
  std::iota(order.begin(), order.end(), 0u);
  for (unsigned i = n; i > 1; --i) {
    std::swap(order[i - 1], order[splitmix64(device().draw++) % i]);
  }
  return order;
}

void run_block(const Work& kernel, const std::vector<unsigned>& threads) {
  Block& here = block();
  here.kernel = &kernel;
  while (here.fibers.size() < threads.size()) here.fibers.push_back(std::make_unique<Fiber>());
  for (const auto& fiber : here.fibers) fiber->ended = false;
  const auto go = [&](unsigned i) {
    this_thread().thread = {threads[i], 0, 0};
    go_on(*here.fibers[i]);
  };
  go(0);
  if (here.fibers[0]->ended) {
    for (size_t i = 1; i < threads.size(); ++i) {
      this_thread().thread = {threads[i], 0, 0};
      kernel();
    }
    return;
  }
  for (unsigned i = 1; i < threads.size(); ++i) go(i);
  for (bool ended = false; !ended;) {
    for (unsigned i = 0; i < threads.size(); ++i) {
      if (here.fibers[i]->ended != here.fibers[0]->ended)
        violated("a thread leaves others waiting");
    }
    ended = here.fibers[0]->ended;
    if (ended) break;
    for (unsigned i = 0; i < threads.size(); ++i) go(i);
  }
}

void run_grid(const cudaLaunchConfig_t& config, const Work& kernel) {
  this_thread().threads = config.blockDim;
  this_thread().blocks = config.gridDim;
  for (const unsigned b : shuffled(config.gridDim.x)) {
    this_thread().block = {b, 0, 0};
    run_block(kernel, shuffled(config.blockDim.x));
  }
}

}  // namespace

ThreadPlace& this_thread() {
  static ThreadPlace place;
  return place;
}

void barrier() {
  Fiber* const fiber = block().current;
  if (fiber == nullptr) violated("a barrier that the first thread of the block does not come to");
  const uint3 thread = this_thread().thread;
  if (_setjmp(fiber->where) == 0) _longjmp(block().scheduler, 1);
  this_thread().thread = thread;
}

void violated(const std::string& rule) {
  std::fprintf(stderr, "simulated device: %s\n", rule.c_str());
  std::abort();
}

cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> kernel) {
  ALIVE();
  constexpr unsigned kMostThreads = 1024;
  if (config.gridDim.x == 0 || config.gridDim.x > 0x7fffffffu || config.blockDim.x == 0 ||
      config.blockDim.x > kMostThreads || config.gridDim.y * config.gridDim.z != 1 ||
      config.blockDim.y * config.blockDim.z != 1 || config.dynamicSmemBytes != 0) {
    return said(cudaErrorInvalidConfiguration);
  }
  if (device().until_lost-- <= 0) {
    device().lost = cudaErrorLaunchFailure;
    return said(device().lost);
  }
  ++device().launches.single;
  return said(
      put(config.stream, [config, kernel = std::move(kernel)] { run_grid(config, kernel); }));
}

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
  ALIVE();
  return said(put(stream, std::move(work)));
}

bool on_device(const void* memory, size_t bytes) {
  const std::lock_guard<std::recursive_mutex> lock(device().mutex);
  std::byte* const at = static_cast<std::byte*>(const_cast<void*>(memory));
  const auto after = device().live.upper_bound(at);
  return after != device().live.begin() &&
         at + bytes <= std::prev(after)->first + std::prev(after)->second;
}

void check_argument_bytes(const void* argument, size_t bytes, const char* type) {
  const std::lock_guard<std::recursive_mutex> lock(device().mutex);
  for (size_t at = 0; at + sizeof(uintptr_t) <= bytes; at += sizeof(uintptr_t)) {
    uintptr_t word;
    std::memcpy(&word, static_cast<const std::byte*>(argument) + at, sizeof word);
    const auto arena = reinterpret_cast<uintptr_t>(device().arena);
    if (word >= arena && word < arena + kArena) {
      // Just behind an allocation is a place, too.
      if (!on_device(reinterpret_cast<void*>(word), 0)) {
        violated(std::string("a kernel is handed memory that is free: ") + type);
      }
      continue;
    }
    constexpr uintptr_t kLeast = uintptr_t{1} << 32, kMost = uintptr_t{1} << 47;
    if (word < kLeast || word >= kMost) continue;
    if (msync(reinterpret_cast<void*>(word / kPage * kPage), 1, MS_ASYNC) == 0) {
      violated("a kernel is handed a pointer to the host, at byte " + std::to_string(at) + " of " +
               std::to_string(bytes) + " of " + type);
    }
  }
}

void limit_memory(int64_t bytes) { device().memory = bytes; }
void lose_after(int64_t launches) { device().until_lost = launches; }
Launches launches() { return device().launches; }
InUse in_use() {
  const auto count = [](const auto& all) { return static_cast<int64_t>(all.size()); };
  return {count(device().live), count(device().pinned), count(device().streams), device().graphs};
}

}  // namespace halfscope::simulated

using namespace halfscope::simulated;  // NOLINT: the runtime's functions are in no namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  ALIVE();
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* index) {
  ALIVE();
  *index = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index) {
  ALIVE();
  if (index != 0) return said(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "simulated device");
  properties->major = 9;
  properties->totalGlobalMem = static_cast<size_t>(device().memory);
  properties->multiProcessorCount = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  ALIVE();
  if (attribute != cudaDevAttrComputeCapabilityMajor &&
      attribute != cudaDevAttrComputeCapabilityMinor) {
    return said(cudaErrorInvalidValue);
  }
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    default:
      return "an error of the simulated device";
  }
}
cudaError_t cudaGetLastError() {
  const std::lock_guard<std::recursive_mutex> lock(device().mutex);
  return std::exchange(device().last, device().lost);
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  ALIVE();
  NOT_IN_CAPTURE();
  *memory = nullptr;
  if (bytes == 0) return cudaSuccess;
  const size_t all = pages(bytes);
  if (device().taken + static_cast<int64_t>(all) > device().memory ||
      device().used + all > kArena) {
    return said(cudaErrorMemoryAllocation);
  }
  device().taken += static_cast<int64_t>(all);
  std::byte* begin = nullptr;
  for (const auto& [place, size] : device().released) {
    if (size != all) continue;
    begin = place;
    break;
  }
  if (begin != nullptr) {
    device().released.erase(begin);
  } else {
    begin = device().arena + device().used;
    device().used += all + kPage;  // what lies just behind an allocation is nobody's
  }
  if (device().open > 0) violated("memory is taken by what runs on the device");
  const Open open;
  constexpr size_t kMostFilled = size_t{256} << 10;  // of big ones, which may never be touched
  std::memset(begin, kFresh, std::min(bytes, kMostFilled));
  std::memset(begin + units(bytes), kFence, all - units(bytes));
  device().live[begin] = bytes;
  *memory = begin;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  ALIVE();
  if (memory == nullptr) return cudaSuccess;
  NOT_IN_CAPTURE();
  for (CUstream_st* stream : device().streams) run_all(stream->waiting);
  const auto found = device().live.find(static_cast<std::byte*>(memory));
  if (found == device().live.end()) return said(cudaErrorInvalidValue);
  const size_t all = pages(found->second);
  {
    const Open open;
    check_fence(found->first, found->second);
  }
  if (madvise(found->first, all, MADV_DONTNEED) != 0) violated("madvise failed");
  device().taken -= static_cast<int64_t>(all);
  device().released[found->first] = all;
  device().live.erase(found);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  ALIVE();
  *total = static_cast<size_t>(device().memory);
  *free = static_cast<size_t>(std::max<int64_t>(device().memory - device().taken, 0));
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  ALIVE();
  NOT_IN_CAPTURE();
  auto* const place = static_cast<std::byte*>(std::malloc(bytes));
  device().pinned[place] = bytes;
  *memory = place;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  ALIVE();
  if (memory == nullptr) return cudaSuccess;
  NOT_IN_CAPTURE();
  for (CUstream_st* stream : device().streams) run_all(stream->waiting);
  if (device().pinned.erase(static_cast<std::byte*>(memory)) == 0) {
    return said(cudaErrorInvalidValue);
  }
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  ALIVE();
  if (!on_device(memory, bytes)) violated("memset of what is no memory of the device");
  return said(put(stream, [=] { std::memset(memory, value, bytes); }));
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  ALIVE();
  const bool up = kind == cudaMemcpyHostToDevice;
  if (!up && kind != cudaMemcpyDeviceToHost) violated("a copy of a kind that is not simulated");
  const void* const host = up ? from : to;
  if (!on_device(up ? to : from, bytes)) violated("a copy of what is no memory of the device");
  if (on_device(host, 0)) violated("a copy that takes the device's memory for the host's");
  if (is_pinned(host, bytes)) {
    return said(put(stream, [=] { std::memcpy(to, from, bytes); }));
  }
  NOT_IN_CAPTURE();
  if (up) {  // the runtime has read it when it returns
    const auto* const begin = static_cast<const std::byte*>(from);
    return said(put(stream, [to, kept = std::vector<std::byte>(begin, begin + bytes)] {
      std::memcpy(to, kept.data(), kept.size());
    }));
  }
  return said(put(stream, [=] { std::memcpy(to, from, bytes); }));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  ALIVE();
  *stream = new CUstream_st;
  device().streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard<std::recursive_mutex> lock(device().mutex);
  if (device().streams.erase(stream) == 0) violated("a stream ends twice");
  if (device().lost == cudaSuccess) run_all(stream->waiting);
  delete stream;
  return device().lost;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  ALIVE();
  NOT_IN_CAPTURE();
  if (device().streams.count(stream) == 0) violated("a stream that is gone is waited for");
  run_all(stream->waiting);
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  ALIVE();
  if (stream->capturing) return said(cudaErrorIllegalState);
  stream->captured.clear();
  stream->capturing = true;
  stream->invalid = false;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  ALIVE();
  *graph = nullptr;
  if (!stream->capturing) return said(cudaErrorIllegalState);
  stream->capturing = false;
  if (stream->invalid) return said(cudaErrorStreamCaptureInvalidated);
  *graph = new CUgraph_st{std::move(stream->captured)};
  ++device().graphs;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* ready, cudaGraph_t graph, unsigned long long) {
  ALIVE();
  *ready = new CUgraphExec_st{graph->work};
  ++device().graphs;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  --device().graphs;
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  --device().graphs;
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  ALIVE();
  if (device().until_lost-- <= 0) {
    device().lost = cudaErrorLaunchFailure;
    return said(device().lost);
  }
  ++device().launches.graphs;
  for (const Work& each : graph->work) static_cast<void>(put(stream, each));
  return cudaSuccess;
}

}  // extern "C"
