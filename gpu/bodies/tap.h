// SPDX-License-Identifier: MIT
// The tap on the device: one pass over a tensor that rounds it to its format and takes its
// statistics, field by field and bit by bit those of measure() in core/numeric/tensor_stats.h.
// Counters are integers; the sums have a fixed order: partial i % 16 of a chunk of 4096 elements
// belongs to one thread, the partials are added as a tree, and chunks in order (TapTotals).
#pragma once

#include <bit>
#include <cstdint>

#include "core/numeric/round.h"
#include "core/numeric/tensor_rounding.h"
#include "core/numeric/tensor_stats.h"
#include "gpu/bodies/updates.h"
#include "gpu/bodies/work.h"

namespace halfscope::gpu {

/// TensorStats as the device counts it: magnitudes as bits, which order like them.
struct TapSlot {
  enum Counter { kZero, kPosInf, kNegInf, kNan, kOverflowed, kUnderflowed, kSubnormals, kCounters };
  uint64_t counters[kCounters];
  uint64_t lost;  ///< updates that left a variable as it was
  uint32_t max_bits, min_bits;
  double sum, sum_sq;
  uint64_t exponents[kExponentBins];
};

struct ClearSlot {
  TapSlot* slots;

  HS_HD void operator()(int64_t i) const {
    slots[i] = {};
    slots[i].min_bits = detail::kInfinityBits;
  }
};

/// Rounding without statistics, to the format of `out`, which may be `in`.
struct Round {
  In<float> in;
  Destination out;
  TensorRounding rounding{};

  HS_HD void operator()(int64_t i) const {
    out.store(i, round_to_format(in[i], out.format, rounding.element(i)).value);
  }
};

struct Measure {
  static constexpr int kLanes = 16;  ///< partial sums of a chunk
  static constexpr int kChunks = 8;  ///< of a block
  static constexpr int kThreads = kLanes * kChunks;

  In<float> in;
  Destination out;  ///< may be `in`, or without memory to measure only
  int64_t n;
  TensorRounding rounding{};
  TapSlot* slot;
  double *sums, *squares;  ///< of chunks

  struct Shared {
    uint32_t counters[TapSlot::kCounters];
    uint32_t max_bits, min_bits;
    uint32_t exponents[kExponentBins];
    double sums[kThreads], squares[kThreads];
  };
  struct State {};

  HS_HD int64_t chunks() const { return ceil_div(n, kSumChunk); }
  int64_t blocks() const { return ceil_div(chunks(), kChunks); }
  HS_HD int64_t steps() const { return 3; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State&) const {
    if (s == 0) clear(thread, shared);
    if (s == 1) count(block * kChunks + thread / kLanes, thread, shared);
    if (s == 2) hand_over(block * kChunks + thread / kLanes, thread, shared);
  }

 private:
  HS_HD void clear(int thread, Shared& shared) const {
    for (int i = thread; i < kExponentBins; i += kThreads) shared.exponents[i] = 0;
    if (thread < TapSlot::kCounters) shared.counters[thread] = 0;
    if (thread == 0) {
      shared.max_bits = 0;
      shared.min_bits = detail::kInfinityBits;
    }
  }

  /// Its sixteenth of a chunk.
  HS_HD void count(int64_t chunk, int thread, Shared& shared) const {
    const int64_t begin = chunk * kSumChunk, end = smaller(begin + kSumChunk, n);
    uint32_t counters[TapSlot::kCounters] = {};
    uint32_t max_bits = 0, min_bits = detail::kInfinityBits;
    double sum = 0.0, square = 0.0;
    for (int64_t i = begin + thread % kLanes; i < end; i += kLanes) {
      const float x = in[i];
      const Rounded<float> result = round_to_format(x, out.format, rounding.element(i));
      if (out.memory != nullptr) out.store(i, result.value);
      const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & ~detail::kSignBit;
      if (magnitude >= detail::kInfinityBits) {
        const bool nan = magnitude > detail::kInfinityBits;
        ++counters[nan ? TapSlot::kNan : bits >> 31 != 0 ? TapSlot::kNegInf : TapSlot::kPosInf];
        continue;
      }
      const double value = static_cast<double>(x);
      sum += value;
      square += value * value;
      if (magnitude == 0) {
        ++counters[TapSlot::kZero];
        continue;
      }
      counters[TapSlot::kOverflowed] += (result.flags & kOverflow) != 0 ? 1 : 0;
      counters[TapSlot::kUnderflowed] += (result.flags & kFlushed) != 0 ? 1 : 0;
      counters[TapSlot::kSubnormals] += (result.flags & kSubnormal) != 0 ? 1 : 0;
      max_bits = magnitude > max_bits ? magnitude : max_bits;
      min_bits = magnitude < min_bits ? magnitude : min_bits;
      add_to(&shared.exponents[bin_of(magnitude)], uint32_t{1});
    }
    for (int c = 0; c < TapSlot::kCounters; ++c) {
      if (counters[c] != 0) add_to(&shared.counters[c], counters[c]);
    }
    raise_to(&shared.max_bits, max_bits);
    lower_to(&shared.min_bits, min_bits);
    shared.sums[thread] = sum;
    shared.squares[thread] = square;
  }

  HS_HD void hand_over(int64_t chunk, int thread, Shared& shared) const {
    if (thread % kLanes == 0 && chunk < chunks()) {
      sums[chunk] = add_tree(shared.sums + thread);
      squares[chunk] = add_tree(shared.squares + thread);
    }
    for (int i = thread; i < kExponentBins; i += kThreads) {
      if (shared.exponents[i] != 0) add_to(&slot->exponents[i], uint64_t{shared.exponents[i]});
    }
    if (thread < TapSlot::kCounters && shared.counters[thread] != 0) {
      add_to(&slot->counters[thread], uint64_t{shared.counters[thread]});
    }
    if (thread == 0) {
      raise_to(&slot->max_bits, shared.max_bits);
      lower_to(&slot->min_bits, shared.min_bits);
    }
  }

  /// floor(log2) of a finite magnitude that is not zero, as a bin.
  HS_HD static int bin_of(uint32_t magnitude) {
    const int biased = static_cast<int>(magnitude >> 23);
    return biased != 0 ? biased - 127 - kMinExponentBin : 63 - detail::leading_zeros(magnitude);
  }
};

/// Where the chunk sums of a tap lie.
struct ChunkSums {
  TapSlot* slot;
  double *sums, *squares;
  int64_t chunks;
};

struct TapTotals {
  const ChunkSums* of;

  HS_HD void operator()(int64_t i) const {
    double sum = 0.0, square = 0.0;
    for (int64_t chunk = 0; chunk < of[i].chunks; ++chunk) {
      sum += of[i].sums[chunk];
      square += of[i].squares[chunk];
    }
    of[i].slot->sum = sum;
    of[i].slot->sum_sq = square;
  }
};

}  // namespace halfscope::gpu
