// SPDX-License-Identifier: MIT
// The tap on the device: one pass over a tensor that rounds it to its format and collects its
// statistics, which equal those of measure() in core/numeric/statistics/tensor_stats.h in every
// field and bit. Counters are integers. The sums have a fixed order: partial sum i % 16 of a chunk
// of 4096 elements belongs to one thread, the partial sums are added as a tree, and chunks in order
// (TapTotals).
#pragma once

#include <bit>
#include <cstdint>

#include "core/numeric/formats/round.h"
#include "core/numeric/formats/tensor_rounding.h"
#include "core/numeric/statistics/tensor_stats.h"
#include "gpu/bodies/several.h"
#include "gpu/bodies/updates.h"
#include "gpu/bodies/work.h"

namespace halfscope::gpu {

/// TensorStats as the device counts them. Magnitudes are bits, which have the same order.
struct TapSlot {
  enum Counter { kZero, kPosInf, kNegInf, kNan, kOverflowed, kUnderflowed, kSubnormals, kCounters };
  uint64_t counters[kCounters];
  uint64_t lost;  ///< updates that left a variable unchanged
  uint32_t max_bits, min_bits;
  double sum, sum_sq;
  uint64_t exponents[kExponentBins];
};

/// Item: a bin of a slot; the first bin's does the rest of the slot, too.
struct ClearSlot {
  TapSlot* slots;

  static int64_t items(int64_t slots) { return slots * kExponentBins; }
  HS_HD void operator()(int64_t item) const {
    TapSlot& slot = slots[item / kExponentBins];
    const int64_t bin = item % kExponentBins;
    slot.exponents[bin] = 0;
    if (bin != 0) return;
    for (uint64_t& counter : slot.counters) counter = 0;
    slot.lost = 0;
    slot.max_bits = 0;
    slot.min_bits = detail::kInfinityBits;
    slot.sum = slot.sum_sq = 0.0;
  }
};

/// Adds the counts in `slots` to `totals`, like TensorStats::merge(). Items as above.
struct MergeSlot {
  const TapSlot* slots;
  TapSlot* totals;

  static int64_t items(int64_t slots) { return ClearSlot::items(slots); }
  HS_HD void operator()(int64_t item) const {
    const TapSlot& slot = slots[item / kExponentBins];
    TapSlot& total = totals[item / kExponentBins];
    const int64_t bin = item % kExponentBins;
    total.exponents[bin] += slot.exponents[bin];
    if (bin != 0) return;
    for (int c = 0; c < TapSlot::kCounters; ++c) total.counters[c] += slot.counters[c];
    total.lost += slot.lost;
    raise_to(&total.max_bits, slot.max_bits);
    lower_to(&total.min_bits, slot.min_bits);
    total.sum += slot.sum;
    total.sum_sq += slot.sum_sq;
  }
};

/// Rounds without statistics to the format of `out`, which may be `in`. Item: several elements.
struct Round {
  In<float> in;
  Destination out;
  int64_t n;
  TensorRounding rounding{};

  HS_HD int64_t items() const { return items_of_several(n); }

  HS_HD void operator()(int64_t item) const {
    const Neighbours at = several_of(item, n);
    float x[kSeveral];
    read(in, at, x);
    if (rounding.mode == RoundingMode::nearest_even) {
      write(out, at, x);
      return;
    }
    for (int j = 0; j < at.count; ++j) {
      const int64_t i = at.first + j;
      out.store(i, rounded_by(x[j], out.format, rounding.element(i)).value);
    }
  }
};

/// Thresholds of rounding to nearest even, as bits of magnitudes, for one format.
struct Losses {
  bool known = false;
  uint32_t last_flushed = 0, first_normal = 0, first_overflow = 0;

