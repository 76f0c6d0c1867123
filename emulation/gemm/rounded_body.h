// SPDX-License-Identifier: MIT
// The bodies of the tiles of rounded.h, written once in compiler vectors of the width of the
// instruction set that the including file is compiled for. Internal linkage and no library
// templates, see tile_body.h.
//
// The product of two floats is exact in double. Its sum with the chain is rounded to double so that
// the second rounding, to the format, gives the same result as rounding the exact sum: in the same
// direction; towards zero if only the leading dropped bits count; or to odd.
#pragma once

#include <cfenv>
#include <cstdint>

#include "core/numeric/formats/rng.h"
#include "emulation/gemm/rounded.h"

namespace halfscope::gemm_detail {
namespace {

#ifdef __AVX512F__
constexpr int kVectorBytes = 64;
#else
constexpr int kVectorBytes = 32;
#endif
typedef double Doubles __attribute__((vector_size(kVectorBytes)));
typedef uint64_t Words __attribute__((vector_size(kVectorBytes)));
constexpr int kVectorLanes = kVectorBytes / 8;
constexpr uint64_t kDoubleSign = uint64_t{1} << 63;

inline Words words(Doubles x) { return reinterpret_cast<Words>(x); }
inline Doubles doubles(Words x) { return reinterpret_cast<Doubles>(x); }
inline Doubles all(double x) { return doubles(Words{} + __builtin_bit_cast(uint64_t, x)); }
inline Doubles load_vector(const double* p) {
  Doubles x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}

inline Doubles magnitude_of(Doubles x) { return doubles(words(x) & ~kDoubleSign); }
inline Doubles with_sign_of(Doubles x, Doubles magnitude) {
  return doubles(words(magnitude) | (words(x) & kDoubleSign));
}

// These functions replace rounded magnitudes r of x above the largest finite one.

/// Replaces r according to the sign of x; infinity is separate. A NaN x stays.
inline Doubles limited_by_sign(const SumRounding& how, Doubles r, Doubles x) {
  Doubles beyond = (words(x) & kDoubleSign) != 0 ? all(how.over[1]) : all(how.over[0]);
  beyond = magnitude_of(x) == __builtin_inf() ? all(how.format.overflow) : beyond;
  r = r > how.format.max_finite ? beyond : r;
  return x == x ? with_sign_of(x, r) : x;
}

/// Rounds towards zero: to the largest finite value, except for infinity. A NaN r stays.
inline Doubles limited(const SumRounding& how, Doubles r, Doubles x) {
  r = how.format.max_finite < r ? all(how.format.max_finite) : r;
  r = magnitude_of(x) == __builtin_inf() ? all(how.format.overflow) : r;
  return with_sign_of(x, r);
}

/// For nearest and stochastic rounding: overflows. A NaN x stays; adding to its bits may have
/// corrupted r.
inline Doubles overflowed(const SumRounding& how, Doubles r, Doubles x) {
  r = r > how.format.max_finite ? all(how.format.overflow) : r;
  return x == x ? with_sign_of(x, r) : x;
}

/// Returns a + b rounded to odd, using the error of TwoSum (Knuth).
inline Doubles odd_total(Doubles a, Doubles b) {
  const Doubles s = a + b, part = s - a;
  const Doubles error = (a - (s - part)) + (b - part);
  const Words inexact = reinterpret_cast<Words>(error < 0.0) | reinterpret_cast<Words>(error > 0.0);
  const Words even = (words(s) & 1) - 1;
  const Words towards_zero = (words(s) ^ words(error)) >> 63;
  return doubles(words(s) + ((1 - 2 * towards_zero) & inexact & even));
}

/// Returns the number to add to a magnitude below the smallest normal number, so that its last
/// place is the format's.
inline Doubles lift(const SumRounding& how, Doubles magnitude) {
  return doubles(words(all(how.format.min_normal)) &
                 reinterpret_cast<Words>(magnitude < how.format.min_normal));
}

/// The number that RoundedWay::added adds: 0 (towards zero), half a last place (nearest), or draws.
enum class Addend { none, constant, draws };

template <RoundedWay kWay, Addend kAddend>
struct WayToRound;

template <>
struct WayToRound<RoundedWay::directed, Addend::none> {
  static Doubles sum(Doubles p, Doubles acc) { return p + acc; }
  static Doubles round(const SumRounding& how, Doubles x, Words) {
    const Words exponent = words(x) & (uint64_t{0x7ff} << 52);
    Doubles binade = doubles(exponent);
    binade = binade > how.format.min_normal ? binade : all(how.format.min_normal);
    binade = binade < how.format.above_max ? binade : all(how.format.above_max);
    const Doubles shifter = binade * how.format.magic;
    const Doubles rounded = (x + shifter) - shifter;
    return limited_by_sign(how, magnitude_of(rounded), x);
  }
};

template <Addend kAddend>
struct WayToRound<RoundedWay::added, kAddend> {
  static Doubles sum(Doubles p, Doubles acc) { return p + acc; }
  static Doubles round(const SumRounding& how, Doubles x, Words addend) {
    const Doubles magnitude = magnitude_of(x), base = lift(how, magnitude);
    if constexpr (kAddend == Addend::none) {
      return limited(how, doubles(words(magnitude + base) & how.keep) - base, x);
    }
    const Words moved = (words(magnitude + base) + addend) & how.keep;
    return overflowed(how, doubles(moved) - base, x);
  }
};

template <>
struct WayToRound<RoundedWay::odd, Addend::none> {
  static Doubles sum(Doubles p, Doubles acc) { return odd_total(p, acc); }
  static Doubles round(const SumRounding& how, Doubles x, Words) {
    const Doubles magnitude = magnitude_of(x), base = lift(how, magnitude);
    const Words lifted = words(odd_total(magnitude, base));
    const Words inexact = reinterpret_cast<Words>((lifted & ~how.keep) != 0);
    const Words last = inexact & (~how.keep + 1);
    return limited(how, doubles((lifted & how.keep) | last) - base, x);
  }
};

/// Finishes splitmix64 of core/numeric/formats/rng.h, after its first addition.
inline Words mixed(Words z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/// Numbers that a word's two draws, even and odd, add to the bits that will be dropped.
struct Addends {
  Words even, odd;
};
inline Addends addends(const SumRounding& how, Words word) {
  return {((word << 32) >> how.draw_shift) & how.draw_mask,
          (word >> how.draw_shift) & how.draw_mask};
}

template <RoundedWay kWay, bool kMulAdd, Addend kAddend, int kRows, int kVectors>
struct RoundedTile {
  using Way = WayToRound<kWay, kAddend>;
  static constexpr bool kDraws = kAddend == Addend::draws;
  const Tile<double>& t;
  const SumRounding& how;
  Doubles acc[kRows][kVectors];
  Words column[kVectors];  ///< offset of each column's draws from those of the first column

  explicit RoundedTile(const Tile<double>& tile) : t(tile), how(*tile.sums) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      for (int lane = 0; lane < kVectorLanes; ++lane) {
        column[v][lane] = static_cast<uint64_t>(v * kVectorLanes + lane) * t.column_draws;
      }
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) acc[i][v] = Doubles{};
    }
  }

