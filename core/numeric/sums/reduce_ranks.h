// SPDX-License-Identifier: MIT
// Reduces the gradients of data-parallel ranks with the bits of reduce_rows(), but for elements of
// several chunks together, and with few rows in memory: a ring needs two, a tree about half of all.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/numeric/sums/reduction.h"

namespace halfscope {

/// Returns the rank at a place of a chunk's order. rank_additions() of that chunk is that of chunk
/// 0 with each rank moved on by `chunk`; other reductions than a ring have chunk 0 only.
inline int64_t rank_at(int64_t place, int64_t chunk, int64_t ranks) {
  return place + chunk < ranks ? place + chunk : place + chunk - ranks;
}

/// Calls f(rank, first, last) for the parts of elements begin .. end of a tensor of n elements that
/// come from one rank, if the rank at `place` of each chunk's order is wanted.
template <class F>
void for_ranks_at(int64_t place, int64_t n, int64_t chunks, int64_t begin, int64_t end,
                  const F& f) {
  const int64_t length = chunk_begin(n, chunks, 1);
  for (int64_t first = begin; first < end;) {
    const int64_t chunk = first / length, last = std::min(end, (chunk + 1) * length);
    f(chunks == 1 ? place : rank_at(place, chunk, chunks), first, last);
    first = last;
  }
}

/// Divides n numbers by the number of ranks. A product with a power of two has the same bits.
template <class T>
void divide_by_ranks(T* row, int64_t n, int64_t ranks) {
  const T divisor = static_cast<T>(ranks), inverse = T{1} / divisor;
  if (std::has_single_bit(static_cast<uint64_t>(ranks))) {
    for (int64_t i = 0; i < n; ++i) row[i] *= inverse;
  } else {
    for (int64_t i = 0; i < n; ++i) row[i] /= divisor;
  }
}

/// Rows of n numbers. A row that was given back is used again.
template <class T>
class RowPool {
 public:
  explicit RowPool(int64_t n) : n_(static_cast<size_t>(n)) {}
  T* take() {
    if (free_.empty()) {
      rows_.emplace_back(new T[n_]);  // not zeroed
      return rows_.back().get();
    }
    T* const row = free_.back();
    free_.pop_back();
    return row;
  }
  void give_back(T* row) { free_.push_back(row); }

 private:
  size_t n_;
  std::vector<std::unique_ptr<T[]>> rows_;
  std::vector<T*> free_;
};

/// Reduces n elements by the additions of chunk 0. `load(place, row)` writes n gradients as they
/// are sent, before the division: for each element, those of the rank at this place of its chunk's
/// order. `round(row)` rounds n numbers to the format that is sent, and `add(own, sent)` adds n
/// numbers to others. `out` gets the mean before it is stored, so the caller does the last
/// rounding. Divisions are computed in T.
template <class T, class Load, class Round, class Add>
void reduce_ranks(const Reduction& how, std::span<const RankAddition> additions, int64_t n,
                  const Load& load, const Round& round, const Add& add, T* out) {
  const int64_t ranks = static_cast<int64_t>(additions.size()) + 1;
  const bool after = how.average == Reduction::Average::after;
  const bool stores_each = how.algorithm != Reduction::Algorithm::all_to_all;
  RowPool<T> pool(n);
  std::vector<T*> rows(static_cast<size_t>(ranks), nullptr);
  const auto row_of = [&](int32_t place) {
    T*& row = rows[static_cast<size_t>(place)];
    if (row != nullptr) return row;
    row = pool.take();
    load(place, row);
    if (after) return row;
    divide_by_ranks(row, n, ranks);
    round(row);
    return row;
  };
  for (size_t k = 0; k < additions.size(); ++k) {
    T* const from = row_of(additions[k].from);
    T* const to = row_of(additions[k].to);
    add(to, from, stores_each && (after || k + 1 < additions.size()));
    pool.give_back(from);
  }
  std::copy_n(row_of(additions.empty() ? 0 : additions.back().to), n, out);
  if (after) divide_by_ranks(out, n, ranks);
}

}  // namespace halfscope
