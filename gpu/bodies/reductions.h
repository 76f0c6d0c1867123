// SPDX-License-Identifier: MIT
// Reductions: output o takes the elements x[outer.offset(o) + inner.offset(k)] in ascending k.
#pragma once

#include <cstdint>
#include <limits>

#include "core/numeric/chain.h"
#include "gpu/bodies/indexing.h"

namespace halfscope::gpu {

struct Reduction {
  Strided outer, inner;
  int64_t count = 1;  ///< elements for one output

  HS_HD int64_t at(int64_t o, int64_t k) const { return outer.offset(o) + inner.offset(k); }
};

template <class T>
struct Sum {
  const T* x;
  T* y;
  Reduction reduction;
  ChainSpec how;
  bool mean;

  struct Terms {
    const T* x;  ///< moved to the output's first element
    const Strided& inner;
    HS_HD float left(int64_t k) const { return static_cast<float>(x[inner.offset(k)]); }
    HS_HD float right(int64_t) const { return 1.0f; }
    HS_HD bool present(int64_t) const { return true; }
  };

  HS_HD void operator()(int64_t o) const {
    const double sum = total(x + reduction.outer.offset(o), o);
    // In double the quotient of two fp32 numbers rounds to fp32 as the fp32 quotient does.
    y[o] = deliver_as(mean ? sum / static_cast<double>(reduction.count) : sum);
  }

 private:
  HS_HD double total(const float* first, int64_t o) const {
    return sum_of_terms(how, Terms{first, reduction.inner}, reduction.count, o);
  }
  HS_HD double total(const double* first, int64_t) const {
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
  const T* dy;
  T* dx;
  Reduction reduction;

  HS_HD void operator()(int64_t item) const {
    const int64_t o = item / reduction.count, k = item % reduction.count;
    dx[reduction.at(o, k)] = dy[o] / static_cast<T>(reduction.count);
  }
};

template <class T>
struct Max {
  const T* x;
  T* y;
  Reduction reduction;

  HS_HD void operator()(int64_t o) const {
    T largest = -std::numeric_limits<T>::infinity();
    for (int64_t k = 0; k < reduction.count; ++k) {
      const T value = x[reduction.at(o, k)];
      if (value > largest || is_nan(value)) largest = value;
    }
    y[o] = largest;
  }
};

template <class T>
struct MaxGrad {
  const T *dy, *x, *y;
  T* dx;
  Reduction reduction;

  HS_HD void operator()(int64_t o) const {
    const T largest = y[o];
    int64_t ties = 0;
    for (int64_t k = 0; k < reduction.count; ++k) ties += x[reduction.at(o, k)] == largest ? 1 : 0;
    for (int64_t k = 0; k < reduction.count; ++k) {
      const int64_t at = reduction.at(o, k);
      // Nothing equals a NaN maximum; its gradient must not vanish, and is NaN as in PyTorch.
      const T share =
          ties == 0 ? std::numeric_limits<T>::quiet_NaN() : dy[o] / static_cast<T>(ties);
      dx[at] = ties == 0 || x[at] == largest ? share : T{0};
    }
  }
};

}  // namespace halfscope::gpu
