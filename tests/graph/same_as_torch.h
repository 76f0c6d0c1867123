// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "core/tensor.h"

namespace halfscope::test {

/// `error` is PyTorch's error, relative to the largest magnitude; negative requires equality.
inline void expect_same(const Tensor& ours, const Tensor& theirs, double error,
                        const std::string& what) {
  SCOPED_TRACE(what);
  ASSERT_EQ(ours.shape, theirs.shape);
  double largest = 0.0;
  for (float x : theirs.data) {
    if (std::isfinite(x)) largest = std::max(largest, std::fabs(static_cast<double>(x)));
  }
  // Twice theirs and one ulp of the largest element of our own.
  const double tolerance = error < 0.0 ? 0.0 : largest * (2.0 * error + 0x1p-23);
  for (size_t i = 0; i < theirs.data.size(); ++i) {
    const float a = ours.data[i], b = theirs.data[i];
    if (std::isfinite(a) && std::isfinite(b)) {
      EXPECT_LE(std::fabs(static_cast<double>(a) - static_cast<double>(b)), tolerance)
          << i << ": " << a << ", PyTorch " << b;
    } else {
      EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b)))
          << i << ": " << a << ", PyTorch " << b;
    }
  }
}

}  // namespace halfscope::test
