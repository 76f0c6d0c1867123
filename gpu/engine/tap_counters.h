// SPDX-License-Identifier: MIT
// Counters of a program's taps on the device: one slot per tap that an entry passes. An entry's
// slots are cleared, filled and copied to the host together.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/lower/lower.h"
#include "gpu/bodies/tap.h"

namespace halfscope::gpu {

template <class X>
class TapCounters {
 public:
  TapCounters(X& executor, const Executable& executable)
      : executor_(executor), tap_of_(executable.graph.values().size(), -1) {
    for (const Tap& tap : executable.taps) {
      int& first = tap_of_[static_cast<size_t>(tap.value)];
      if (first >= 0) {
        shared_.emplace_back(first, tap.site.order);
        continue;
      }
      first = tap.site.order;
      if (executable.graph.value(tap.value).producer == kNone) sources_.push_back(&tap);
    }
    size_t most = 0;
    for (size_t entry = 0; entry < kEntryCount; ++entry) {
      std::vector<Slot>& slots = entries_[entry].slots;
      if (entry == static_cast<size_t>(executable.forward)) {
        for (const Tap* tap : sources_) add(executable.graph, tap->value, slots);
      }
      for (NodeId id : executable.entries[entry]) {
        for (ValueId value : executable.graph.node(id).outputs) {
          if (tap_of(value) >= 0) add(executable.graph, value, slots);
        }
      }
      most = std::max(most, slots.size());
    }
    memory_ = allocate<TapSlot>(most);
    for (PerEntry& entry : entries_) place(entry);
  }

  /// Returns the tap of a value, or -1.
  int tap_of(ValueId value) const { return tap_of_[static_cast<size_t>(value)]; }
  /// Returns the taps of inputs and variables, which the forward entry passes.
  const std::vector<const Tap*>& sources() const { return sources_; }

  void clear(Entry entry) { executor_.items(ClearSlot::items(slots(entry)), ClearSlot{memory_}); }

  /// Measures, and rounds to `out` if it has memory.
  void measure(Entry entry, int tap, const In<float>& in, const Destination& out, int64_t n,
               const TensorRounding& rounding) {
    const ChunkSums& sums = at(entry).sums[at(entry).place.at(tap)];
    executor_.blocks(Measure{in, out, n, rounding, sums.slot, sums.sums, sums.squares});
  }

  /// Returns where this tap counts lost updates.
  uint64_t* lost(Entry entry, int tap) const {
    return &at(entry).sums[at(entry).place.at(tap)].slot->lost;
  }

  /// Sums over chunks; the last launch before the counters are copied.
  void total(Entry entry) {
    const PerEntry& all = at(entry);
    executor_.blocks(TapTotals{all.table, slots(entry), all.most_chunks});
  }

  /// Returns the entry's counters, which the next measured entry overwrites.
  const TapSlot* counters() const { return memory_; }
  int64_t slots(Entry entry) const { return static_cast<int64_t>(at(entry).slots.size()); }

  /// Copies the counters to the host in one piece.
  void collect(Entry entry, bool forward, std::span<TensorStats> stats) {
    std::vector<TapSlot> counted(at(entry).slots.size());
    if (counted.empty()) return;
    executor_.download(counted.data(), memory_, counted.size() * sizeof(TapSlot));
    put(entry, forward, counted.data(), 1, stats);
  }

  /// Converts the entry's counters, already on the host, to statistics after `runs` runs.
  void put(Entry entry, bool forward, const TapSlot* counted, int64_t runs,
           std::span<TensorStats> stats) const {
    const std::vector<Slot>& slots = at(entry).slots;
    for (size_t i = 0; i < slots.size(); ++i) {
      stats[static_cast<size_t>(slots[i].tap)] = stats_of(counted[i], runs * slots[i].n);
    }
    if (!forward) return;
    for (const auto& [from, to] : shared_) {
      stats[static_cast<size_t>(to)] = stats[static_cast<size_t>(from)];
    }
  }

 private:
  struct Slot {
    int tap;
    int64_t n;
  };
  struct PerEntry {
    std::vector<Slot> slots;
    std::vector<ChunkSums> sums;  ///< by slot
    ChunkSums* table = nullptr;   ///< same, on the device
    std::map<int, size_t> place;  ///< slot index by tap
    int64_t most_chunks = 0;      ///< of any slot
  };

  PerEntry& at(Entry entry) { return entries_[static_cast<size_t>(entry)]; }
  const PerEntry& at(Entry entry) const { return entries_[static_cast<size_t>(entry)]; }

  template <class U>
  U* allocate(size_t count) {
    return static_cast<U*>(executor_.allocate(std::max<size_t>(count, 1) * sizeof(U)));
  }

  void add(const Graph& graph, ValueId value, std::vector<Slot>& slots) const {
    slots.push_back({tap_of(value), element_count(graph.value(value).shape)});
  }

  void place(PerEntry& entry) {
    int64_t chunks = 0;
    for (const Slot& slot : entry.slots) chunks += ceil_div(slot.n, kSumChunk);
    double* sums = allocate<double>(static_cast<size_t>(2 * chunks));
    for (size_t i = 0; i < entry.slots.size(); ++i) {
      const int64_t count = ceil_div(entry.slots[i].n, kSumChunk);
      entry.sums.push_back({memory_ + i, sums, sums + count, count});
      entry.place[entry.slots[i].tap] = i;
      entry.most_chunks = std::max(entry.most_chunks, count);
      sums += 2 * count;
    }
    if (entry.sums.empty()) return;
    entry.table = allocate<ChunkSums>(entry.sums.size());
    executor_.upload(entry.table, entry.sums.data(), entry.sums.size() * sizeof(ChunkSums));
  }

  static TensorStats stats_of(const TapSlot& slot, int64_t n) {
    const auto counter = [&](TapSlot::Counter which) {
      return static_cast<int64_t>(slot.counters[which]);
    };
    TensorStats stats;
    stats.n = n;
    stats.zero = counter(TapSlot::kZero);
    stats.pos_inf = counter(TapSlot::kPosInf);
    stats.neg_inf = counter(TapSlot::kNegInf);
    stats.nan = counter(TapSlot::kNan);
    stats.overflow = counter(TapSlot::kOverflowed);
    stats.underflow = counter(TapSlot::kUnderflowed);
    stats.subnormal = counter(TapSlot::kSubnormals);
    stats.lost = static_cast<int64_t>(slot.lost);
    stats.max_abs = std::bit_cast<float>(slot.max_bits);
    stats.min_abs = std::bit_cast<float>(slot.min_bits);
    stats.sum = slot.sum;
    stats.sum_sq = slot.sum_sq;
    std::copy(std::begin(slot.exponents), std::end(slot.exponents), stats.exponents.begin());
    return stats;
  }

  X& executor_;
  std::vector<int> tap_of_;
  std::vector<const Tap*> sources_;
  std::vector<std::pair<int, int>> shared_;  ///< sites that share a value: measured, others
  std::array<PerEntry, kEntryCount> entries_;
  TapSlot* memory_ = nullptr;
};

}  // namespace halfscope::gpu
