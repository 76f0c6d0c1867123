// SPDX-License-Identifier: MIT
// The bodies of the tensor-core tiles (block.h), written once for any vector type: four adjacent
// vectors of floats, and their exponents in one vector of bytes or two of 16-bit numbers. The
// exponents of vector v are in the same 32-bit lanes as its floats. Included only by
// block_<isa>.cpp; internal linkage and no library templates (see tile_body.h).
#pragma once

#include <cstdint>

#include "emulation/gemm/block.h"

namespace halfscope::gemm_detail {
namespace {

constexpr int kPanelVectors = 4;
constexpr int kExponentMask = 0x7f800000, kSignBit = -0x7fffffff - 1;

/// Returns the biased exponents of vector v as exponent fields of floats.
template <class V, bool kWide, int v>
typename V::I exponent_field(const typename V::I* codes) {
  typename V::I x;
  if constexpr (kWide) {
    x = v % 2 == 0 ? V::template shift_left<23>(codes[v / 2])
                   : V::template shift_left<7>(codes[v / 2]);
  } else if constexpr (v < 3) {
    x = V::template shift_left<23 - 8 * v>(codes[0]);
  } else {
    x = V::template shift_right<1>(codes[0]);
  }
  return V::bit_and(x, V::set(kExponentMask));
}

/// An accumulator's value at the start of a block, trunc(c * scale), and the scale.
template <class V>
struct Aligned {
  typename V::I c;
  typename V::F scale;
};

template <class V, BlockKind kKind>
Aligned<V> align(const BlockTile& t, typename V::F c, typename V::I top, int32_t* bad) {
  using I = typename V::I;
  I own = V::bit_and(V::bits(c), V::set(kExponentMask));
  if constexpr (kKind == BlockKind::fp16) {
    // fp16 subnormals have the exponent of the smallest normal number; a zero has zero_exponent.
    const I zero = V::equal(own, V::set(0));
    own = V::max(own, V::set((127 - 14) << 23));
    own = V::choose(zero, V::set(t.zero_exponent << 23), own);
    // Infinity stays or becomes NaN; after -0 the result depends on the signs of all zeros.
    const I minus_zero = V::equal(V::bits(c), V::set(kSignBit));
    const I infinite = V::equal(own, V::set(kExponentMask));
    V::store(bad, V::bit_or(V::load(bad), V::bit_or(minus_zero, infinite)));
  }
  top = V::max(top, own);
  const typename V::F scale = V::floats(V::sub(V::set((t.fraction_bits + 254) << 23), top));
  return {V::truncate(V::mul(c, scale)), scale};
}

/// Rounds the aligned sum to the accumulator's precision.
template <class V, BlockKind kKind>
typename V::F finish(typename V::I sum, typename V::F scale) {
  using I = typename V::I;
  using F = typename V::F;
  F x = V::to_float_towards_zero(sum);
  const F unscale = V::floats(V::sub(V::set(254 << 23), V::bits(scale)));
  if constexpr (kKind == BlockKind::e8m13) {
    x = V::floats(V::bit_and(V::bits(x), V::set(~0x3ff)));
  } else if constexpr (kKind == BlockKind::fp16) {
    // Round to odd: the next rounding then gives the same value as rounding the exact sum.
    const I exact = V::equal(V::truncate(x), sum);
    x = V::floats(V::bit_or(V::bits(x), V::bit_and_not(exact, V::set(1))));
    return V::through_fp16(V::mul(x, unscale));
  }
  return V::mul(x, unscale);
}

/// Returns x + y and marks integer overflow in `bad`.
template <class V>
typename V::I checked_sum(typename V::I x, typename V::I y, int32_t* bad) {
  const typename V::I sum = V::add(x, y);
  const typename V::I wrapped = V::bit_and(V::bit_xor(sum, x), V::bit_xor(sum, y));
  V::store(bad, V::bit_or(V::load(bad), wrapped));
  return sum;
}

template <class V, BlockKind kKind, int kProducts, int kVectors, bool kNotes>
void run_blocks(const BlockTile& t) {
  using F = typename V::F;
  using I = typename V::I;
  constexpr bool kWide = kKind == BlockKind::fp32_wide;
  constexpr int kLanes = V::kLanes, kPanel = kPanelVectors * kLanes;
  constexpr int kCodes = kWide ? 2 : 1;  // vectors of codes per k
  // 8 terms below 4 * 2^25 plus c always fit into int32. So do 16 terms alone, but not 16 terms
  // with c or with 16 more.
  constexpr bool kChecked = kProducts >= 16;
  constexpr int kPart = kChecked ? 16 : kProducts;
  constexpr int kUnroll = kPart < V::kUnroll ? kPart : V::kUnroll;
  constexpr int64_t kPitch = kBlockRows;
  // Swamped products in each row of c, counted in bytes over as many blocks as a byte can count.
  constexpr int64_t kLasting = 255 / kProducts;
  I recent[kNotes ? kBlockRows : 1] = {};
  for (int64_t block = 0; block < t.blocks; ++block) {
    [[maybe_unused]] const bool flush = (block + 1) % kLasting == 0 || block + 1 == t.blocks;
    const float* b = t.b + block * kProducts * kPanel;
    const uint32_t* b_codes = t.b_codes + block * kProducts * kCodes * kLanes;
    const float* a = t.a + block * kProducts * kPitch;
    const uint32_t* a_codes = t.a_codes + block * kProducts * kPitch;
    float* c = t.c;
    int32_t* bad = t.bad;
    for (int i = 0; i < t.rows; ++i, ++a, ++a_codes, c += kPanel, bad += kPanel) {
      [[maybe_unused]] I swamped = recent[kNotes ? i : 0];
      // Hides that these are loop invariants; otherwise every address of the block goes to the
      // stack.
      V::hide(b);
      V::hide(b_codes);
      I top[kCodes];
#pragma GCC unroll 32
      for (int k = 0; k < kProducts; ++k) {
        const I code = V::broadcast(a_codes + k * kPitch);
#pragma GCC unroll 2
        for (int w = 0; w < kCodes; ++w) {
          const uint32_t* const line = b_codes + (k * kCodes + w) * kLanes;
          const I exponents = V::template add_codes<kWide>(code, V::load(line));
          top[w] = k == 0 ? exponents : V::template max_codes<kWide>(top[w], exponents);
        }
      }
      if constexpr (kWide) {
#pragma GCC unroll 2
        for (int w = 0; w < kCodes; ++w) {
          top[w] = V::template max_codes<kWide>(top[w], V::set((t.fraction_bits + 1) * 0x10001));
        }
      }
      I start[kVectors], sum[kVectors];
      F scale[kVectors];
      const auto begin = [&]<int v>() {
        if constexpr (v < kVectors) {
          const F old = V::load(c + v * kLanes);
          const Aligned<V> x =
              align<V, kKind>(t, old, exponent_field<V, kWide, v>(top), bad + v * kLanes);
          start[v] = x.c;
          scale[v] = x.scale;
        }
      };
      begin.template operator()<0>();
      begin.template operator()<1>();
      begin.template operator()<2>();
      begin.template operator()<3>();
#pragma GCC unroll 2
      for (int part = 0; part < kProducts; part += kPart) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) sum[v] = kChecked ? V::set(0) : start[v];
#pragma GCC unroll 1
        for (int first = part; first < part + kPart; first += kUnroll) {
#pragma GCC unroll 16
          for (int k = first; k < first + kUnroll; ++k) {
            const F ak = V::broadcast(a + k * kPitch);
            [[maybe_unused]] I each[kPanelVectors];
#pragma GCC unroll 4
            for (int v = 0; v < kVectors; ++v) {
              const F product = V::mul(ak, V::load(b + k * kPanel + v * kLanes));
              const I aligned = V::truncate(V::mul(product, scale[v]));
              if constexpr (kNotes) each[v] = aligned;
              sum[v] = V::add(sum[v], aligned);
              V::pin(sum[v]);
            }
            if constexpr (kNotes && kVectors == kPanelVectors) {
              swamped = V::count_zeros(swamped, each[0], each[1], each[2], each[3]);
            } else if constexpr (kNotes) {
              swamped = V::count_zeros(swamped, each[0], each[0], each[0], each[0]);
            }
          }
        }
        if constexpr (kChecked) {
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) {
            start[v] = checked_sum<V>(start[v], sum[v], bad + v * kLanes);
          }
        }
      }
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const F next = finish<V, kKind>(kChecked ? start[v] : sum[v], scale[v]);
        V::store(c + v * kLanes, next);
        if constexpr (kNotes) {
          float* const largest = t.largest + i * kPanel + v * kLanes;
          // Magnitudes are ordered like their bits.
          const I size = V::bit_and(V::bits(next), V::set(0x7fffffff));
          V::store(largest, V::floats(V::max(V::bits(V::load(largest)), size)));
        }
      }
      if constexpr (kNotes) {
        recent[i] = flush ? V::set(0) : swamped;
        for (int v = 0; flush && v < kVectors; ++v) {
          int32_t* const count = t.swamped + i * kPanel + v * kLanes;
          V::store(count, V::add(V::load(count), V::counted(swamped, v)));
        }
      }
    }
  }
}

