// SPDX-License-Identifier: MIT
// Positions in tensors, computed from an element's index in row-major order.
#pragma once

#include <cstdint>

#include "gpu/bodies/divisor.h"
#include "gpu/bodies/several.h"
#include "gpu/bodies/work.h"

namespace halfscope::gpu {

inline constexpr int kMaxRank = 8;

/// Maps element i of a box of these sizes to its position, with these strides.
struct Strided {
  int rank = 0;
  Divisors<kMaxRank> size;
  int64_t stride[kMaxRank] = {};

  HS_HD int64_t offset(int64_t i) const noexcept {
    if (rank == 0) return 0;
    int64_t result = 0;
    for (int d = rank - 1; d > 0; --d) {
      const Divisor along = size[d];
      const int64_t outer = i / along;
      result += (i - outer * along) * stride[d];
      i = outer;
    }
    return result + i * stride[0];
  }
  /// Returns whether the elements are contiguous.
  bool is_whole() const noexcept { return rank == 0 || (rank == 1 && stride[0] == 1); }
  /// Returns whether kSeveral neighbours that begin at a multiple of kSeveral are neighbours in
  /// memory, too, and also begin at a multiple.
  HS_HD bool keeps_neighbours() const noexcept {
    const int last = rank - 1;
    if (last < 0 || stride[last] != 1 || int64_t{size[last]} % kSeveral != 0) return false;
    for (int d = 0; d < last; ++d) {
      if (stride[d] % kSeveral != 0) return false;
    }
    return true;
  }
};

/// y[i] = x[i] for all i. Item: several elements.
template <class T>
struct Copy {
  In<T> x;
  Out<T> y;
  int64_t n;

  HS_HD int64_t items() const { return items_of_several(n); }
  HS_HD void operator()(int64_t item) const {
    const Neighbours at = several_of(item, n);
    T element[kSeveral];
    read(x, at, element);
    write(y, at, element);
  }
};

/// y[i] = x[from.offset(i)] for all i.
template <class T>
struct CopyFrom {
  In<T> x;
  Out<T> y;
  Strided from;

  HS_HD void operator()(int64_t i) const { y[i] = x[from.offset(i)]; }
};

/// y[to.offset(i)] = x[i] for all i.
template <class T>
struct CopyTo {
  In<T> x;
  Out<T> y;
  Strided to;

  HS_HD void operator()(int64_t i) const { y[to.offset(i)] = x[i]; }
};

/// Copies to[i] = from[i] for all i of a box within both.
template <class T>
struct CopyBox {
  In<T> x;
  Out<T> y;
  Strided from, to;

  HS_HD void operator()(int64_t i) const { y[to.offset(i)] = x[from.offset(i)]; }
};

/// Same for boxes that keep neighbours on both sides. Item: several elements.
template <class T>
struct CopyPacks {
  In<T> x;
  Out<T> y;
  Strided from, to;

  HS_HD void operator()(int64_t item) const {
    const int64_t i = item * kSeveral;
    T element[kSeveral];
    read(x, Neighbours{from.offset(i), kSeveral}, element);
    write(y, Neighbours{to.offset(i), kSeveral}, element);
  }
};

template <class T>
struct Fill {
  Out<T> y;
  T value;
  HS_HD void operator()(int64_t i) const { y[i] = value; }
};

/// Item: several elements, all of which become zero.
template <class T>
struct Zeros {
  Out<T> y;
  int64_t n;

  HS_HD int64_t items() const { return items_of_several(n); }
  HS_HD void operator()(int64_t item) const {
    const T zeros[kSeveral] = {};
    write(y, several_of(item, n), zeros);
  }
};

template <class From, class To>
struct Convert {
  In<From> x;
  Out<To> y;
  HS_HD void operator()(int64_t i) const { y[i] = static_cast<To>(x[i]); }
};

}  // namespace halfscope::gpu