  /// Adds one term. The addends are those of the product (mul_add only) and of the sum.
  static Doubles step(const SumRounding& r, Doubles p, Doubles acc, Words product, Words sum) {
    if constexpr (kMulAdd) p = Way::round(r, p, product);
    return Way::round(r, Way::sum(p, acc), sum);
  }

  /// Returns word number `word` of an element's draws: draws 2 * word and 2 * word + 1.
  Addends draws(int i, int v, int64_t word) const {
    const uint64_t row =
        t.draws + static_cast<uint64_t>(i) * t.row_draws + static_cast<uint64_t>(word) * kDrawStep;
    return addends(how, mixed(column[v] + row));
  }

  /// Adds one term to all elements; f(i, v) is the product.
  template <class F>
  void term(int64_t k, const F& f) {
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        Words product = Words{} + how.constant, sum = product;
        if constexpr (kDraws) {
          const Addends two = draws(i, v, kMulAdd ? k : k / 2);
          product = two.even;
          sum = kMulAdd || k % 2 != 0 ? two.odd : two.even;
        }
        acc[i][v] = step(how, f(i, v), acc[i][v], product, sum);
      }
    }
  }

  Doubles product(int64_t l, int i, int v) const {
    return t.a[l * t.a_stride + i] * load_vector(t.b + l * t.b_stride + v * kVectorLanes);
  }

  void one(int64_t l) {
    term(t.first_term + l, [&](int i, int v) { return product(l, i, v); });
  }

  /// Adds terms l and l + 1, which share a word.
  void two(int64_t l) {
    const int64_t word = (t.first_term + l) / 2;
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        const Addends both = draws(i, v, word);
        acc[i][v] = step(how, product(l, i, v), acc[i][v], both.even, both.even);
        acc[i][v] = step(how, product(l + 1, i, v), acc[i][v], both.odd, both.odd);
      }
    }
  }

  void run() {
    int64_t l = 0;
    if constexpr (kDraws && !kMulAdd) {
      if (t.first_term % 2 != 0 && t.k > 0) one(l++);
      for (; l + 1 < t.k; l += 2) two(l);
    }
    for (; l < t.k; ++l) one(l);
    const int64_t last = t.first_term + t.k;
    if (t.finish && t.row_bias != nullptr) {
      term(last, [&](int i, int) { return all(t.row_bias[i]); });
    }
    if (t.finish && t.column_bias != nullptr) {
      term(last, [&](int, int v) { return load_vector(t.column_bias + v * kVectorLanes); });
    }
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        __builtin_memcpy(t.c + t.c_row[i] + v * kVectorLanes, &acc[i][v], sizeof(Doubles));
      }
    }
  }
};