/// Encodes and checks one vector of operands after another.
template <class V>
class Encoder {
 public:
  using F = typename V::F;
  using I = typename V::I;
  explicit Encoder(const BlockCoding& c) : coding_(c) {}

  /// Masks the operands in `x` and returns their codes; `lane` is where `lines` keeps its facts.
  I encode(F& x, const BlockLines& lines, int64_t lane) const {
    x = V::floats(V::bit_and(V::bits(x), V::set(static_cast<int>(coding_.keep))));
    const I size = V::bit_and(V::bits(x), V::set(0x7fffffff));
    const I exponent = V::template shift_right<23>(size);
    const I low = V::greater(V::set(coding_.min_exponent), exponent);
    // Added to the smallest normal number, a subnormal has its mantissa bits where a normal number
    // has them.
    const F min_normal = V::floats(V::set(__builtin_bit_cast(int, coding_.min_normal)));
    const F lifted = V::add(V::floats(size), min_normal);
    const I lost = V::bit_and(low, V::bit_xor(V::bits(V::sub(lifted, min_normal)), size));
    const I mantissa = V::choose(low, V::bits(lifted), size);
    const I stray = V::bit_and(mantissa, V::set(static_cast<int>(coding_.stray)));
    const I high = V::greater(exponent, V::set(coding_.max_exponent));
    const I wrong = V::bit_or(V::bit_or(lost, stray), high);
    V::store(lines.bad + lane, V::bit_or(V::load(lines.bad + lane), wrong));
    const I zero = V::equal(size, V::set(0));
    const I raw = V::max(exponent, V::set(coding_.min_exponent));
    const I counted = V::choose(zero, V::set(1 << 20), raw);
    V::store(lines.lowest + lane, V::min(V::load(lines.lowest + lane), counted));
    V::store(lines.highest + lane, V::max(V::load(lines.highest + lane), raw));
    return V::choose(zero, V::set(coding_.zero_code), V::add(raw, V::set(coding_.base)));
  }

