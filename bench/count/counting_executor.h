// SPDX-License-Identifier: MIT
// CountingExecutor: an executor (gpu/engine/executor.h) that computes nothing and counts what a
// device would do. Memory is address space only, so a program for 100 GB can be compiled here. Of
// every launch a few warps or blocks run on that memory, which is all zeros, while watch.h sees
// each of their accesses; the rest is extrapolated.
//
// A warp's threads take turns access by access, as a device runs them, through two caches of a
// warp's share of the first and second level. What another warp has read counts as cached: of every
// tensor no more is read from memory than its size, times how often one warp reads it from there.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bench/count/launch.h"
#include "bench/count/watch.h"
#include "core/error.h"
#include "gpu/engine/executor.h"
#include "gpu/engine/pair_sort.h"

namespace halfscope::count {

class CountingExecutor {
 public:
  CountingExecutor() {
    void* const memory = mmap(nullptr, kSpace, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw Error("cannot reserve address space for the device's memory");
    space_ = static_cast<std::byte*>(memory);
    watch.device = reinterpret_cast<uintptr_t>(space_);
    watch.device_bytes = kSpace;
  }
  CountingExecutor(const CountingExecutor&) = delete;
  CountingExecutor& operator=(const CountingExecutor&) = delete;
  ~CountingExecutor() {
    watch.device_bytes = 0;
    munmap(space_, kSpace);
  }

  std::vector<Launch>& launches() { return launches_; }

  gpu::DeviceCores tensor_core() const { return {"h100", true}; }

  struct Recording {};
  static std::string describe(const Recording&) { return ""; }
  template <class F>
  void replay(Recording&, const F& f) {
    f();
  }

  template <class Body>
  void items(int64_t n, const Body& body) {
    if (n <= 0) return;
    const Launch* const known = known_launch(body, n);
    if (known != nullptr) {
      launches_.push_back(Launch(*known));
      run_small(body, n, *known);
      return;
    }
    Sampling sampling(*this, pointers_in(body), ceil_div(n, kWarp), kWarp);
    for (const int64_t warp : sampling.chosen()) {
      const int64_t first = warp * kWarp, threads = std::min(kWarp, n - first);
      sampling.begin(threads);
      for (int64_t t = 0; t < threads; ++t) {
        begin_watching();
        body(first + t);
        end_watching();
        sampling.end_thread(t);
      }
      sampling.end_step();
      sampling.end();
    }
    add(body, n, sampling.launch(static_cast<double>(n)));
    run_small(body, n, launches_.back());
  }

  template <class Body>
  void blocks(const Body& body) {
    const int64_t count = body.blocks();
    if (count <= 0) return;
    const int64_t n = count * Body::kThreads;
    const Launch* const known = known_launch(body, n);
    if (known != nullptr) return launches_.push_back(Launch(*known));
    Sampling sampling(*this, pointers_in(body), count, Body::kThreads);
    const auto shared = std::make_unique<typename Body::Shared>();
    watch.shared = reinterpret_cast<uintptr_t>(shared.get());
    watch.shared_bytes = sizeof(typename Body::Shared);
    std::vector<typename Body::State> states(static_cast<size_t>(Body::kThreads));
    for (const int64_t block : sampling.chosen()) {
      sampling.begin(Body::kThreads);
      for (int64_t s = 0; s < body.steps(); ++s) {
        for (int t = 0; t < Body::kThreads; ++t) {
          begin_watching();
          body.step(s, block, t, *shared, states[static_cast<size_t>(t)]);
          end_watching();
          sampling.end_thread(t);
        }
        sampling.end_step();
      }
      sampling.end();
    }
    watch.shared_bytes = 0;
    add(body, n, sampling.launch(static_cast<double>(n)));
  }

  template <class F>
  void enqueue(const F& f) {
    gpu::check_unconditional(go_);
    f();
  }
  void only_if(const int32_t* go) { go_ = go; }

  /// A radix sort copies the pairs once more, and again for every 8 bits.
  static size_t sort_bytes(const gpu::PairSort& sort) { return static_cast<size_t>(16 * sort.n); }
  void sort(const gpu::PairSort& sort) {
    gpu::check_unconditional(go_);
    std::vector<int64_t> order(static_cast<size_t>(sort.n));
    std::iota(order.begin(), order.end(), int64_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return sort.keys[a] < sort.keys[b]; });
    for (size_t i = 0; i < order.size(); ++i) {
      sort.sorted_keys[i] = sort.keys[order[i]];
      sort.sorted_values[i] = sort.values[order[i]];
    }
    for (int pass = 0; pass <= (sort.bits + 7) / 8; ++pass) {
      Launch launch;
      launch.name = "sort";
      launch.memory = launch.cache = 16.0 * static_cast<double>(sort.n);
      launches_.push_back(std::move(launch));
    }
  }

