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
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/numeric/formats/rng.h"
#include "tests/gpu/simulated/state.h"

namespace halfscope::simulated {

Device::Device() {
  void* const place =
      mmap(nullptr, kArena, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) violated("no room for the memory of the simulated device");
  arena = static_cast<std::byte*>(place);
  if (const char* const text = std::getenv("HALFSCOPE_SIMULATED_MEMORY")) memory = std::atoll(text);
  if (const char* const text = std::getenv("HALFSCOPE_SIMULATED_LOST_AFTER")) {
    until_lost = std::atoll(text);
  }
  if (const char* const text = std::getenv("HALFSCOPE_SIMULATED_DEVICES")) count = std::atoi(text);
  if (const char* const text = std::getenv("HALFSCOPE_SIMULATED_NCCL")) {
    nccl_hangs = std::string(text) == "hangs";
  }
  if (const char* const text = std::getenv("HALFSCOPE_SIMULATED_REFUSES")) {
    const std::string what = text;
    refused = what == "launch"        ? InCapture::launch
              : what == "end"         ? InCapture::end
              : what == "instantiate" ? InCapture::instantiate
                                      : InCapture::nothing;
  }
}

Device& device() {
  static Device* const one = new Device;  // streams may outlive everything else
  return *one;
}

cudaError_t said(cudaError_t error) {
  if (error != cudaSuccess) device().last = error;
  return error;
}

void run_all(CUstream_st& stream) {
  run_until(stream, [] { return false; });
}
void run_to(CUevent_st& event, int64_t recorded) {
  if (event.reached >= recorded) return;
  run_until(*event.stream, [&] { return event.reached >= recorded; });
}

void join(Clock& clock, const Clock& other) {
  for (const auto& [stream, done] : other) {
    int64_t& known = clock[stream];
    known = std::max(known, done);
  }
}

int64_t allocation_of(const void* memory) {
  const auto after = device().live.upper_bound(static_cast<std::byte*>(const_cast<void*>(memory)));
  return after == device().live.begin() ? 0 : std::prev(after)->second.number;
}

namespace {

uint64_t sum_of(const void* memory, size_t bytes) {
  const auto* const from = static_cast<const std::byte*>(memory);
  uint64_t sum = 0, word = 0;
  for (size_t at = 0; at < bytes; at += sizeof word) {
    std::memcpy(&word, from + at, std::min(sizeof word, bytes - at));
    sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
    sum ^= sum >> 32;
  }
  return sum;
}

/// Notes what work on the stream uses, and checks that it is ordered with all other uses.
void note_uses(CUstream_st& stream, const Work& work) {
  join(stream.clock, device().host);
  const int64_t now = ++stream.clock[&stream];
  for (const Access& access : work.accesses) {
    const auto found = device().uses.find(access.allocation);
    if (found == device().uses.end()) violated("a graph uses memory that was freed");
    for (const auto& [other, uses] : found->second) {
      if (other == &stream) continue;
      const int64_t last = access.writes ? std::max(uses.read, uses.written) : uses.written;
      if (last > 0 && stream.clock[other] < last) {
        violated("two streams use the same memory, and neither waits for the other");
      }
    }
    Uses& own = found->second[&stream];
    (access.writes ? own.written : own.read) = now;
  }
}

}  // namespace

void check_source(const Work& work) {
  if (work.source != nullptr && sum_of(work.source, work.bytes) != work.sum) {
    violated("pinned memory was changed before a copy from it ran");
  }
}

cudaError_t put(CUstream_st* stream, Work work) {
  if (stream == nullptr) violated("the default stream, which waits for all others, is used");
  if (device().streams.count(stream) == 0) violated("a stream that is gone is used");
  if (stream->capturing) {
    stream->captured.push_back(std::move(work));
    return cudaSuccess;
  }
  note_uses(*stream, work);
  if (work.source != nullptr) work.sum = sum_of(work.source, work.bytes);
  stream->waiting.push_back(std::move(work));
  return cudaSuccess;
}

namespace {

constexpr size_t kStack = size_t{64} << 10;

// Threads of a block: the first one runs on a separate stack. If it never reaches a barrier, the
// others are plain calls; otherwise each gets a stack, and they take turns.

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
  const std::function<void()>* kernel = nullptr;
  bool fresh = false;  ///< no thread has got its memory yet
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

std::vector<Access> writes_to(const Pointers& memory) {
  std::vector<Access> accesses;
  for (const void* each : memory) accesses.push_back({allocation_of(each), true});
  return accesses;
}

/// Returns [0, n) in a random order, different each time.
std::vector<unsigned> shuffled(unsigned n) {
  std::vector<unsigned> order(n);
  std::iota(order.begin(), order.end(), 0u);
  for (unsigned i = n; i > 1; --i) {
    std::swap(order[i - 1], order[splitmix64(device().draw++) % i]);
  }
  return order;
}

void run_block(const std::function<void()>& kernel, const std::vector<unsigned>& threads) {
  Block& here = block();
  here.kernel = &kernel;
  here.fresh = true;
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

void run_grid(const cudaLaunchConfig_t& config, const std::function<void()>& kernel) {
  ++device().clock;
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

void leave_unset(void* shared, size_t shared_bytes, void* own, size_t own_bytes) {
  constexpr size_t kMostShared = size_t{48} << 10;
  constexpr int kNan = 0xff;
  if (shared_bytes > kMostShared) violated("a block shares more memory than it can get");
  if (block().fresh) std::memset(shared, kNan, shared_bytes);
  block().fresh = false;
  std::memset(own, kNan, own_bytes);
}

cudaError_t launch(const cudaLaunchConfig_t& config, const Kernel& kernel,
                   std::initializer_list<Argument> arguments) {
  Pointers memory;
  std::vector<KeptArgument> kept;
  for (const Argument& each : arguments) {
    check_argument(each, memory);
    const auto* const bytes = static_cast<const std::byte*>(each.data);
    kept.emplace_back(bytes, bytes + each.size);
  }
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
  if (config.stream != nullptr && config.stream->capturing &&
      device().refused == InCapture::launch) {
    config.stream->invalid = true;
    return said(cudaErrorStreamCaptureUnsupported);
  }
  ++device().launches.single;
  return said(put(config.stream, {[config, kernel, kept = std::move(kept)] {
                                    run_grid(config, [&] { kernel.call(kernel.kernel, kept); });
                                  },
                                  writes_to(memory)}));
}

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work, const Pointers& memory) {
  ALIVE();
  return said(put(stream, {std::move(work), writes_to(memory)}));
}

bool on_device(const void* memory, size_t bytes) {
  const std::lock_guard<std::recursive_mutex> lock(device().mutex);
  std::byte* const at = static_cast<std::byte*>(const_cast<void*>(memory));
  const auto after = device().live.upper_bound(at);
  return after != device().live.begin() &&
         at + bytes <= std::prev(after)->first + std::prev(after)->second.bytes;
}

void check_argument(const Argument& argument, Pointers& memory) {
#if !defined(__GNUC__) || defined(__clang__)
  return;  // padding was not cleared
#endif
  const std::lock_guard<std::recursive_mutex> lock(device().mutex);
  for (size_t at = 0; at + sizeof(uintptr_t) <= argument.size; at += sizeof(uintptr_t)) {
    uintptr_t word;
    std::memcpy(&word, static_cast<const std::byte*>(argument.data) + at, sizeof word);
    const auto arena = reinterpret_cast<uintptr_t>(device().arena);
    if (word >= arena && word < arena + kArena) {
      // The position just after an allocation is valid, too.
      if (!on_device(reinterpret_cast<void*>(word), 0)) {
        violated(std::string("a kernel is handed memory that is free: ") + argument.type);
      }
      memory.push_back(reinterpret_cast<void*>(word));
      continue;
    }
    constexpr uintptr_t kLeast = uintptr_t{1} << 32, kMost = uintptr_t{1} << 47;
    if (word < kLeast || word >= kMost) continue;
    if (msync(reinterpret_cast<void*>(word / kPage * kPage), 1, MS_ASYNC) == 0) {
      violated("a kernel is handed a pointer to the host, at byte " + std::to_string(at) + " of " +
               std::to_string(argument.size) + " of " + argument.type);
    }
  }
}

void limit_memory(int64_t bytes) { device().memory = bytes; }
void list_devices(int count) { device().count = count; }
void refuse(InCapture what) { device().refused = what; }
void hang_nccl(bool hangs) { device().nccl_hangs = hangs; }
void lose_after(int64_t launches) { device().until_lost = launches; }
Launches launches() { return device().launches; }
Transfers transfers() { return device().transfers; }
InUse in_use() {
  const auto count = [](const auto& all) { return static_cast<int64_t>(all.size()); };
  return {count(device().live), count(device().pinned), count(device().streams), device().graphs,
          count(device().events)};
}

}  // namespace halfscope::simulated