 private:
  const BlockCoding& coding_;
};

template <class V>
void encode_rows(const BlockCoding& coding, bool wide, int64_t k, int64_t width, const float* from,
                 float* to, uint32_t* codes, const BlockLines& lines) {
  using I = typename V::I;
  const Encoder<V> encoder(coding);
  for (int64_t l = 0; l < k; ++l) {
    for (int64_t i = 0; i < width; i += V::kLanes, from += V::kLanes, to += V::kLanes) {
      typename V::F x = V::load(from);
      I code = encoder.encode(x, lines, i);
      if (!wide) {
        code = V::bit_and(code, V::set(0xff));
        code = V::bit_or(code, V::template shift_left<8>(code));
      }
      code = V::bit_or(V::bit_and(code, V::set(0xffff)), V::template shift_left<16>(code));
      V::store(to, x);
      V::store(codes, code);
      codes += V::kLanes;
    }
  }
}

template <class V>
void encode_panel(const BlockCoding& coding, bool wide, int64_t k, const float* from, float* to,
                  uint32_t* codes, const BlockLines& lines) {
  using I = typename V::I;
  const Encoder<V> encoder(coding);
  for (int64_t l = 0; l < k; ++l) {
    I code[kPanelVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kPanelVectors; ++v, from += V::kLanes, to += V::kLanes) {
      typename V::F x = V::load(from);
      code[v] = encoder.encode(x, lines, v * V::kLanes);
      code[v] = V::bit_and(code[v], V::set(wide ? 0xffff : 0xff));
      V::store(to, x);
    }
    if (wide) {
      V::store(codes, V::bit_or(code[0], V::template shift_left<16>(code[1])));
      V::store(codes + V::kLanes, V::bit_or(code[2], V::template shift_left<16>(code[3])));
      codes += 2 * V::kLanes;
    } else {
      const I low = V::bit_or(code[0], V::template shift_left<8>(code[1]));
      const I high = V::bit_or(code[2], V::template shift_left<8>(code[3]));
      V::store(codes, V::bit_or(low, V::template shift_left<16>(high)));
      codes += V::kLanes;
    }
  }
}