  void* allocate(size_t bytes) {
    const size_t place = next_;
    next_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (next_ > kSpace) throw Error("the program needs more than 4 TB of device memory");
    allocated_ += static_cast<int64_t>(bytes);
    sizes_[space_ + place] = bytes;
    return space_ + place;
  }
  void release(void* memory) {
    const auto found = sizes_.find(memory);
    if (found == sizes_.end()) return;
    allocated_ -= static_cast<int64_t>(found->second);
    sizes_.erase(found);
  }
  int64_t allocated() const { return allocated_; }

  void upload(void* to, const void* from, size_t bytes) {
    // Constants and tables that bodies read decide what they do. Samples and weights are zeros.
    if (bytes <= kMostCopied) std::memcpy(to, from, bytes);
    add_copy("upload", Launch::Kind::upload, bytes);
  }
  struct Buffer {
    void* memory = nullptr;
  };
  void feed(Buffer& buffer, const void* from, size_t bytes) {
    if (bytes <= kMostCopied) std::memcpy(buffer.memory, from, bytes);
    add_copy("feed", Launch::Kind::feed, bytes);
  }
  void was_read(Buffer&) {}
  void download(void* to, const void*, size_t bytes) { std::memset(to, 0, bytes); }
  void copy(void* to, const void* from, size_t bytes) {
    if (bytes <= kMostCopied) std::memcpy(to, from, bytes);
    add_copy("copy", Launch::Kind::copy, 2 * bytes);
  }
  void* host_memory(size_t bytes) {
    host_memory_.push_back(std::make_unique<std::byte[]>(bytes));
    return host_memory_.back().get();
  }
  struct Mark {};
  void begin(Mark&) {}
  void pause(Mark&) {}
  void go_on(Mark&) {}
  void fetch(Mark&, void* to, const void*, size_t bytes) { std::memset(to, 0, bytes); }
  double wait(Mark&) { return 0.0; }

 private:
  static constexpr size_t kSpace = size_t{1} << 42, kAlignment = 256;
  static constexpr size_t kMostCopied = 64 << 20;
  static constexpr int64_t kMostRun = 1 << 16, kMostRunWords = 16;

  static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

  /// Memory of one tensor, as far as samples have touched it.
  struct Extent {
    uint64_t begin = ~uint64_t{0}, end = 0;
    double unique = 0.0, from_memory = 0.0;  ///< bytes that the samples requested
  };

  /// Runs the accesses of sampled warps or blocks through their share of the caches.
  class Sampling {
    static constexpr size_t kMostTogether = 32;

   public:
    Sampling(const CountingExecutor& of, std::vector<uint64_t> bases, int64_t units,
             int64_t unit_threads)
        : of_(of),
          bases_(std::move(bases)),
          units_(units),
          turns_(static_cast<size_t>(unit_threads)),
          weights_(turns_.size()),
          chains_(turns_.size()) {
      for (const int64_t at : {int64_t{0}, units / 2, units - 1}) {
        if (chosen_.empty() || chosen_.back() != at) chosen_.push_back(at);
      }
      const int64_t per_processor = std::max<int64_t>(kResident / unit_threads, 1);
      const int64_t near_units = std::min(per_processor, ceil_div(units, kProcessors));
      const int64_t far_units = std::min(per_processor * kProcessors, units);
      near_ = kNearBytes / kSector / near_units;
      far_ = kFarBytes / kSector / far_units;
      waves_ = std::max(
          1.0, static_cast<double>(units) / static_cast<double>(per_processor * kProcessors));
    }

    const std::vector<int64_t>& chosen() const { return chosen_; }

