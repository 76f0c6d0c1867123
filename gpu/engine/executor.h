// SPDX-License-Identifier: MIT
// Executors run bodies (gpu/bodies/work.h), one launch after another, and own device memory:
//
//   items(n, body)             body(i) for all i in [0, n)
//   blocks(body)               body.blocks() blocks of Body::kThreads threads
//   enqueue(f)                 f(), which launches work of a library
//   sort(s), sort_bytes(s)     sorts pairs (pair_sort.h); the working memory that this needs
//   only_if(go)                items and blocks launched from now on do nothing if *go, on the
//                              device, is 0 by then; null: all run. Nothing is enqueued meanwhile
//   replay(recording, f)       f(), which only does the above, and always the same; later calls
//                              replay a recording of its launches
//   describe(recording)        how the recording is launched, in words; "" if it has not run yet
//   allocate(bytes)            zeroed, on 256-byte boundaries, for the executor's lifetime
//   release(memory)            frees it earlier
//   upload(to, from, bytes)    `from` may be reused when it returns
//   feed(buffer, from, bytes)  upload() to buffer.memory that does not wait for launches, except
//                              those before was_read(buffer). Later launches wait for it
//   was_read(buffer)           its data is not read by launches from now on
//   download(to, from, bytes)  waits for earlier launches
//   copy(to, from, bytes)      on the device
//   host_memory(bytes)         on the host, for fetch(), for the executor's lifetime
//   begin(mark), pause(mark), go_on(mark)  record when all earlier work is done
//   fetch(mark, to, from, bytes)  download() to host_memory(), overlapping later launches
//   wait(mark)                 until fetch() is done; ms from begin() to fetch() without pauses
//   allocated()                bytes
//   tensor_core()              the device's mma.sync
//
// CudaExecutor (cuda_executor.cuh) is the device. HostExecutor runs the same bodies on the CPU, in
// order or shuffled; outputs must not depend on that.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/numeric/formats/rng.h"
#include "gpu/engine/bytes.h"
#include "gpu/engine/device_cores.h"
#include "gpu/engine/pair_sort.h"

namespace halfscope::gpu {

/// Throws Error if launches are conditional: the work of a library cannot depend on a decision of
/// the device.
inline void check_unconditional(const int32_t* go) {
  if (go != nullptr) throw Error("cannot call a library in an update: the update may be skipped");
}

/// Makes an executor's launches depend on *go during this object's lifetime.
template <class X>
class OnlyIf {
 public:
  OnlyIf(X& executor, const int32_t* go) : executor_(executor) { executor_.only_if(go); }
  OnlyIf(const OnlyIf&) = delete;
  OnlyIf& operator=(const OnlyIf&) = delete;
  ~OnlyIf() { executor_.only_if(nullptr); }

 private:
  X& executor_;
};

/// Limits of launches on every device, for the host executor to respect as well. Drivers before
/// CUDA 12.1 pass no more than 4 KiB of arguments.
inline constexpr size_t kMostShared = size_t{48} << 10, kMostArguments = size_t{4} << 10;
inline constexpr int kMostThreads = 1024;
inline constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;

/// Rejects bodies that no device can launch.
template <class Body>
constexpr void check_items() {
  static_assert(std::is_trivially_copyable_v<Body>, "a device gets a copy of its bytes");
  static_assert(sizeof(Body) + sizeof(int64_t) + sizeof(int32_t*) <= kMostArguments);
}
template <class Body>
constexpr void check_blocks() {
  check_items<Body>();
  static_assert(sizeof(typename Body::Shared) <= kMostShared);
  static_assert(Body::kThreads > 0 && Body::kThreads <= kMostThreads);
  static_assert(alignof(typename Body::Shared) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__ &&
                    alignof(typename Body::State) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__,
                "the host executor allocates memory for less");
  static_assert(std::is_trivially_default_constructible_v<typename Body::Shared> &&
                    std::is_trivially_default_constructible_v<typename Body::State>,
                "set it in a step: a device leaves the memory as it is");
}
inline void check_count(int64_t blocks) {
  if (blocks > kMostBlocks) throw Error("a launch of more blocks than a device can take");
}

/// Fills memory that a device leaves as it is with NaNs, to notice bodies that read it before they
/// write it.
inline void leave_unset(std::vector<std::byte>& memory) {
  std::fill(memory.begin(), memory.end(), std::byte{0xff});
}

enum class HostOrder : uint8_t { serial, shuffled };

/// Order of the items [0, n), each once: ascending, or from a random start with a random stride.
class ItemOrder {
 public:
  ItemOrder(int64_t n, HostOrder order, uint64_t draw) : n_(n) {
    if (order == HostOrder::serial || n < 2) return;
    at_ = static_cast<int64_t>(splitmix64(draw) % static_cast<uint64_t>(n));
    stride_ = static_cast<int64_t>(splitmix64(draw + 1) % static_cast<uint64_t>(n));
    while (std::gcd(stride_, n) != 1) ++stride_;
  }
  int64_t next() {
    const int64_t item = at_;
    at_ += stride_;
    if (at_ >= n_) at_ -= n_;
    return item;
  }

