// SPDX-License-Identifier: MIT
// Sums along lines of a tensor by blocks of threads, in a fixed order: term k is added to partial
// sum k % kPartialSums, and these are added as a balanced tree, in double or, under interleaved16,
// in fp32. A line has 16 chains, but a block has 256 threads. So all of them compute the
// terms of a piece, which may be expensive, and store them in shared memory; then one thread per
// chain adds them.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/axis_lines.h"
#include "core/numeric/sums/chain.h"
#include "gpu/bodies/divisor.h"
#include "gpu/bodies/several.h"
#include "gpu/bodies/updates.h"
#include "gpu/bodies/work.h"

namespace halfscope::gpu {

/// How a sum is taken.
enum class SumWay : uint8_t {
  wide,         ///< partial sums in double
  interleaved,  ///< partial sums in fp32, as the plan names
  named,        ///< any other accumulation that the plan names, by one thread
};

template <class T>
SumWay sum_way(const ChainSpec& how, bool named) noexcept {
  if (!kNamesSums<T> || !named) return SumWay::wide;
  return how.is_interleaved() ? SumWay::interleaved : SumWay::named;
}

/// Returns a sum under any accumulation that the plan names. Programs in double name none.
template <class T, class Terms>
HS_HD double named_sum_of(const ChainSpec& how, const Terms& terms, int64_t n, int64_t element) {
  if constexpr (kNamesSums<T>) {
    return sum_of_terms(how, terms, n, element);
  } else {
    return 0.0;
  }
}
/// Same for a sum of products, delivered.
template <class T, class Terms>
HS_HD double named_products(const ChainSpec& how, const Terms& terms, int64_t n, int64_t element) {
  const double sum = named_sum_of<T>(how, terms, n, element);
  return static_cast<double>(deliver_sum(how, sum, nullptr, n, element));
}

/// Returns one partial sum of interleaved16. The total of all, stored one after another, is
/// add_tree<float>().
template <class Terms>
HS_HD double interleaved_part(const Terms& terms, int64_t n, int partial) {
  float sum = 0.0f;
  for (int64_t k = partial; k < n; k += kPartialSums) {
    sum = std::fma(terms.left(k), terms.right(k), sum);
  }
  return static_cast<double>(sum);
}

/// AxisLines that are ready for division.
struct DeviceLines {
  int64_t count = 0, size = 0;
  Divisor stride = 1;
  int64_t pitch = size * int64_t{stride};  ///< elements from the first `stride` lines to the next

  HS_HD int64_t first(int64_t line) const {
    const int64_t outer = line / stride;
    return outer * pitch + (line - outer * stride);
  }
};

/// Terms k, k + step, ... of a line: `count` of them.
struct TermShare {
  int64_t k;
  int step, count;

  HS_HD int64_t term(int j) const { return k + int64_t{j} * step; }
  /// Returns the elements of these terms; term 0 is element `first`, and terms are `stride` apart.
  HS_HD Spaced elements(int64_t first, int64_t stride) const {
    return {first + k * stride, step * stride, count};
  }
};

/// Divides lines of `size` terms among blocks, and each block's threads among its lines.
struct LineTeams {
  static constexpr int kThreadBits = 8, kThreads = 1 << kThreadBits;
  static constexpr int kPieceBits = 11, kPiece = 1 << kPieceBits;
  static constexpr int kMostLines = kThreads / kPartialSums;
  static_assert(kPiece == kThreads * kSeveral, "a thread has several terms of a piece");

  int64_t lines = 0, size = 0;
  int line_bits = 0;          ///< a block has 2^line_bits lines
  bool side_by_side = false;  ///< adjacent threads have adjacent lines; otherwise adjacent terms

  /// `neighbours` lines are adjacent in memory, term by term; 1: the terms of a line are.
  static LineTeams of(int64_t lines, int64_t size, int64_t neighbours) {
    // Short lines share a block. Adjacent lines share transactions of memory; if there are few of
    // them, more blocks are worth more than the largest transactions.
    constexpr int64_t kManyLines = 4096;
    LineTeams teams{.lines = lines, .size = size, .side_by_side = neighbours > 1};
    const int most_beside = lines < kManyLines ? 3 : 4;
    while (int64_t{2} << teams.line_bits <= kMostLines) {
      const bool fit = size << (teams.line_bits + 1) <= kPiece;
      const bool beside =
          teams.line_bits < most_beside && int64_t{2} << teams.line_bits <= neighbours;
      if (!fit && !beside) break;
      ++teams.line_bits;
    }
    return teams;
  }

