// SPDX-License-Identifier: MIT
// Gradients of data-parallel ranks (formulas in core/ops/training.cpp). Elements are reduced in
// blocks, of which a ring needs only two rows at a time: these fit into the first-level cache. The
// Program does the final rounding. Where nobody reads the ranks' gradients, they are added as they
// come.
#include "core/ops/rank_reduction.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <type_traits>
#include <vector>

#include "core/numeric/sums/reduce_ranks.h"
#include "emulation/engine/kernel.h"
#include "emulation/engine/map_values.h"
#include "emulation/measure/measure.h"

namespace halfscope {
namespace {

constexpr int64_t kReduceBlock = 1024;

/// Larger stacks do not stay in the caches until they are reduced.
constexpr size_t kStreamFrom = size_t{8} << 20;

/// Copies n numbers with stores that bypass the caches, if the processor can do that.
template <class T>
void copy_past_caches(const T* in, T* out, int64_t n) {
#if defined(__x86_64__)
  constexpr int64_t kStep = sizeof(__m128i) / sizeof(T);
  int64_t i = 0;
  while (i < n && reinterpret_cast<uintptr_t>(out + i) % sizeof(__m128i) != 0) {
    out[i] = in[i];
    ++i;
  }
  for (; i + kStep <= n; i += kStep) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i)));
  }
  std::copy(in + i, in + n, out + i);
  _mm_sfence();
#else
  std::copy_n(in, n, out);
#endif
}

/// Asks for n numbers to be brought into the caches.
template <class T>
void prefetch(const T* x, int64_t n) {
#if defined(__GNUC__)
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t i = 0; i < n; i += kLine) __builtin_prefetch(x + i);
#else
  static_cast<void>(x);
  static_cast<void>(n);
#endif
}

void round_row(float* row, int64_t n, const FloatFormat& format) {
  if (format != kFp32) round_array(row, row, n, format, TensorRounding{});
}
void round_row(double*, int64_t, const FloatFormat&) {}

/// Adds ranks as soon as their gradients are there, so that most of the stack is never written.
/// Chunk c of a ring begins with rank c + 1, the last chunk and all of an all-to-all with rank 0.
/// The sum of the ranks from there on goes into the row of the last rank; lower ranks, which follow
/// at the end, are stored. At rank r, [0, begin(r - 1)) and the last chunk are added to,
/// [begin(r - 1), begin(r)) begins, and [begin(r), begin(last)) is stored.
template <class T>
class Folding {
 public:
  Folding(const KernelCall<T>& c, const FloatFormat& sent)
      : how_(reduction_of(*c.node)),
        sent_(sent),
        ranks_(c.in_shape(0)[0]),
        n_(c.in_count(0) / ranks_),
        is_sent_as_is_(sent.contains(c.graph->value(c.node->inputs[0]).format)),
        is_exact_(std::is_same_v<T, double> || sent == kFp32),
        divided_(divides_after() ? Divided{true, 1, 1}
                                 : Divided{std::has_single_bit(static_cast<uint64_t>(ranks_)),
                                           static_cast<T>(ranks_), T{1} / static_cast<T>(ranks_)}) {
  }

  int64_t ranks() const { return ranks_; }
  int64_t n() const { return n_; }
  bool divides_after() const { return how_.average == Reduction::Average::after; }
  /// Returns where a chunk that begins with rank `chunk` + 1 begins; of the last, where it begins.
  int64_t begin(int64_t chunk) const {
    if (how_.algorithm != Reduction::Algorithm::ring || chunk < 0) return 0;
    return chunk_begin(n_, ranks_, chunk);
  }
  /// Rounds and divides gradients as reduce_ranks() does before it adds them.
  void prepare(const T* gradient, T* row, int64_t size) const {
    if (!is_sent_as_is_) {
      std::copy_n(gradient, size, row);
      round_row(row, size, sent_);
      gradient = row;
    }
    const Divided divided = divided_;  // a copy: otherwise the row might overlap it
    for (int64_t i = 0; i < size; ++i) row[i] = divided(gradient[i]);
    if (!divides_after()) round_row(row, size, sent_);
  }
  /// Adds gradients of a rank to a sum, at most kReduceBlock of them. The last addition of the
  /// first `unstored` ones is not rounded here.
  void add(const T* __restrict__ gradient, T* __restrict__ sum, int64_t size,
           int64_t unstored) const {
    if (is_exact_) {
      const Divided divided = divided_;
      for (int64_t i = 0; i < size; ++i) sum[i] = divided(gradient[i]) + sum[i];
      return;
    }
    alignas(64) T own[kReduceBlock];
    prepare(gradient, own, size);
    for (int64_t i = 0; i < size; ++i) sum[i] = own[i] + sum[i];
    if (how_.algorithm == Reduction::Algorithm::all_to_all) return;
    const int64_t skip = divides_after() ? 0 : unstored;
    round_row(sum + skip, size - skip, sent_);
  }

 private:
  /// A product with the inverse of a power of two has the bits of the quotient.
  struct Divided {
    bool is_power;
    T divisor, inverse;
    T operator()(T x) const { return is_power ? x * inverse : x / divisor; }
  };

  Reduction how_;
  FloatFormat sent_;
  int64_t ranks_, n_;
  bool is_sent_as_is_;
  bool is_exact_;  ///< nothing is rounded to a format
  Divided divided_;
};

template <class T>
bool folds(const KernelCall<T>& c) {
  return !c.keeps && may_fold(*c.node);
}