template <class V>
void add_arrays(int64_t n, const float* x, float* total) {
  for (int64_t i = 0; i < n; i += V::kLanes) {
    V::store(total + i, V::add(V::load(total + i), V::load(x + i)));
  }
}

template <class V, BlockKind kKind, int kProducts>
void fill_blocks(BlockKernels& kernels) {
  constexpr int kSize = kProducts == 4 ? 0 : kProducts == 8 ? 1 : kProducts == 16 ? 2 : 3;
  auto& run = kernels.run[static_cast<int>(kKind)][kSize];
  run[0] = V::template guarded<run_blocks<V, kKind, kProducts, 1, false>>;
  run[1] = V::template guarded<run_blocks<V, kKind, kProducts, kPanelVectors, false>>;
  auto& noting = kernels.noting[static_cast<int>(kKind)][kSize];
  noting[0] = V::template guarded<run_blocks<V, kKind, kProducts, 1, true>>;
  noting[1] = V::template guarded<run_blocks<V, kKind, kProducts, kPanelVectors, true>>;
}

template <class V>
BlockKernels make_block_kernels() {
  BlockKernels kernels{};
  kernels.lanes = V::kLanes;
  fill_blocks<V, BlockKind::fp32, 4>(kernels);
  fill_blocks<V, BlockKind::fp32, 8>(kernels);
  fill_blocks<V, BlockKind::fp32, 16>(kernels);
  fill_blocks<V, BlockKind::fp32, 32>(kernels);
  fill_blocks<V, BlockKind::fp32_wide, 4>(kernels);
  fill_blocks<V, BlockKind::fp32_wide, 8>(kernels);
  fill_blocks<V, BlockKind::fp32_wide, 16>(kernels);
  fill_blocks<V, BlockKind::e8m13, 16>(kernels);
  fill_blocks<V, BlockKind::e8m13, 32>(kernels);
  fill_blocks<V, BlockKind::fp16, 4>(kernels);
  fill_blocks<V, BlockKind::fp16, 8>(kernels);
  fill_blocks<V, BlockKind::fp16, 16>(kernels);
  fill_blocks<V, BlockKind::fp16, 32>(kernels);
  kernels.encode_rows = encode_rows<V>;
  kernels.encode_panel = encode_panel<V>;
  kernels.add = add_arrays<V>;
  return kernels;
}

}  // namespace
}  // namespace halfscope::gemm_detail