  int64_t blocks() const { return ceil_div(lines, lines_of_block()); }
  HS_HD int lines_of_block() const { return 1 << line_bits; }
  HS_HD int worker_bits() const { return kThreadBits - line_bits; }
  HS_HD int workers() const { return 1 << worker_bits(); }
  /// Returns the thread's line in its block, and which of the line's workers it is.
  HS_HD int place(int thread) const {
    return side_by_side ? thread & (lines_of_block() - 1) : thread >> worker_bits();
  }
  HS_HD int worker(int thread) const {
    return side_by_side ? thread >> line_bits : thread & (workers() - 1);
  }
  HS_HD int thread_of(int place, int worker) const {
    return side_by_side ? (worker << line_bits) + place : (place << worker_bits()) + worker;
  }
  HS_HD int64_t line(int64_t block, int thread) const {
    return (block << line_bits) + place(thread);
  }

  HS_HD int piece_bits() const { return kPieceBits - line_bits; }
  HS_HD int terms_of_piece() const { return 1 << piece_bits(); }
  HS_HD int64_t pieces() const { return larger((size + terms_of_piece() - 1) >> piece_bits(), 1); }
  /// Returns how many terms of a line a piece has.
  HS_HD int terms_in(int64_t piece) const {
    return static_cast<int>(smaller(terms_of_piece(), size - (piece << piece_bits())));
  }
  /// Returns the thread's terms of a piece; all pieces together: of the line.
  HS_HD TermShare share(int64_t piece, int thread) const {
    const int first = worker(thread), rest = terms_in(piece) - first;
    const int count = rest > 0 ? (rest + workers() - 1) >> worker_bits() : 0;
    return {(piece << piece_bits()) + first, workers(), count};
  }
  /// Returns where a term of a piece is in shared memory.
  HS_HD int slot(int place, int k) const {
    return side_by_side ? (k << line_bits) + place : (place << piece_bits()) + k;
  }
};

/// The largest term of each line; NaN if any term is.
struct TeamLargest {
  double of_thread[LineTeams::kThreads];
  double of_line[LineTeams::kMostLines * kPartialSums];

  HS_HD static double larger_of(double a, double b) { return b > a || is_nan(b) ? b : a; }

  /// Step 0: stores the largest term that the thread has seen. Step 1: combines.
  HS_HD void store(int thread, double largest) { of_thread[thread] = largest; }
  HS_HD void combine(const LineTeams& teams, int thread) {
    const int place = teams.place(thread), worker = teams.worker(thread);
    if (worker >= kPartialSums) return;
    double largest = of_thread[thread];
    for (int other = worker + kPartialSums; other < teams.workers(); other += kPartialSums) {
      largest = larger_of(largest, of_thread[teams.thread_of(place, other)]);
    }
    of_line[place * kPartialSums + worker] = largest;
  }
  /// Returns the largest term of the thread's line, after these steps.
  HS_HD double of(const LineTeams& teams, int thread) const {
    const double* const parts = of_line + teams.place(thread) * kPartialSums;
    double largest = parts[0];
    for (int j = 1; j < kPartialSums; ++j) largest = larger_of(largest, parts[j]);
    return largest;
  }
};

/// kSums sums over each line: in steps(), after which total() is known to all threads.
template <int kSums>
struct TeamSums {
  static constexpr int kPiece = LineTeams::kPiece;

  /// Terms in double, or pairs of factors in fp32.
  struct Shared {
    uint64_t term[kSums][kPiece];
    double partial[kSums][LineTeams::kMostLines * kPartialSums];
  };
  struct State {
    double sum[kSums];
  };
  LineTeams teams;
  SumWay way = SumWay::wide;

  HS_HD int64_t pieces() const { return way == SumWay::named ? 1 : teams.pieces(); }
  HS_HD int64_t steps() const { return 2 * pieces(); }