  HS_HD constexpr bool overflows(uint32_t finite) const { return finite >= first_overflow; }
  HS_HD constexpr bool flushes(uint32_t nonzero) const { return nonzero <= last_flushed; }
  HS_HD constexpr bool makes_subnormal(uint32_t nonzero) const {
    return nonzero > last_flushed && nonzero < first_normal;
  }
};

/// Returns the thresholds of the most common formats. Ties below the smallest normal number go to
/// that, ties below the smallest number to zero, ties beyond the largest to infinity.
HS_HD constexpr Losses losses_of(const FloatFormat& format) {
  if (format == format_of(Storage::fp32)) return {true, 0, 0x00800000, detail::kInfinityBits};
  if (format == format_of(Storage::bf16)) return {true, 0x00008000, 0x007f8000, 0x7f7f8000};
  if (format == format_of(Storage::fp16)) return {true, 0x33000000, 0x387fe000, 0x477ff000};
  return {};
}

struct Measure {
  static constexpr int kLanes = 16;  ///< partial sums per chunk
  static constexpr int kChunks = 8;  ///< chunks per block
  static constexpr int kThreads = kLanes * kChunks;
  static constexpr int kCopies = 8;  ///< copies of the histogram

  In<float> in;
  Destination out;  ///< may be `in`; without memory, only measures
  int64_t n;
  TensorRounding rounding{};
  TapSlot* slot;
  double *sums, *squares;  ///< per chunk

  struct Shared {
    uint32_t counters[TapSlot::kCounters];
    uint32_t max_bits, min_bits;
    /// Adjacent threads count separately, because most elements have one of a few exponents.
    uint32_t exponents[kCopies][kExponentBins];
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
    for (int i = thread; i < kExponentBins; i += kThreads) {
      for (int copy = 0; copy < kCopies; ++copy) shared.exponents[copy][i] = 0;
    }
    if (thread < TapSlot::kCounters) shared.counters[thread] = 0;
    if (thread == 0) {
      shared.max_bits = 0;
      shared.min_bits = detail::kInfinityBits;
    }
  }

  /// Counts of one thread. Counters are indexed by constants, so that they stay in registers.
  struct Seen {
    uint32_t counters[TapSlot::kCounters] = {};
    uint32_t max_bits = 0, min_bits = detail::kInfinityBits;
    double sum = 0.0, square = 0.0;
  };

  /// Counts the thread's sixteenth of a chunk.
  HS_HD void count(int64_t chunk, int thread, Shared& shared) const {
    const int64_t begin = chunk * kSumChunk, end = smaller(begin + kSumChunk, n);
    Seen seen;
    uint32_t* const exponents = shared.exponents[thread % kCopies];
    const bool nearest = rounding.mode == RoundingMode::nearest_even;
    const Losses losses = nearest ? losses_of(out.format) : Losses{};
    for (int64_t i = begin + thread % kLanes; i < end; i += kSeveral * kLanes) {
      const Spaced at = spaced_from(i, kLanes, end);
      float element[kSeveral];
      read(in, at, element);
      for (int j = 0; j < kSeveral; ++j) {
        if (j < at.count) count(element[j], i + j * kLanes, losses, exponents, seen);
      }
    }
    for (int c = 0; c < TapSlot::kCounters; ++c) {
      if (seen.counters[c] != 0) add_to(&shared.counters[c], seen.counters[c]);
    }
    raise_to(&shared.max_bits, seen.max_bits);
    lower_to(&shared.min_bits, seen.min_bits);
    shared.sums[thread] = seen.sum;
    shared.squares[thread] = seen.square;
  }

