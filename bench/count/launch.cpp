// SPDX-License-Identifier: MIT
#include "bench/count/launch.h"

#include <algorithm>
#include <cmath>

namespace halfscope::count {
namespace {

/// Returns the share of a product's tiles that does useful work: sizes are rounded up to tiles, and
/// tiles to rounds of all processors. Long sums are split if there are few tiles.
double filled(const Launch& launch) {
  constexpr double kTile = 128.0, kLeast = 64.0, kLeastTerms = 256.0;
  const double m = static_cast<double>(launch.m), n = static_cast<double>(launch.n);
  const auto up = [](double x, double to) { return std::ceil(x / to) * to; };
  const double useful = m * n / (up(m, kLeast) * up(n, kLeast));
  const double tiles =
      std::ceil(m / kTile) * std::ceil(n / kTile) * static_cast<double>(launch.count);
  const double splits = std::max(1.0, std::floor(static_cast<double>(launch.k) / kLeastTerms));
  const double processors = static_cast<double>(kProcessors);
  const double work = std::min(tiles * splits, std::max(tiles, processors));
  return useful * work / up(work, processors);
}

double product_seconds(const Launch& launch, const Rates& rates) {
  const double share = launch.convolution ? rates.convolution_share : rates.matrix_share;
  const double peak = launch.bits == 8    ? 2.0 * rates.tensor_16
                      : launch.bits == 16 ? rates.tensor_16
                      : launch.bits == 19 ? rates.tensor_16 / 2.0
                                          : rates.plain_32;
  return launch.flop / (peak * share * filled(launch));
}

}  // namespace

double seconds_of(const Launch::Chain& chain, const Rates& rates) {
  return chain.memory * rates.from_memory + chain.cache * rates.from_cache +
         chain.near * rates.from_near + chain.shared * rates.from_shared +
         chain.functions * rates.function;
}

double seconds(const Launch& launch, const Rates& rates) {
  const bool from_host = launch.kind == Launch::Kind::upload || launch.kind == Launch::Kind::feed;
  if (from_host) return rates.launch + launch.memory / rates.link;
  double longest = launch.memory / rates.memory;
  const auto at_least = [&](double other) { longest = std::max(longest, other); };
  if (launch.kind == Launch::Kind::product) at_least(product_seconds(launch, rates));
  at_least(launch.cache / rates.cache);
  at_least(launch.words * rates.per_word / rates.instructions +
           launch.functions * rates.per_function / rates.double_operations);
  at_least(seconds_of(launch.chain, rates));
  return rates.launch + longest;
}

}  // namespace halfscope::count