template <RoundedWay kWay, bool kMulAdd, Addend kAddend, int kRows, int kVectors>
[[gnu::noinline]] void run_rounded(const Tile<double>& t) {
  RoundedTile<kWay, kMulAdd, kAddend, kRows, kVectors>(t).run();
}

/// Runs the tile in the processor rounding that its way needs. The tile is not inlined, so that
/// none of its operations can move out of here.
template <RoundedWay kWay, bool kMulAdd, int kRows, int kVectors>
void rounded_tile(const Tile<double>& t) {
  const int before = std::fegetround();
  std::fesetround(t.sums->processor);
  if constexpr (kWay == RoundedWay::added) {
    if (t.sums->draws) {
      run_rounded<kWay, kMulAdd, Addend::draws, kRows, kVectors>(t);
    } else if (t.sums->constant != 0) {
      run_rounded<kWay, kMulAdd, Addend::constant, kRows, kVectors>(t);
    } else {
      run_rounded<kWay, kMulAdd, Addend::none, kRows, kVectors>(t);
    }
  } else {
    run_rounded<kWay, kMulAdd, Addend::none, kRows, kVectors>(t);
  }
  std::fesetround(before);
}

template <RoundedWay kWay, bool kMulAdd, int kRows = kRoundedRows>
void fill_rounded(RoundedTiles& tiles) {
  tiles.lanes = kVectorLanes;
  tiles.run[kRows - 1][0] = rounded_tile<kWay, kMulAdd, kRows, 1>;
  tiles.run[kRows - 1][1] = rounded_tile<kWay, kMulAdd, kRows, 2>;
  if constexpr (kRows > 1) fill_rounded<kWay, kMulAdd, kRows - 1>(tiles);
}

struct RoundedSet {
  RoundedTiles tiles[kRoundedWays][2];
  RoundedSet() {
    fill<RoundedWay::directed>();
    fill<RoundedWay::added>();
    fill<RoundedWay::odd>();
  }
  template <RoundedWay kWay>
  void fill() {
    fill_rounded<kWay, false>(tiles[static_cast<int>(kWay)][0]);
    fill_rounded<kWay, true>(tiles[static_cast<int>(kWay)][1]);
  }
};

[[maybe_unused]] const RoundedTiles& rounded_tiles(RoundedWay way, bool mul_add) noexcept {
  static const RoundedSet set;
  return set.tiles[static_cast<int>(way)][mul_add ? 1 : 0];
}

}  // namespace
}  // namespace halfscope::gemm_detail