 private:
  int64_t n_, at_ = 0, stride_ = 1;
};

class HostExecutor {
 public:
  /// Simulates the tensor cores of that name, as far as the model covers them.
  explicit HostExecutor(HostOrder order, std::string cores = "none")
      : order_(order), cores_(std::move(cores)) {}

  DeviceCores tensor_core() const { return {cores_, true}; }

  /// Recorded launches with their arguments.
  struct Recording {
    std::vector<std::function<void()>> launches;
    bool complete = false;
  };
  static std::string describe(const Recording& recording) {
    if (!recording.complete) return "";
    return "repeats " + std::to_string(recording.launches.size()) + " launches";
  }

  template <class Body>
  void items(int64_t n, const Body& body) {
    check_items<Body>();
    const auto run = [](const void* each, int64_t count, ItemOrder& order) {
      for (int64_t i = 0; i < count; ++i) (*static_cast<const Body*>(each))(order.next());
    };
    launch_items(n, body, run);
  }

  template <class Body>
  void blocks(const Body& body) {
    check_blocks<Body>();
    check_count(body.blocks());
    using Shared = typename Body::Shared;
    using State = typename Body::State;
    const auto run = [](const void* each, int64_t s, int64_t block, int thread, void* shared,
                        void* state) {
      static_cast<const Body*>(each)->step(s, block, thread, *static_cast<Shared*>(shared),
                                           *static_cast<State*>(state));
    };
    launch_blocks(body, {.run = run,
                         .blocks = body.blocks(),
                         .steps = body.steps(),
                         .threads = Body::kThreads,
                         .shared_bytes = sizeof(Shared),
                         .state_bytes = sizeof(State)});
  }

  void enqueue(std::function<void()> f) {
    check_unconditional(go_);
    launch(std::move(f));
  }

  static size_t sort_bytes(const PairSort&) { return 0; }
  void sort(const PairSort& sort) {
    enqueue([sort] {
      std::vector<int64_t> order(static_cast<size_t>(sort.n));
      std::iota(order.begin(), order.end(), int64_t{0});
      std::stable_sort(order.begin(), order.end(),
                       [&](int64_t a, int64_t b) { return sort.keys[a] < sort.keys[b]; });
      for (size_t i = 0; i < order.size(); ++i) {
        sort.sorted_keys[i] = sort.keys[order[i]];
        sort.sorted_values[i] = sort.values[order[i]];
      }
    });
  }

  void only_if(const int32_t* go) { go_ = go; }

  template <class F>
  void replay(Recording& recording, const F& f) {
    if (recording.complete) {
      for (const std::function<void()>& launch : recording.launches) launch();
      return;
    }
    recording.launches.clear();
    recording_ = &recording;
    const std::unique_ptr<Recording*, Forget> until_it_ends(&recording_);
    f();
    recording.complete = true;
  }