    void begin(int64_t threads) {
      sectors_.clear();
      time_ = 0;
      sampled_ += static_cast<double>(threads);
      chain_ = {};
    }
    void end_thread(int64_t thread) {
      turns_[static_cast<size_t>(thread)].swap(watch.accesses);
      weigh(turns_[static_cast<size_t>(thread)], weights_[static_cast<size_t>(thread)]);
      Launch::Chain& chain = chains_[static_cast<size_t>(thread)];
      chain = {};
      chain.shared = static_cast<double>(watch.shared_accesses);
      chain.functions = watch.functions;
      sums_.functions += watch.functions;
      watch.clear();
    }
    void end_step() {
      size_t longest = 0;
      for (const auto& turn : turns_) longest = std::max(longest, turn.size());
      for (size_t k = 0; k < longest; ++k) {
        for (size_t t = 0; t < turns_.size(); ++t) {
          if (t % static_cast<size_t>(kWarp) == 0) instruction_ = time_;
          if (k < turns_[t].size()) touch(turns_[t][k], weights_[t][k], chains_[t]);
        }
      }
      // All threads of a block wait for the slowest one.
      const Rates rates;
      const auto slowest =
          std::max_element(chains_.begin(), chains_.end(), [&](const auto& a, const auto& b) {
            return seconds_of(a, rates) < seconds_of(b, rates);
          });
      chain_.memory += slowest->memory;
      chain_.cache += slowest->cache;
      chain_.near += slowest->near;
      chain_.shared += slowest->shared;
      chain_.functions += slowest->functions;
      std::fill(chains_.begin(), chains_.end(), Launch::Chain{});
      for (auto& turn : turns_) turn.clear();
    }
    void end() {
      const auto length = [](const Launch::Chain& c) {
        return c.memory + c.cache + c.near + c.shared + c.functions;
      };
      if (length(chain_) > length(longest_)) longest_ = chain_;
    }

    Launch launch(double threads) const {
      const double times = threads / sampled_;
      Launch launch = sums_;
      launch.cache *= times;
      launch.words *= times;
      launch.functions *= times;
      launch.threads = threads;
      for (const auto& [key, extent] : extents_) {
        const double size = static_cast<double>(extent.end - extent.begin);
        if (extent.unique == 0.0) continue;  // shares its sectors with its neighbour
        const double again = extent.from_memory / extent.unique;
        launch.memory += std::min(extent.unique * times, size) * again;
      }
      launch.chain = longest_;
      for (double* const each : {&launch.chain.memory, &launch.chain.cache, &launch.chain.near,
                                 &launch.chain.shared, &launch.chain.functions}) {
        *each *= waves_;
      }
      return launch;
    }

   private:
    /// Gives each load its share of a wait. Loads by different instructions are requested together;
    /// a loop's next pass begins when an instruction comes again.
    static void weigh(const std::vector<Access>& accesses, std::vector<float>& weights) {
      weights.assign(accesses.size(), 0.0f);
      for (size_t begin = 0; begin < accesses.size();) {
        size_t end = begin, loads = 0;
        const auto comes_again = [&] {
          for (size_t i = begin; i < end; ++i) {
            if (accesses[i].code == accesses[end].code) return true;
          }
          return false;
        };
        for (; end < accesses.size() && end - begin < kMostTogether && !comes_again(); ++end) {
          if (accesses[end].writes == 0) ++loads;
        }
        const double together = std::max(kUnrolled, static_cast<double>(loads));
        for (; begin < end; ++begin) {
          if (accesses[begin].writes == 0) weights[begin] = static_cast<float>(1.0 / together);
        }
      }
    }