  /// Counts and stores element i.
  HS_HD void count(float x, int64_t i, const Losses& losses, uint32_t* exponents,
                   Seen& seen) const {
    int flags = 0;
    if (!losses.known) {
      const Rounded<float> result = rounded_by(x, out.format, rounding.element(i));
      if (out.memory != nullptr) out.store(i, result.value);
      flags = result.flags;
    } else if (out.memory != nullptr) {
      out.round(i, x);
    }
    const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & ~detail::kSignBit;
    const auto add_if = [&](TapSlot::Counter which, bool so) {
      seen.counters[which] += so ? 1 : 0;
    };
    if (magnitude >= detail::kInfinityBits) {
      const bool nan = magnitude > detail::kInfinityBits, negative = bits >> 31 != 0;
      add_if(TapSlot::kNan, nan);
      add_if(TapSlot::kNegInf, !nan && negative);
      add_if(TapSlot::kPosInf, !nan && !negative);
      return;
    }
    const double value = static_cast<double>(x);
    seen.sum += value;
    seen.square += value * value;
    if (magnitude == 0) {
      add_if(TapSlot::kZero, true);
      return;
    }
    const bool quick = losses.known;
    add_if(TapSlot::kOverflowed, quick ? losses.overflows(magnitude) : (flags & kOverflow) != 0);
    add_if(TapSlot::kUnderflowed, quick ? losses.flushes(magnitude) : (flags & kFlushed) != 0);
    add_if(TapSlot::kSubnormals,
           quick ? losses.makes_subnormal(magnitude) : (flags & kSubnormal) != 0);
    seen.max_bits = magnitude > seen.max_bits ? magnitude : seen.max_bits;
    seen.min_bits = magnitude < seen.min_bits ? magnitude : seen.min_bits;
    add_to(&exponents[bin_of(magnitude)], uint32_t{1});
  }

  HS_HD void hand_over(int64_t chunk, int thread, Shared& shared) const {
    if (thread % kLanes == 0 && chunk < chunks()) {
      sums[chunk] = add_tree(shared.sums + thread);
      squares[chunk] = add_tree(shared.squares + thread);
    }
    for (int i = thread; i < kExponentBins; i += kThreads) {
      uint64_t all = 0;
      for (int copy = 0; copy < kCopies; ++copy) all += shared.exponents[copy][i];
      if (all != 0) add_to(&slot->exponents[i], all);
    }
    if (thread < TapSlot::kCounters && shared.counters[thread] != 0) {
      add_to(&slot->counters[thread], uint64_t{shared.counters[thread]});
    }
    if (thread == 0) {
      raise_to(&slot->max_bits, shared.max_bits);
      lower_to(&slot->min_bits, shared.min_bits);
    }
  }

  /// Returns floor(log2) of a finite, nonzero magnitude, as a bin.
  HS_HD static int bin_of(uint32_t magnitude) {
    const int biased = static_cast<int>(magnitude >> 23);
    return biased != 0 ? biased - 127 - kMinExponentBin : 63 - detail::leading_zeros(magnitude);
  }
};

/// Location of a tap's chunk sums.
struct ChunkSums {
  TapSlot* slot;
  double *sums, *squares;
  int64_t chunks;
};

/// One block per tap: sums its chunks in order. One thread adds the sums and one the squares, each
/// in its own warp; the others load the next piece.
struct TapTotals {
  static constexpr int kThreads = 256, kPiece = 1024, kSquares = 32;

  const ChunkSums* of;
  int64_t taps;
  int64_t most_chunks;  ///< of any tap

  struct Shared {
    double sums[2][kPiece], squares[2][kPiece];
  };
  struct State {
    double total;
  };

  int64_t blocks() const { return taps; }
  HS_HD int64_t steps() const { return ceil_div(most_chunks, kPiece) + 1; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State& state) const {
    const ChunkSums tap = of[block];
    if (s == 0) state.total = 0.0;
    if (s + 1 < steps()) load(tap, s * kPiece, thread, shared, s % 2);
    if (thread != 0 && thread != kSquares) return;
    const int64_t half = (s + 1) % 2;
    if (s > 0) {
      const double* const from = thread == 0 ? shared.sums[half] : shared.squares[half];
      const int64_t n = smaller(kPiece, tap.chunks - (s - 1) * kPiece);
      for (int64_t at = 0; at < n; ++at) state.total += from[at];
    }
    if (s + 1 == steps()) (thread == 0 ? tap.slot->sum : tap.slot->sum_sq) = state.total;
  }

 private:
  HS_HD static void load(const ChunkSums& tap, int64_t begin, int thread, Shared& shared,
                         int64_t half) {
    const int64_t n = smaller(kPiece, tap.chunks - begin);
    for (int64_t at = thread; at < n; at += kThreads) {
      shared.sums[half][at] = tap.sums[begin + at];
      shared.squares[half][at] = tap.squares[begin + at];
    }
  }
};

}  // namespace halfscope::gpu
