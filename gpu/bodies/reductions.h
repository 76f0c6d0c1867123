// SPDX-License-Identifier: MIT
// Reductions: output o combines the elements x[outer.offset(o) + inner.offset(k)] in ascending k.
#pragma once

#include <cstdint>
#include <limits>

#include "core/numeric/sums/chain.h"
#include "gpu/bodies/gather.h"
#include "gpu/bodies/indexing.h"

namespace halfscope::gpu {

struct Reduction {
  Strided outer, inner;
  Divisor count = 1;  ///< elements per output

  HS_HD int64_t at(int64_t o, int64_t k) const { return outer.offset(o) + inner.offset(k); }
};

template <class T>
struct Sum {
  In<T> x;
  Out<T> y;
  Reduction reduction;
  ChainSpec how;
  bool mean;

  struct Terms {
    In<T> x;  ///< starts at the output's first element
    const Strided& inner;
    HS_HD float left(int64_t k) const { return static_cast<float>(x[inner.offset(k)]); }
    HS_HD float right(int64_t) const { return 1.0f; }
    HS_HD bool present(int64_t) const { return true; }
  };

  HS_HD void operator()(int64_t o) const {
    const double sum = total(x + reduction.outer.offset(o), o);
    // The quotient of two fp32 numbers, computed in double, rounds to the same fp32 number as the
    // fp32 quotient does.
    y[o] = deliver_as(mean ? sum / static_cast<double>(reduction.count) : sum);
  }

 private:
  HS_HD double total(const In<float>& first, int64_t o) const {
    return sum_of_terms(how, Terms{first, reduction.inner}, reduction.count, o);
  }
  HS_HD double total(const In<double>& first, int64_t) const {
    double sum = 0.0;
    for (int64_t k = 0; k < reduction.count; ++k) sum += first[reduction.inner.offset(k)];
    return sum;
  }
  HS_HD T deliver_as(double value) const {
    return how.is_wide() ? delivered<T>(value, how.write) : static_cast<T>(value);
  }
};

/// Item = o * count + k.
template <class T>
struct MeanGrad {
  In<T> dy;
  Out<T> dx;
  Reduction reduction;

  HS_HD void operator()(int64_t item) const {
    const int64_t o = item / reduction.count, k = item % reduction.count;
    dx[reduction.at(o, k)] = dy[o] / static_cast<T>(reduction.count);
  }
};

/// The largest or the smallest element; a NaN wins over any number.
template <class T>
struct Extreme {
  In<T> x;
  Out<T> y;
  Reduction reduction;
  bool smallest;

  HS_HD void operator()(int64_t o) const {
    const T infinity = std::numeric_limits<T>::infinity();
    T best = smallest ? infinity : -infinity;
    for (int64_t k = 0; k < reduction.count; ++k) {
      const T value = x[reduction.at(o, k)];
      const bool wins = smallest ? value < best : value > best;
      if (wins || is_nan(value)) best = value;
    }
    y[o] = best;
  }
};

/// Item: an element. Prefix sums along an axis of `length` elements `inner` apart, each summed on
/// its own: for accumulations that RunningSums does not suit.
template <class T>
struct CumulativeSum {
  In<T> x;
  Out<T> y;
  Divisor length, inner;
  bool reverse, exclusive;
  ChainSpec how;

  struct Terms {
    In<T> first;
    int64_t step;
    HS_HD float left(int64_t k) const { return static_cast<float>(first[k * step]); }
    HS_HD float right(int64_t) const { return 1.0f; }
    HS_HD bool present(int64_t) const { return true; }
  };

  HS_HD void operator()(int64_t item) const {
    const int64_t place = item / inner % length;
    const int64_t passed = reverse ? length - 1 - place : place;
    const int64_t first = item - place * inner + (reverse ? (length - 1) * inner : 0);
    const Terms terms{x + first, reverse ? -inner : int64_t{inner}};
    const double sum = total(terms, exclusive ? passed : passed + 1, item, T{0});
    y[item] = how.is_wide() ? delivered<T>(sum, how.write) : static_cast<T>(sum);
  }

 private:
  HS_HD double total(const Terms& terms, int64_t n, int64_t item, float) const {
    return sum_of_terms(chain_of_row(how, item), terms, n, 0);
  }
  HS_HD double total(const Terms& terms, int64_t n, int64_t, double) const {
    double sum = 0.0;
    for (int64_t k = 0; k < n; ++k) sum += terms.first[k * terms.step];
    return sum;
  }
};

template <class T>
struct MaxGrad {
  In<T> dy, x, y;
  Out<T> dx;
  Reduction reduction;

  HS_HD void operator()(int64_t o) const {
    const T largest = y[o];
    int64_t ties = 0;
    for (int64_t k = 0; k < reduction.count; ++k) ties += x[reduction.at(o, k)] == largest ? 1 : 0;
    for (int64_t k = 0; k < reduction.count; ++k) {
      const int64_t at = reduction.at(o, k);
      // Nothing equals a NaN maximum. Its gradient must not vanish; it is NaN, as in PyTorch.
      const T share =
          ties == 0 ? std::numeric_limits<T>::quiet_NaN() : dy[o] / static_cast<T>(ties);
      dx[at] = ties == 0 || x[at] == largest ? share : T{0};
    }
  }
};

}  // namespace halfscope::gpu
