// SPDX-License-Identifier: MIT
// Finds the order in which a kernel sums, from the kernel's results alone. Then checks the kernel
// to the last bit: the same sum computed here in that order must have the same bits for any
// operands. Replace `kernel` with your own dot product.
#include <cmath>
#include <cstdio>
#include <random>
#include <span>
#include <vector>

#include "halfscope/core/numeric/sum_orders/summation_value.h"
#include "halfscope/core/numeric/sums/sum_bound.h"

using Row = std::span<const float>;

/// Sums in eight lanes, as a vector processor does, then adds the lanes in pairs and the remaining
/// terms.
float kernel(Row a, Row b) {
  float lanes[8] = {};
  const size_t whole = a.size() / 8 * 8;
  for (size_t k = 0; k < whole; ++k) lanes[k % 8] = std::fma(a[k], b[k], lanes[k % 8]);
  for (size_t width = 4; width > 0; width /= 2) {
    for (size_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  float sum = lanes[0];
  for (size_t k = whole; k < a.size(); ++k) sum = std::fma(a[k], b[k], sum);
  return sum;
}

int main() {
  constexpr int kTerms = 96, kTrials = 10000;
  const auto rows = [](Row a, Row b, int64_t count, int64_t n, std::span<float> out) {
    const size_t length = static_cast<size_t>(n);
    for (size_t r = 0; r < static_cast<size_t>(count); ++r) {
      out[r] = kernel(a.subspan(r * length, length), b.subspan(r * length, length));
    }
  };
  const halfscope::RecoveredTree found = halfscope::recover_summation_tree(kTerms, rows);
  if (!found.problem.empty()) {
    std::printf("no order: %s\n", found.problem.c_str());
    return 1;
  }
  std::printf("%s\n%s", describe(found.tree).c_str(), draw_text(found.tree).c_str());

  // TreeSum uses fused multiply-adds; where two summands meet, it rounds the earlier one first. Use
  // order->later_first() for a chain that descends.
  const auto order = halfscope::TreeSum::of(found.tree, std::nullopt);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  int same = 0, within = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<float> a(kTerms), b(kTerms);
    double exact = 0.0, magnitudes = 0.0;
    for (size_t k = 0; k < a.size(); ++k) {
      a[k] = normal(random);
      b[k] = normal(random);
      const double term = static_cast<double>(a[k]) * static_cast<double>(b[k]);
      exact += term;
      magnitudes += std::fabs(term);
    }
    const float sum = kernel(a, b);
    const double bound = halfscope::sum_error_bound(kTerms, halfscope::kFp32, magnitudes);
    same += order && (*order)(a, b) == sum ? 1 : 0;
    within += std::fabs(static_cast<double>(sum) - exact) <= bound ? 1 : 0;
  }
  std::printf("%d of %d sums have its bits, %d are within the bound of any order\n", same, kTrials,
              within);
  return same == kTrials && within == kTrials ? 0 : 1;
}
