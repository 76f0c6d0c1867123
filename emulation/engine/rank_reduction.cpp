// SPDX-License-Identifier: MIT
// Gradients of data-parallel ranks (formulas in core/ops/training.cpp). Elements are reduced in
// blocks that fit into the first-level caches; the Program does the final rounding.
#include "core/ops/rank_reduction.h"

#include <algorithm>
#include <vector>

#include "emulation/engine/kernel.h"
#include "emulation/measure/measure.h"

namespace halfscope {
namespace {

constexpr int64_t kReduceBlock = 256;

template <class T>
void rank_gradients(KernelCall<T>& c) {
  const int64_t n = c.in_count(1), rank = static_cast<int64_t>(c.in[2][0]);
  std::copy_n(c.in[1], n, c.out[0] + rank * n);
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
  const int64_t chunks = reduction_chunks(how.algorithm, ranks);
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const int64_t first = chunk_begin(n, chunks, chunk);
    const int64_t count = chunk_begin(n, chunks, chunk + 1) - first;
    const std::vector<RankAddition> additions = rank_additions(how.algorithm, ranks, chunk);
    parallel_ranges(count, kReduceBlock, [&](int64_t begin, int64_t end) {
      const int64_t size = end - begin;
      std::vector<T> block(static_cast<size_t>(ranks * size));
      std::vector<T*> rows;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        rows.push_back(block.data() + rank * size);
        if (takes_part[rank] != T{0}) {
          std::copy_n(stack + rank * n + first + begin, size, rows.back());
        }
      }
      reduce_rows<T>(
          how, additions, rows, size, [&](T* row, int64_t m) { round_row(row, m, format); },
          c.out[0] + first + begin);
    });
  }
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
