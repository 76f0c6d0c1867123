// SPDX-License-Identifier: MIT
// Sums for fused normalizations, in double and in an order that suits vectors of any width.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace halfscope {

inline constexpr size_t kPartials = 16;

struct PlaneSums {
  double first = 0.0, second = 0.0;
};

/// Returns the sums of two functions of the element over one plane. Element i goes to partial sum i
/// % 16; the partial sums are added as a balanced tree.
template <class F>
PlaneSums plane_sums(int64_t n, const F& f) {
  std::array<double, kPartials> first{}, second{};
  int64_t i = 0;
  for (; i + static_cast<int64_t>(kPartials) <= n; i += static_cast<int64_t>(kPartials)) {
    for (size_t j = 0; j < kPartials; ++j) f(i + static_cast<int64_t>(j), first[j], second[j]);
  }
  for (; i < n; ++i) {
    const size_t j = static_cast<size_t>(i) % kPartials;
    f(i, first[j], second[j]);
  }
  for (size_t width = kPartials / 2; width > 0; width /= 2) {
    for (size_t j = 0; j < width; ++j) {
      first[j] += first[j + width];
      second[j] += second[j + width];
    }
  }
  return {first[0], second[0]};
}

}  // namespace halfscope
