// SPDX-License-Identifier: MIT
// Sums inside fused operators, in double and in an order that suits vectors of any width and the
// threads of a GPU.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/numeric/sums/accumulation.h"

namespace halfscope {

using Partials = std::array<double, kPartialSums>;

/// Adds partial sums as a balanced tree.
inline double add_tree(Partials partials) {
  for (size_t width = kPartialSums / 2; width > 0; width /= 2) {
    for (size_t j = 0; j < width; ++j) partials[j] += partials[j + width];
  }
  return partials[0];
}

struct PlaneSums {
  double first = 0.0, second = 0.0;
};

/// Returns the sums of two functions of the element over one plane. Element i goes to partial sum i
/// % 16; the partial sums are added as a balanced tree.
template <class F>
PlaneSums plane_sums(int64_t n, const F& f) {
  Partials first{}, second{};
  int64_t i = 0;
  for (; i + static_cast<int64_t>(kPartialSums) <= n; i += static_cast<int64_t>(kPartialSums)) {
    for (size_t j = 0; j < kPartialSums; ++j) f(i + static_cast<int64_t>(j), first[j], second[j]);
  }
  for (; i < n; ++i) {
    const size_t j = static_cast<size_t>(i) % kPartialSums;
    f(i, first[j], second[j]);
  }
  return {add_tree(first), add_tree(second)};
}

/// Returns the sum of at most kPartialSums terms: the same tree, without partial sums in memory,
/// which would take most of the time.
template <class F>
double short_sum(int64_t n, const F& f) {
  constexpr int64_t kHalf = kPartialSums / 2;
  std::array<double, kHalf> s{};
  for (int64_t i = 0; i < kHalf; ++i) s[static_cast<size_t>(i)] = i < n ? 0.0 + f(i) : 0.0;
  for (int64_t i = kHalf; i < n; ++i) s[static_cast<size_t>(i - kHalf)] += f(i);
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

/// Returns the sum of f(i) for all i in [0, n), in this order.
template <class F>
double wide_sum(int64_t n, const F& f) {
  constexpr int64_t kAtOnce = kPartialSums;
  if (n <= kAtOnce) return short_sum(n, f);
  Partials sums{};
  int64_t i = 0;
  for (; i + kAtOnce <= n; i += kAtOnce) {
    for (int64_t j = 0; j < kAtOnce; ++j) sums[static_cast<size_t>(j)] += f(i + j);
  }
  for (int64_t j = 0; i + j < n; ++j) sums[static_cast<size_t>(j)] += f(i + j);
  return add_tree(sums);
}

}  // namespace halfscope