  void* allocate(size_t bytes) {
    Memory memory(static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{kAlignment})));
    std::memset(memory.get(), 0, bytes);
    void* const address = memory.get();
    memory_.emplace(address, Allocation{std::move(memory), bytes});
    allocated_ += static_cast<int64_t>(bytes);
    return address;
  }
  void release(void* memory) {
    const auto found = memory_.find(memory);
    if (found == memory_.end()) return;
    allocated_ -= static_cast<int64_t>(found->second.bytes);
    memory_.erase(found);
  }
  int64_t allocated() const { return allocated_; }
  void upload(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }
  /// Memory that feed() fills. From was_read() on, it contains NaNs.
  struct Buffer {
    void* memory = nullptr;
    size_t bytes = 0;
  };
  void feed(Buffer& buffer, const void* from, size_t bytes) {
    std::memcpy(buffer.memory, from, buffer.bytes = bytes);
  }
  void was_read(Buffer& buffer) { std::memset(buffer.memory, 0xff, buffer.bytes); }
  void download(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }
  void copy(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

  void* host_memory(size_t bytes) {
    host_memory_.push_back(std::make_unique<std::byte[]>(bytes));
    return host_memory_.back().get();
  }
  /// A pending fetch(). The copy is made as late as on any device.
  struct Mark {
    using Clock = std::chrono::steady_clock;
    Clock::time_point begin{}, pause{}, go_on{}, end{};
    void* to = nullptr;
    const void* from = nullptr;
    size_t bytes = 0;
  };
  void begin(Mark& mark) { mark.begin = Mark::Clock::now(); }
  void pause(Mark& mark) { mark.pause = Mark::Clock::now(); }
  void go_on(Mark& mark) { mark.go_on = Mark::Clock::now(); }
  void fetch(Mark& mark, void* to, const void* from, size_t bytes) {
    mark = {mark.begin, mark.pause, mark.go_on, Mark::Clock::now(), to, from, bytes};
  }
  double wait(Mark& mark) {
    std::memcpy(mark.to, mark.from, mark.bytes);
    const auto spent = (mark.pause - mark.begin) + (mark.end - mark.go_on);
    return std::chrono::duration<double, std::milli>(spent).count();
  }

 private:
  static constexpr size_t kAlignment = 256;
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{kAlignment}); }
  };
  using Memory = std::unique_ptr<std::byte[], Free>;
  struct Allocation {
    Memory memory;
    size_t bytes;
  };
  struct Forget {
    void operator()(Recording** current) const { *current = nullptr; }
  };

  /// Blocks of a body, and the memory that each gets: what differs between bodies.
  struct Blocks {
    void (*run)(const void* body, int64_t step, int64_t block, int thread, void* shared,
                void* state);
    int64_t blocks, steps;
    int threads;
    size_t shared_bytes, state_bytes;
  };

  void launch(std::function<void()> f) {
    f();
    if (recording_ != nullptr) recording_->launches.push_back(std::move(f));
  }
  void launch_items(int64_t n, ByteView each, void (*run)(const void*, int64_t, ItemOrder&)) {
    launch([this, n, body = Bytes(each), run, go = go_] {
      if (go != nullptr && *go == 0) return;
      ItemOrder order = next_order(n);
      run(body.data(), n, order);
    });
  }
  void launch_blocks(ByteView one, const Blocks& each) {
    launch([this, body = Bytes(one), each, go = go_] {
      if (go == nullptr || *go != 0) run_blocks(body.data(), each);
    });
  }

  void run_blocks(const void* body, const Blocks& each) {
    std::vector<std::byte> shared(each.shared_bytes);
    std::vector<std::byte> states(each.state_bytes * static_cast<size_t>(each.threads));
    ItemOrder blocks = next_order(each.blocks);
    for (int64_t b = 0; b < each.blocks; ++b) {
      leave_unset(shared);
      leave_unset(states);
      const int64_t block = blocks.next();
      for (int64_t s = 0; s < each.steps; ++s) {
        ItemOrder threads = next_order(each.threads);
        for (int t = 0; t < each.threads; ++t) {
          const int thread = static_cast<int>(threads.next());
          each.run(body, s, block, thread, shared.data(),
                   states.data() + each.state_bytes * static_cast<size_t>(thread));
        }
      }
    }
  }

  ItemOrder next_order(int64_t n) { return ItemOrder(n, order_, draw_ += 2); }

  HostOrder order_;
  std::string cores_;
  uint64_t draw_ = 0;
  Recording* recording_ = nullptr;
  const int32_t* go_ = nullptr;
  int64_t allocated_ = 0;
  std::map<void*, Allocation> memory_;
  std::vector<std::unique_ptr<std::byte[]>> host_memory_;
};

}  // namespace halfscope::gpu
