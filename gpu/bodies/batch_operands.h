// SPDX-License-Identifier: MIT
// The copies and the results of library_operands.h for several products of a batch at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/bodies/divisor.h"
#include "gpu/bodies/library_operands.h"

namespace halfscope::gpu {

/// PackLines of the products from `first` on, one copy after another.
template <class Source, bool kFirst>
struct PackProducts {
  PackLines<Source, kFirst> all;
  Divisor items;  ///< of one product
  int64_t first;

  HS_HD void operator()(int64_t item) const {
    const int64_t p = item / items;
    std::byte* const to =
        static_cast<std::byte*>(all.to) + p * (int64_t{items} * bytes_of(all.storage));
    const PackLines<Source, kFirst> one{all.source.product(first + p), to, all.pitch, all.storage};
    one(item - p * items);
  }
};

/// FinishMatrix of the products from `first` on, whose sums are `stride` elements apart.
template <class Source>
struct FinishProducts {
  FinishMatrix<Source> all;
  Divisor items;  ///< of one product
  int64_t first, stride;

  HS_HD void operator()(int64_t item) const {
    const int64_t p = item / items;
    const FinishMatrix<Source> one{all.source.product(first + p), all.epilogue,
                                   all.sums + p * stride, all.pitch};
    one(item - p * items);
  }
};

}  // namespace halfscope::gpu
