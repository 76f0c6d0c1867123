// SPDX-License-Identifier: MIT
// Gradients of data-parallel ranks (formulas in core/ops/training.cpp). Elements are reduced in
// blocks, of which a ring needs only two rows at a time: these fit into the first-level cache. The
// Program does the final rounding.
#include "core/ops/rank_reduction.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
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

template <class T>
void rank_gradients(KernelCall<T>& c) {
  const int64_t n = c.in_count(1), rank = static_cast<int64_t>(c.in[2][0]);
  const T* const gradient = c.in[1];
  T* const row = c.out[0] + rank * n;
  const bool stream = static_cast<size_t>(c.out_count(0)) * sizeof(T) >= kStreamFrom;
  parallel_ranges(n, kGrain, [&](int64_t begin, int64_t end) {
    if (stream) {
      copy_past_caches(gradient + begin, row + begin, end - begin);
    } else {
      std::copy(gradient + begin, gradient + end, row + begin);
    }
  });
}

void round_row(float* row, int64_t n, const FloatFormat& format) {
  if (format != kFp32) round_array(row, row, n, format, TensorRounding{});
}
void round_row(double*, int64_t, const FloatFormat&) {}

template <class T>
void rank_reduction(KernelCall<T>& c) {
  const Reduction how = reduction_of(*c.node);
  if (is_exchanged(*c.node)) {
    std::copy_n(c.in[0], c.out_count(0), c.out[0]);
    return;
  }
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