  /// For threads with a line. compute(share, double[kSums][kSeveral]) computes terms in double.
  /// `factors` has left(sum, k) and right(sum, k), the factors in fp32, and total(sum), the named
  /// sum.
  template <class Compute, class Factors>
  HS_HD void step(int64_t s, int thread, Shared& shared, State& state, const Compute& compute,
                  const Factors& factors) const {
    if (way == SumWay::named) {
      if (s == 1 && teams.worker(thread) == 0) {
        for (int sum = 0; sum < kSums; ++sum) {
          shared.partial[sum][teams.place(thread) * kPartialSums] = factors.total(sum);
        }
      }
    } else if (s % 2 == 0 && way == SumWay::wide) {
      fill(s / 2, thread, shared, compute);
    } else {
      step_of_factors(s, thread, shared, state, factors);
    }
  }
  /// Same for sums that are always interleaved.
  template <class Factors>
  HS_HD void step_of_factors(int64_t s, int thread, Shared& shared, State& state,
                             const Factors& factors) const {
    if (s % 2 == 0) {
      fill_factors(s / 2, thread, shared, factors);
    } else if (teams.worker(thread) < kPartialSums) {
      if (s == 1) {
        for (double& sum : state.sum) sum = 0.0;
      }
      for (int sum = 0; sum < kSums; ++sum) add(s / 2, thread, sum, shared, state);
    }
  }

  /// Returns a sum of the thread's line.
  HS_HD double total(int sum, int thread, const Shared& shared) const {
    const double* const parts = shared.partial[sum] + teams.place(thread) * kPartialSums;
    if (way == SumWay::named) return parts[0];
    return way == SumWay::wide ? add_tree(parts) : static_cast<double>(add_tree<float>(parts));
  }

  /// Returns whether the terms of whole lines, in double, are still in shared memory after steps().
  HS_HD bool keeps_terms() const { return way == SumWay::wide && teams.pieces() == 1; }
  /// Returns the thread's j-th term of the only piece.
  HS_HD double kept_term(int sum, int thread, int j, const Shared& shared) const {
    return std::bit_cast<double>(shared.term[sum][slot(thread, j)]);
  }

 private:
  /// Returns where the thread's j-th term of a piece is in shared memory.
  HS_HD int slot(int thread, int j) const {
    return teams.slot(teams.place(thread), teams.worker(thread) + j * teams.workers());
  }
  template <class Compute>
  HS_HD void fill(int64_t piece, int thread, Shared& shared, const Compute& compute) const {
    const TermShare share = teams.share(piece, thread);
    double terms[kSums][kSeveral];
    compute(share, terms);
    for (int sum = 0; sum < kSums; ++sum) {
      for (int j = 0; j < kSeveral; ++j) {
        if (j >= share.count) continue;
        shared.term[sum][slot(thread, j)] = std::bit_cast<uint64_t>(terms[sum][j]);
      }
    }
  }
  template <class Factors>
  HS_HD void fill_factors(int64_t piece, int thread, Shared& shared, const Factors& factors) const {
    const TermShare share = teams.share(piece, thread);
    for (int j = 0; j < share.count; ++j) {
      for (int sum = 0; sum < kSums; ++sum) {
        const uint32_t left = std::bit_cast<uint32_t>(factors.left(sum, share.term(j)));
        const uint32_t right = std::bit_cast<uint32_t>(factors.right(sum, share.term(j)));
        shared.term[sum][slot(thread, j)] = uint64_t{right} << 32 | left;
      }
    }
  }

  HS_HD void add(int64_t piece, int thread, int which, Shared& shared, State& state) const {
    const int place = teams.place(thread), partial = teams.worker(thread);
    const int n = teams.terms_in(piece), begin = teams.slot(place, partial);
    const int step = teams.slot(0, kPartialSums);
    const uint64_t* const terms = shared.term[which];
    double sum = state.sum[which];
    if (way == SumWay::wide) {
      for (int k = partial, at = begin; k < n; k += kPartialSums, at += step) {
        sum += std::bit_cast<double>(terms[at]);
      }
    } else {
      float narrow = static_cast<float>(sum);
      for (int k = partial, at = begin; k < n; k += kPartialSums, at += step) {
        const float left = std::bit_cast<float>(static_cast<uint32_t>(terms[at]));
        const float right = std::bit_cast<float>(static_cast<uint32_t>(terms[at] >> 32));
        narrow = std::fma(left, right, narrow);
      }
      sum = static_cast<double>(narrow);
    }
    state.sum[which] = sum;
    if (piece + 1 == pieces()) shared.partial[which][place * kPartialSums + partial] = sum;
  }
};

}  // namespace halfscope::gpu
