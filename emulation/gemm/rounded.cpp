// SPDX-License-Identifier: MIT
#include "emulation/gemm/rounded.h"

#include <algorithm>
#include <cfenv>

#include "core/numeric/sums/accumulate.h"
#include "emulation/gemm/driver.h"

namespace halfscope::gemm_detail {
namespace {

RoundedWay way_of(RoundingMode mode) noexcept {
  if (mode == RoundingMode::up || mode == RoundingMode::down) return RoundedWay::directed;
  return mode == RoundingMode::odd ? RoundedWay::odd : RoundedWay::added;
}

int processor_rounding(RoundingMode mode) noexcept {
  switch (mode) {
    case RoundingMode::up:
      return FE_UPWARD;
    case RoundingMode::down:
      return FE_DOWNWARD;
    case RoundingMode::odd:
    case RoundingMode::nearest_even:
      return FE_TONEAREST;
    case RoundingMode::toward_zero:
    case RoundingMode::nearest_away:
    case RoundingMode::stochastic:
      return FE_TOWARDZERO;
  }
  return FE_TONEAREST;
}

const RoundedTiles& tiles_for(Isa isa, RoundedWay way, bool mul_add) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::avx2:
      return avx2_rounded_tiles(way, mul_add);
    case Isa::avx512:
      return avx512_rounded_tiles(way, mul_add);
#endif
    default:
      return baseline_rounded_tiles(way, mul_add);
  }
}

struct RoundedKernels {
  Kernels<double> of[kRoundedWays][2]{};

  /// Packing and delivery are taken from the usual kernels.
  RoundedKernels(Isa isa, const Kernels<double>& usual) {
    for (int way = 0; way < kRoundedWays; ++way) {
      for (int mul_add = 0; mul_add < 2; ++mul_add) {
        const RoundedTiles& tiles = tiles_for(isa, static_cast<RoundedWay>(way), mul_add != 0);
        Kernels<double>& kernels = of[way][mul_add];
        kernels.rows = kRoundedRows;
        kernels.lanes = tiles.lanes;
        for (int i = 0; i < kRoundedRows; ++i) std::copy_n(tiles.run[i], 2, kernels.strided[i]);
        kernels.transpose = usual.transpose;
        kernels.copy_runs = usual.copy_runs;
        kernels.deliver = usual.deliver;
      }
    }
  }
};

const RoundedKernels& active_rounded_kernels() {
  static const RoundedKernels baseline(Isa::baseline, baseline_kernels().format);
#if defined(__x86_64__)
  if (active_isa() == Isa::avx2) {
    static const RoundedKernels avx2(Isa::avx2, avx2_kernels().format);
    return avx2;
  }
  if (active_isa() == Isa::avx512) {
    static const RoundedKernels avx512(Isa::avx512, avx512_kernels().format);
    return avx512;
  }
#endif
  return baseline;
}

}  // namespace

bool has_rounded_tiles(const SumSpec& spec) noexcept {
  const RoundingChoice& how = spec.accumulation.rounding;
  // All random bits must be among the bits that rounding a double drops.
  return how.mode != RoundingMode::stochastic ||
         spec.write.mantissa_bits + std::clamp(how.random_bits, 1, 32) <= 52;
}

const Kernels<double>& rounded_kernels(const SumSpec& spec) {
  const int way = static_cast<int>(way_of(spec.accumulation.rounding.mode));
  const bool mul_add = spec.accumulation.kind == Accumulation::Kind::format_mul_add;
  return active_rounded_kernels().of[way][mul_add ? 1 : 0];
}

SumRounding sum_rounding(const SumSpec& spec, int64_t terms) noexcept {
  const RoundingMode mode = spec.accumulation.rounding.mode;
  const int dropped = 52 - spec.write.mantissa_bits;
  const int bits = std::clamp(spec.accumulation.rounding.random_bits, 1, 32);
  const bool draws = mode == RoundingMode::stochastic;
  SumRounding how{.format = format_rounding(spec.write)};
  how.processor = processor_rounding(mode);
  const bool stays = mode == RoundingMode::toward_zero || mode == RoundingMode::odd;
  how.over[0] = stays || mode == RoundingMode::down ? how.format.max_finite : how.format.overflow;
  how.over[1] = stays || mode == RoundingMode::up ? how.format.max_finite : how.format.overflow;
  how.keep = ~uint64_t{0} << dropped;
  how.constant = mode == RoundingMode::nearest_away ? uint64_t{1} << (dropped - 1) : 0;
  how.draws = draws;
  how.draw_shift = 64 - dropped;
  how.draw_mask = draws ? ((uint64_t{1} << bits) - 1) << (dropped - bits) : 0;
  // Word w of element e is splitmix64(draw_start(key) + (e * D / 2 + w) * kDrawStep), whose first
  // step adds another kDrawStep (rng.h).
  const int64_t words = SumDraws::per_element(spec.accumulation.kind, terms) / 2;
  how.first_draw = draw_start(spec.key) + kDrawStep;
  how.element_draws = static_cast<uint64_t>(words) * kDrawStep;
  return how;
}

}  // namespace halfscope::gemm_detail