    void touch(const Access& access, double weight, Launch::Chain& chain) {
      sums_.words += static_cast<double>(ceil_div(static_cast<int64_t>(access.bytes), 4));
      const uint64_t begin = access.offset, end = begin + access.bytes;
      const auto base = std::upper_bound(bases_.begin(), bases_.end(), begin);
      const int64_t tensor = base - bases_.begin();
      for (uint64_t sector = begin / kSector; sector * kSector < end; ++sector) {
        const uint64_t key = sector * 2 + access.writes;
        const auto [found, is_new] = sectors_.try_emplace(key, time_);
        if (!is_new && found->second >= instruction_) {  // with others of this instruction
          chain.near += weight;
          found->second = time_;
          continue;
        }
        const int64_t age = time_ - found->second;
        found->second = ++time_;
        const bool near = !is_new && age <= near_, far = !is_new && age <= far_;
        (near ? chain.near : far ? chain.cache : chain.memory) += weight;
        if (!near) sums_.cache += kSector;
        Extent& extent = extents_[{tensor, access.writes != 0}];
        if (is_new) extent.unique += kSector;
        if (!far) extent.from_memory += kSector;
      }
      Extent& extent = extents_[{tensor, access.writes != 0}];
      extent.begin = std::min(extent.begin, begin);
      extent.end = std::max(extent.end, end);
    }

    const CountingExecutor& of_;
    std::vector<uint64_t> bases_;
    int64_t units_, near_ = 0, far_ = 0;
    double waves_ = 1.0;
    std::vector<int64_t> chosen_;
    std::vector<std::vector<Access>> turns_;
    std::vector<std::vector<float>> weights_;
    std::unordered_map<uint64_t, int64_t> sectors_;
    int64_t time_ = 0, instruction_ = 0;
    double sampled_ = 0.0;
    std::vector<Launch::Chain> chains_;  ///< of the threads in the current step
    Launch sums_;
    Launch::Chain chain_, longest_;
    std::map<std::pair<int64_t, bool>, Extent> extents_;
  };

  /// Returns the offsets of all device memory that a body points to, ascending.
  template <class Body>
  std::vector<uint64_t> pointers_in(const Body& body) const {
    std::vector<uint64_t> found;
    for (size_t at = 0; at + sizeof(uintptr_t) <= sizeof body; at += alignof(uintptr_t)) {
      uintptr_t word;
      std::memcpy(&word, reinterpret_cast<const std::byte*>(&body) + at, sizeof word);
      if (word - watch.device < watch.device_bytes) found.push_back(word - watch.device);
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  /// Equal for launches that do the same on other memory.
  using Key = std::tuple<const std::type_info*, int64_t, std::string>;

  template <class Body>
  Key key_of(const Body& body, int64_t n) const {
    std::string bytes(sizeof body, '\0');
    std::memcpy(bytes.data(), static_cast<const void*>(&body), sizeof body);
    for (size_t at = 0; at + sizeof(uintptr_t) <= sizeof body; at += alignof(uintptr_t)) {
      uintptr_t word;
      std::memcpy(&word, &bytes[at], sizeof word);
      if (word - watch.device >= watch.device_bytes) continue;
      word %= kAlignment;
      std::memcpy(&bytes[at], &word, sizeof word);
    }
    return {&typeid(Body), n, std::move(bytes)};
  }
  /// Runs all items of small tables, such as the rows that indices name: they decide what later
  /// bodies do.
  template <class Body>
  static void run_small(const Body& body, int64_t n, const Launch& launch) {
    if (n > kMostRun || launch.words > static_cast<double>(kMostRunWords * n)) return;
    for (int64_t i = 0; i < n; ++i) body(i);
  }
  template <class Body>
  const Launch* known_launch(const Body& body, int64_t n) const {
    const auto found = known_.find(key_of(body, n));
    return found == known_.end() ? nullptr : &found->second;
  }
  template <class Body>
  void add(const Body& body, int64_t n, Launch launch) {
    launch.name = typeid(Body).name();
    known_[key_of(body, n)] = launch;
    launches_.push_back(std::move(launch));
  }
  void add_copy(const char* name, Launch::Kind kind, size_t bytes) {
    Launch launch;
    launch.kind = kind;
    launch.name = name;
    launch.memory = static_cast<double>(bytes);
    launches_.push_back(std::move(launch));
  }

  std::byte* space_ = nullptr;
  size_t next_ = kAlignment;
  int64_t allocated_ = 0;
  std::map<void*, size_t> sizes_;
  std::vector<std::unique_ptr<std::byte[]>> host_memory_;
  const int32_t* go_ = nullptr;
  std::vector<Launch> launches_;
  std::map<Key, Launch> known_;
};

}  // namespace halfscope::count
