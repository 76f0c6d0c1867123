// SPDX-License-Identifier: MIT
// The stages of a sum, from the inside out: chain, promotion, split k, final rounding. Relative
// errors of stages multiply as (1 + x)(1 + y) - 1.
#include "core/numeric/sums/accumulation_bound.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/numeric/elementary/elementary.h"
#include "core/numeric/sums/accumulate.h"

namespace halfscope {
namespace {

using Kind = Accumulation::Kind;

constexpr double kUnit32 = 0x1p-24, kUnit64 = 0x1p-53;

double compose(double x, double y) { return x + y + x * y; }

/// A rounding: its unit roundoff, the absolute error of tiny results, and whether its errors have
/// mean zero.
struct Unit {
  double relative = kUnit32, absolute = 0x1p-150;
  bool unbiased = true;
};

Unit unit_of(const FloatFormat& format, RoundingMode mode = RoundingMode::nearest_even) {
  const bool nearest = mode == RoundingMode::nearest_even || mode == RoundingMode::nearest_away;
  const double last = FloatFormat::power_of_two(-format.mantissa_bits);
  const double tiny = format.flush_out ? format.min_normal() : format.min_subnormal();
  return {.relative = nearest ? last / 2 : last,
          .absolute = nearest && !format.flush_out ? tiny / 2 : tiny,
          .unbiased = nearest || mode == RoundingMode::stochastic};
}

/// Returns the bound of `roundings` roundings in a row, or the probable one.
double gamma(double roundings, const Unit& unit, double lambda) {
  const double u = unit.relative;
  const double worst = roundings * u < 1.0 ? roundings * u / (1.0 - roundings * u)
                                           : std::numeric_limits<double>::infinity();
  if (!(lambda > 0.0) || !unit.unbiased) return worst;
  const double exponent = lambda * std::sqrt(roundings) * u + roundings * u * u / (1 - u);
  return std::min(worst, elementary::expm1(exponent));
}

/// Relative and absolute error of one stage; the absolute one counts before later roundings.
struct Stage {
  double relative = 0.0, absolute = 0.0;
};

/// Returns the error of the blocks of a tensor core over n terms. `excess` comes from
/// raised_excess().
Stage tensor_core_stage(const TensorCoreProfile& core, double n, double excess) {
  const double products = core.dot.products, blocks = std::ceil(n / products);
  const double grid = std::ldexp(1.0, -core.dot.fraction_bits);
  const bool half = core.dot.output == BlockOutput::rne_fp16;
  const double last = half ? 0x1p-11 : core.dot.output == BlockOutput::rz_e8m13 ? 0x1p-13 : 0x1p-23;
  Unit block{.relative = compose((products + 1) * grid, last),
             .absolute = half ? kFp16.min_subnormal() / 2 : 0x1p-149,
             .unbiased = false};
  // Operands that are subnormal, and zeros, are aligned as if they were larger.
  block.absolute += (products + 1) * grid * (excess + std::ldexp(1.0, core.dot.zero_exponent));
  Stage stage{gamma(blocks, block, 0.0), blocks * block.absolute};
  if (core.path == TensorCorePath::fp16_split) {  // each chain is added to the accumulator
    const Unit sum = unit_of(core.accumulator);
    stage.relative = compose(stage.relative, gamma(std::ceil(n / core.step()) * 2, sum, 0.0));
  }
  return stage;
}

/// Returns by how much the aligner of a tensor core may overrate a product: it takes subnormal
/// operands as if they were the smallest normal one.
double raised_excess(const TensorCoreProfile& core, std::span<const float> a,
                     std::span<const float> b) {
  double most = 0.0;
  for (size_t k = 0; k < a.size(); ++k) {
    const double x = std::fabs(static_cast<double>(a[k])), y = std::fabs(static_cast<double>(b[k]));
    if (x == 0.0 || y == 0.0) continue;
    const double raised =
        std::max(x, core.a_format.min_normal()) * std::max(y, core.b_format.min_normal());
    most = std::max(most, raised - x * y);
  }
  return most;
}

/// Returns ceil(log2 n).
double tree_depth(double n) {
  return n > 1 ? static_cast<double>(std::bit_width(static_cast<uint64_t>(n) - 1)) : 0.0;
}

Stage chain_stage(const SumSpec& spec, double n, std::span<const float> a, std::span<const float> b,
                  double lambda) {
  const Unit single{}, twice{.relative = kUnit64, .absolute = 0.0};
  const Unit write = unit_of(spec.write, spec.accumulation.rounding.mode);
  const auto repeated = [&](double roundings, const Unit& unit, double tiny) {
    return Stage{gamma(roundings, unit, lambda), tiny * unit.absolute};
  };
  switch (spec.accumulation.kind) {
    case Kind::tensor_core:
      if (const std::optional<TensorCoreProfile> core = tensor_core_of(spec)) {
        return tensor_core_stage(*core, n, raised_excess(*core, a, b));
      }
      return repeated(n, single, n);
    case Kind::fp32:
      return repeated(n, single, n);
    case Kind::fp64:
      return repeated(n, twice, 0);
    case Kind::pairwise:
      return repeated(1 + tree_depth(n), single, n);
    case Kind::interleaved16:
      return repeated(std::ceil(n / kPartialSums) + 4, single, n);
    case Kind::kahan:
      // Higham leaves the constant of n u^2 open; ours is generous.
      return {2 * kUnit32 + 8 * n * kUnit32 * kUnit32, n * single.absolute};
    case Kind::format:
      return repeated(n, write, n);
    case Kind::format_mul_add:
      return repeated(n, write, 2 * n);
    case Kind::fma32_then_round: {
      Unit both = write;
      both.relative = compose(write.relative, kUnit32);
      return repeated(n, both, 2 * n);
    }
  }
  return repeated(n, single, n);
}

}  // namespace

AccumulationBound accumulation_bound(const SumSpec& spec, std::span<const float> a,
                                     std::span<const float> b, double lambda) {
  AccumulationBound bound;
  for (size_t k = 0; k < a.size(); ++k) {
    const double term = static_cast<double>(a[k]) * static_cast<double>(b[k]);
    bound.exact += term;
    bound.magnitudes += std::fabs(term);
  }
  const Accumulation& how = spec.accumulation;
  const double n = static_cast<double>(a.size());
  const double split = std::max(1.0, std::ceil(n / static_cast<double>(how.split_k)));
  const double length = how.promote > 0 ? std::min(split, static_cast<double>(how.promote)) : split;
  Stage stage = chain_stage(spec, length, a, b, lambda);
  const double parts = std::ceil(n / length);
  stage.absolute *= parts;
  if (!how.is_single_chain()) {
    // Totals of promotion and of split k; a total of one part is not rounded.
    const double promoted = std::ceil(split / length), slices = std::ceil(n / split);
    const Unit single{};
    stage.relative = compose(stage.relative, gamma(promoted, single, lambda));
    stage.relative = compose(stage.relative, gamma(slices, single, lambda));
    if (how.half_accumulator) stage.relative = compose(stage.relative, unit_of(kFp16).relative);
  }
  bound.share = stage.relative;
  // The sum in double is not exact either.
  const double own = gamma(n, {.relative = kUnit64, .absolute = 0.0}, 0.0) * bound.magnitudes;
  const double sum =
      stage.relative * bound.magnitudes + (1 + stage.relative) * stage.absolute + own;
  const Unit last = unit_of(spec.write);
  bound.error = (1 + last.relative) * sum + last.relative * std::fabs(bound.exact) + last.absolute;
  return bound;
}

}  // namespace halfscope
