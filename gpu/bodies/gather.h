// SPDX-License-Identifier: MIT
// Gather, GatherElements and their gradients, which sum in ascending order of the positions in
// `indices`: a stable sort by the row that each position reads puts the terms of a row next to each
// other (Executor::sort). The caller has checked the indices.
#pragma once

#include <cstdint>

#include "core/bodies/indices.h"
#include "core/numeric/sums/chain.h"
#include "gpu/bodies/indexing.h"

namespace halfscope::gpu {

/// Returns `how` with the key of the random words for the sum of line `row` of a table
/// (sums_of_row() in core/lower/execution.h).
HS_HD constexpr ChainSpec chain_of_row(ChainSpec how, int64_t row) noexcept {
  how.key = splitmix64(how.key + static_cast<uint64_t>(row));
  return how;
}

/// Item: an element of y.
template <class T>
struct Gather {
  In<T> x;
  const int32_t* index;
  Out<T> y;
  GatherShape<Divisor> s;

  HS_HD void operator()(int64_t item) const {
    y[item] = x[s.line(index, item / s.inner) * s.inner + item % s.inner];
  }
};

/// Item: a position in `index`. Makes the pair to sort: the row that it reads, and the position.
struct RowKeys {
  const int32_t* index;
  int64_t length;
  uint32_t* rows;
  int32_t* places;

  HS_HD void operator()(int64_t item) const {
    rows[item] = static_cast<uint32_t>(from_end(index[item], length));
    places[item] = static_cast<int32_t>(item);
  }
};

/// Same for GatherElements, where each element of x is a row.
struct ElementKeys {
  const int32_t* index;
  Strided at;  ///< position of the indices in x, 0 along the axis
  int64_t length, stride;
  uint32_t* rows;
  int32_t* places;

  HS_HD void operator()(int64_t item) const {
    rows[item] = static_cast<uint32_t>(at.offset(item) + from_end(index[item], length) * stride);
    places[item] = static_cast<int32_t>(item);
  }
};

/// Plain values x[places(k)].
template <class T>
struct PickedTerms {
  In<T> x;
  const int32_t* places;
  int64_t stride;
  HS_HD float left(int64_t k) const { return static_cast<float>(x[places[k] * stride]); }
  HS_HD float right(int64_t) const { return 1.0f; }
  HS_HD bool present(int64_t) const { return true; }
};

/// Item: an element of dy. The first one of each row sums the row; dx must be zero before.
template <class T>
struct GatherGrad {
  In<T> dy;
  const uint32_t* rows;   ///< ascending
  const int32_t* places;  ///< positions in `index` in the order of their rows
  Out<T> dx;
  GatherShape<Divisor> s;
  ChainSpec how;

  HS_HD void operator()(int64_t item) const {
    const int64_t line = item / s.inner, i = item - line * s.inner;
    const int64_t o = line / s.count, k = line - o * s.count;
    const int64_t row = rows[k];
    if (k > 0 && rows[k - 1] == row) return;
    const PickedTerms<T> picked{dy + o * s.count * s.inner + i, places + k, s.inner};
    dx[(o * s.length + row) * s.inner + i] = total(picked, end_of_row(k) - k, row, o * s.inner + i);
  }

 private:
  /// Returns the end of the row that begins at k. Most rows are short.
  HS_HD int64_t end_of_row(int64_t k) const {
    const uint32_t row = rows[k];
    int64_t step = 1;
    while (k + step < s.count && rows[k + step] == row) step *= 2;
    int64_t inside = k + step / 2, outside = smaller(k + step, s.count);
    while (outside - inside > 1) {
      const int64_t middle = inside + (outside - inside) / 2;
      (rows[middle] == row ? inside : outside) = middle;
    }
    return outside;
  }
  HS_HD float total(const PickedTerms<float>& picked, int64_t n, int64_t row,
                    int64_t element) const {
    const ChainSpec own = chain_of_row(how, row);
    return deliver_sum(own, sum_of_terms(own, picked, n, element), nullptr, n, element);
  }
  HS_HD double total(const PickedTerms<double>& picked, int64_t n, int64_t, int64_t) const {
    double sum = 0.0;
    for (int64_t k = 0; k < n; ++k) sum += picked.x[picked.places[k] * picked.stride];
    return sum;
  }
};

/// Item: an element of `indices`. Its position in x is the same along all axes except the one with
/// this length and stride.
template <class T>
struct GatherElements {
  In<T> x;
  const int32_t* index;
  Out<T> y;
  Strided at;  ///< position of the indices in x, 0 along the axis
  int64_t length, stride;

  HS_HD void operator()(int64_t item) const {
    y[item] = x[at.offset(item) + from_end(index[item], length) * stride];
  }
};

/// Item: an element of dx; dy has one element per row.
template <class T>
struct GatherLabelsGrad {
  In<T> dy;
  const int32_t* index;
  Out<T> dx;
  Divisor columns;

  HS_HD void operator()(int64_t i) const {
    const int64_t row = i / columns;
    dx[i] = index[row] == i - row * columns ? dy[row] : T{0};
  }
};

}  // namespace halfscope::gpu