template <class T>
void store_gradients(const T* gradient, T* row, int64_t n, bool stream) {
  parallel_ranges(n, kGrain, [&](int64_t begin, int64_t end) {
    if (stream) {
      copy_past_caches(gradient + begin, row + begin, end - begin);
    } else {
      std::copy(gradient + begin, gradient + end, row + begin);
    }
  });
}

template <class T>
void rank_gradients(KernelCall<T>& c) {
  const int64_t n = c.in_count(1), rank = static_cast<int64_t>(c.in[2][0]);
  const T* const gradient = c.in[1];
  T* const row = c.out[0] + rank * n;
  const bool stream = static_cast<size_t>(c.out_count(0)) * sizeof(T) >= kStreamFrom;
  if (!folds(c)) return store_gradients(gradient, row, n, stream);
  const Folding<T> folding(c, c.node->plan.write);
  const int64_t last = folding.ranks() - 1;
  T* const sum = c.out[0] + last * n;
  const auto add = [&](int64_t first, int64_t end, bool is_last) {
    parallel_ranges_in_vectors(end - first, kReduceBlock, [&](int64_t from, int64_t to) {
      const int64_t at = first + from, size = to - from;
      folding.add(gradient + at, sum + at, size, is_last ? size : 0);
    });
  };
  const auto start = [&](int64_t first, int64_t end) {
    folding.prepare(gradient + first, sum + first, end - first);
  };
  const int64_t started = folding.begin(rank - 1), stored = folding.begin(rank),
                last_chunk = folding.begin(last);
  add(0, started, false);
  start(started, stored);
  store_gradients(gradient + stored, row + stored, last_chunk - stored, stream);
  if (rank == 0) {
    start(last_chunk, n);
  } else {
    add(last_chunk, n, rank == last);
  }
}

/// Adds the ranks that come after the last one.
template <class T>
void finish_folding(KernelCall<T>& c) {
  const Folding<T> folding(c, c.out_format(0));
  const int64_t n = folding.n(), last = folding.ranks() - 1, last_chunk = folding.begin(last);
  const T *const stack = c.in[0], *const sum = stack + last * n;
  T* const out = c.out[0];
  parallel_ranges_in_vectors(n, kReduceBlock, [&](int64_t begin, int64_t end) {
    std::copy(sum + begin, sum + end, out + begin);
    const int64_t stop = std::min(end, last_chunk);
    for (int64_t rank = 0; rank < last && folding.begin(rank) < stop; ++rank) {
      const int64_t first = std::max(begin, folding.begin(rank));
      const int64_t next = std::clamp(folding.begin(rank + 1), first, stop);
      if (rank + 1 < last) prefetch(stack + (rank + 1) * n + next, stop - next);
      // The elements up to `next` have this rank as their last one.
      folding.add(stack + rank * n + first, out + first, stop - first, next - first);
    }
    if (folding.divides_after()) divide_by_ranks(out + begin, end - begin, folding.ranks());
  });
}

template <class T>
void rank_reduction(KernelCall<T>& c) {
  const Reduction how = reduction_of(*c.node);
  if (is_exchanged(*c.node)) {
    std::copy_n(c.in[0], c.out_count(0), c.out[0]);
    return;
  }
  if (folds(c)) return finish_folding(c);
  const int64_t n = c.out_count(0), ranks = c.in_shape(0)[0];
  const T *const stack = c.in[0], *const takes_part = c.in[1];
  const FloatFormat format = c.out_format(0);
  const bool is_sent_as_is = format.contains(c.graph->value(c.node->inputs[0]).format);
  const int64_t chunks = reduction_chunks(how.algorithm, ranks);
  const std::vector<RankAddition> additions = rank_additions(how.algorithm, ranks, 0);
  T* const out = c.out[0];
  parallel_ranges_in_vectors(n, kReduceBlock, [&](int64_t begin, int64_t end) {
    const int64_t size = end - begin;
    const auto round = [&](T* row) { round_row(row, size, format); };
    const auto load = [&](int64_t place, T* row) {
      for_ranks_at(place, n, chunks, begin, end, [&](int64_t rank, int64_t first, int64_t last) {
        T* const part = row + (first - begin);
        // A rank that skips the step alone may have a gradient that is not finite.
        if (takes_part[rank] == T{0}) {
          std::fill_n(part, last - first, T{0});
        } else {
          std::copy_n(stack + rank * n + first, last - first, part);
        }
      });
      if (!is_sent_as_is) round(row);
      // A ring needs the next place next. Its row is too far away for the processor to guess.
      for_ranks_at((place + 1) % ranks, n, chunks, begin, end,
                   [&](int64_t rank, int64_t first, int64_t last) {
                     prefetch(stack + rank * n + first, last - first);
                   });
    };
    const auto add = [&](T* __restrict__ own, const T* sent, bool stored) {
      for (int64_t i = 0; i < size; ++i) own[i] += sent[i];
      if (stored) round(own);
    };
    reduce_ranks<T>(how, additions, size, load, round, add, out + begin);
  });
}

}  // namespace

template <class T>
std::span<const KernelEntry<T>> rank_kernels() {
  static constexpr KernelEntry<T> kernels[] = {{"RankGradients", rank_gradients<T>},
                                               {"RankReduction", rank_reduction<T>}};
  return kernels;
}

template std::span<const KernelEntry<float>> rank_kernels();
template std::span<const KernelEntry<double>> rank_kernels();

}  // namespace halfscope
