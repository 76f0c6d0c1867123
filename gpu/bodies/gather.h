// SPDX-License-Identifier: MIT
// Gather, GatherElements and their gradients, which sum in ascending order of the positions in
// `indices`. The caller has checked the indices.
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

/// Item: a position in `index`. Sorts the positions by the rows that they read (stable): row r has
/// places[first[r]] to places[first[r] + terms[r]]. `terms` must be zero before.
struct SortByRow {
  const int32_t* index;
  int32_t *places, *first, *terms;
  GatherShape<Divisor> s;

  HS_HD void operator()(int64_t item) const {
    const int64_t row = from_end(index[item], s.length);
    int32_t below = 0, same = 0, before = 0;
    for (int64_t i = 0; i < s.count; ++i) {
      const int64_t other = from_end(index[i], s.length);
      below += other < row ? 1 : 0;
      same += other == row ? 1 : 0;
      before += other == row && i < item ? 1 : 0;
    }
    places[below + before] = static_cast<int32_t>(item);
    if (before != 0) return;
    first[row] = below;
    terms[row] = same;
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

/// Item: an element of dx.
template <class T>
struct GatherGrad {
  In<T> dy;
  const int32_t *places, *first, *terms;
  Out<T> dx;
  GatherShape<Divisor> s;
  ChainSpec how;

  HS_HD void operator()(int64_t item) const {
    const int64_t i = item % s.inner, row = item / s.inner % s.length;
    const int64_t o = item / s.inner / s.length;
    const int64_t n = terms[row];
    if (n == 0) {
      dx[item] = T{0};
      return;
    }
    const PickedTerms<T> picked{dy + o * s.count * s.inner + i, places + first[row], s.inner};
    dx[item] = total(picked, n, row, o * s.inner + i);
  }

 private:
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

/// Item: an element of dx.
template <class T>
struct GatherElementsGrad {
  In<T> dy;
  const int32_t* index;
  Out<T> dx;
  int rank;
  int axis;
  Divisors<kMaxRank> size;  ///< of x
  int64_t taken[kMaxRank];  ///< of indices
  ChainSpec how;

  HS_HD void operator()(int64_t item) const {
    int64_t rest = item, first = 0, stride = 1, step = 0, row = 0;
    bool inside = true;
    for (int d = rank - 1; d >= 0; --d) {
      const Divisor along = size[d];
      const int64_t at = rest % along;
      rest /= along;
      if (d == axis) {
        row = at;
        step = stride;
      } else {
        inside = inside && at < taken[d];
        first += at * stride;
      }
      stride *= taken[d];
    }
    dx[item] =
        inside ? total(Terms{*this, dy + first, index + first, step, row}, item, T{0}) : T{0};
  }

 private:
  /// The k-th element that reads this row.
  struct Terms {
    const GatherElementsGrad& of;
    In<T> x;
    const int32_t* index;
    int64_t step, row;
    HS_HD bool reads(int64_t j) const { return from_end(index[j * step], of.size[of.axis]) == row; }
    HS_HD int64_t count() const {
      int64_t n = 0;
      for (int64_t j = 0; j < of.taken[of.axis]; ++j) n += reads(j) ? 1 : 0;
      return n;
    }
    HS_HD T value(int64_t k) const {
      int64_t j = 0;
      while (!reads(j) || k-- > 0) ++j;
      return x[j * step];
    }
    HS_HD float left(int64_t k) const { return static_cast<float>(value(k)); }
    HS_HD float right(int64_t) const { return 1.0f; }
    HS_HD bool present(int64_t) const { return true; }
  };
  HS_HD float total(const Terms& terms, int64_t item, float) const {
    const int64_t n = terms.count();
    const ChainSpec own = chain_of_row(how, item);
    return n == 0 ? 0.0f : deliver_sum(own, sum_of_terms(own, terms, n, 0), nullptr, n, 0);
  }
  HS_HD double total(const Terms& terms, int64_t, double) const {
    double sum = 0.0;
    const int64_t n = terms.count();
    for (int64_t k = 0; k < n; ++k) sum += terms.value(k);
    return sum;
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
