// SPDX-License-Identifier: MIT
// Matrix products on the device's tensor cores, with mma.sync: 16 x 8 outputs per warp, k in steps
// of 32 bytes, one chain of instructions per output. K is traversed as in the model of the device
// (core/numeric/sums/tensor_core.h). On the host the model replaces the instruction, so that the
// outputs are CoreElement's. Fragments are those of the PTX ISA ("Matrix Fragments for
// mma.m16n8k16" and similar sections). With e elements per 32-bit register, k = 8 e, and lane = 4 *
// group + place:
//   a, register r, element j:  row group + 8 (r & 1),  k = e (place + 4 (r >> 1)) + j
//   b, register r, element j:  k = e (place + 4 r) + j,  column group
//   c, register i:             row group + 8 (i >> 1),  column 2 place + (i & 1)
#pragma once

#include <bit>
#include <cstdint>

#include "core/numeric/formats/codes.h"
#include "core/numeric/sums/tensor_core_chain.h"
#include "gpu/bodies/products.h"

namespace halfscope::gpu {

/// Input formats of the instruction, a and b.
enum class MmaInput : uint8_t { f16, bf16, tf32, e4m3_e4m3, e4m3_e5m2, e5m2_e4m3, e5m2_e5m2 };

inline constexpr int kMmaRows = 16, kMmaColumns = 8, kWarp = 32;
inline constexpr int kMmaWords = 8;  ///< 32-bit words of k per instruction

struct MmaPlace {
  int line, word;  ///< of a: row; of b: column
};
HS_HD constexpr MmaPlace mma_place_a(int lane, int reg) noexcept {
  return {lane / 4 + 8 * (reg & 1), lane % 4 + 4 * (reg >> 1)};
}
HS_HD constexpr MmaPlace mma_place_b(int lane, int reg) noexcept {
  return {lane / 4, lane % 4 + 4 * reg};
}
HS_HD constexpr int mma_row_c(int lane, int reg) noexcept { return lane / 4 + 8 * (reg >> 1); }
HS_HD constexpr int mma_column_c(int lane, int reg) noexcept { return 2 * (lane % 4) + (reg & 1); }

/// kRows x kColumns outputs by 4 warps: each computes 16 rows, all columns.
template <class Source>
struct MmaTile {
  static constexpr int kThreads = 128, kRows = kThreads / kWarp * kMmaRows, kAcross = 4;
  static constexpr int kColumns = kAcross * kMmaColumns, kPitch = kMmaWords + 1;

  Source source;
  Epilogue<float> epilogue;
  TensorCoreProfile core;
  MmaInput input;

  struct Shared {
    uint32_t a[kRows][kPitch], b[kColumns][kPitch];
  };
  struct State {
    float sum[kAcross][4];
  };

  HS_HD int64_t across() const { return ceil_div(source.n, kColumns); }
  HS_HD int64_t blocks_of_one() const { return ceil_div(source.m, kRows) * across(); }
  int64_t blocks() const { return source.count * blocks_of_one(); }
  /// Returns the elements per word; depth() returns the elements of k per instruction.
  HS_HD int per_word() const {
    return input == MmaInput::tf32 ? 1 : input == MmaInput::f16 || input == MmaInput::bf16 ? 2 : 4;
  }
  HS_HD int depth() const { return kMmaWords * per_word(); }
  HS_HD int64_t steps() const { return 2 * ceil_div(source.k, depth()) + 1; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State& state) const {
    const Source one = source.product(block / blocks_of_one());
    block %= blocks_of_one();
    const int64_t first_i = block / across() * kRows, first_j = block % across() * kColumns;
    if (s == 0) {
      for (int n = 0; n < kAcross; ++n) {
        for (int i = 0; i < 4; ++i) state.sum[n][i] = 0.0f;
      }
    }
    if (s + 1 == steps()) {
      store(one, first_i, first_j, thread, state);
    } else if (s % 2 == 0) {
      load(one, s / 2 * depth(), first_i, first_j, thread, shared);
    } else {
      for (int n = 0; n < kAcross; ++n) multiply(n, thread, shared, state.sum[n]);
    }
  }

 private:
  HS_HD void load(const Source& one, int64_t first_k, int64_t first_i, int64_t first_j, int thread,
                  Shared& shared) const {
    // The model pads its last block with products of +0. Blocks of the last instruction beyond that
    // are not in the model; they are filled with -0, which changes no sum, not even a sum of zeros.
    const int64_t step = core.step(), end = ceil_div(one.k, step) * step;
    const int e = per_word();
    for (int at = thread; at < kRows * kMmaWords; at += kThreads) {
      const int word = at % kMmaWords, i = at / kMmaWords;
      uint32_t codes = 0;
      for (int j = 0; j < e; ++j) {
        const int64_t k = first_k + word * e + j;
        const bool exists = first_i + i < one.m && k < one.k;
        const float x = exists ? one.a(first_i + i, k) : k < end ? 0.0f : -0.0f;
        codes |= code(x, core.a_format) << (j * 32 / e);
      }
      shared.a[i][word] = codes;
    }
    for (int at = thread; at < kColumns * kMmaWords; at += kThreads) {
      const int j = at % kColumns, word = at / kColumns;
      uint32_t codes = 0;
      for (int part = 0; part < e; ++part) {
        const int64_t k = first_k + word * e + part;
        const bool exists = first_j + j < one.n && k < one.k;
        codes |= code(exists ? one.b(k, first_j + j) : 0.0f, core.b_format) << (part * 32 / e);
      }
      shared.b[j][word] = codes;
    }
  }
  HS_HD uint32_t code(float x, const FloatFormat& format) const {
    if (input != MmaInput::tf32) return detail::code_of_value(x, format);
    return std::bit_cast<uint32_t>(detail::as_core_reads(x, format));
  }

  HS_HD void store(const Source& one, int64_t first_i, int64_t first_j, int thread,
                   const State& state) const {
    const int warp = thread / kWarp, lane = thread % kWarp;
    for (int n = 0; n < kAcross; ++n) {
      for (int r = 0; r < 4; ++r) {
        const int64_t i = first_i + warp * kMmaRows + mma_row_c(lane, r);
        const int64_t j = first_j + n * kMmaColumns + mma_column_c(lane, r);
        if (i >= one.m || j >= one.n) continue;
        const int64_t at = one.place(i, j);
        one.y[at] =
            epilogue.finish(static_cast<double>(state.sum[n][r]), one.bias_index(i, j), one.k, at);
      }
    }
  }

#if defined(__CUDA_ARCH__)
  __device__ void multiply(int n, int thread, const Shared& shared, float (&c)[4]) const {
    const int warp = thread / kWarp, lane = thread % kWarp;
    uint32_t a[4], b[2];
    for (int r = 0; r < 4; ++r) {
      const MmaPlace at = mma_place_a(lane, r);
      a[r] = shared.a[warp * kMmaRows + at.line][at.word];
    }
    for (int r = 0; r < 2; ++r) {
      const MmaPlace at = mma_place_b(lane, r);
      b[r] = shared.b[n * kMmaColumns + at.line][at.word];
    }
#define HS_MMA(shape)                                           \
  asm volatile("mma.sync.aligned." shape                        \
               ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "   \
               "{%0,%1,%2,%3};"                                 \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
    switch (input) {
#if __CUDA_ARCH__ >= 800
      case MmaInput::f16:
        HS_MMA("m16n8k16.row.col.f32.f16.f16");
        return;
      case MmaInput::bf16:
        HS_MMA("m16n8k16.row.col.f32.bf16.bf16");
        return;
      case MmaInput::tf32:
        HS_MMA("m16n8k8.row.col.f32.tf32.tf32");
        return;
#endif
#if __CUDA_ARCH__ >= 890
      case MmaInput::e4m3_e4m3:
        HS_MMA("m16n8k32.row.col.f32.e4m3.e4m3");
        return;
      case MmaInput::e4m3_e5m2:
        HS_MMA("m16n8k32.row.col.f32.e4m3.e5m2");
        return;
      case MmaInput::e5m2_e4m3:
        HS_MMA("m16n8k32.row.col.f32.e5m2.e4m3");
        return;
      case MmaInput::e5m2_e5m2:
        HS_MMA("m16n8k32.row.col.f32.e5m2.e5m2");
        return;
#endif
      default:  // not compiled for this architecture; the executor never requests it
        __trap();
    }
#undef HS_MMA
  }
#else
  /// Computes what the instruction does, according to the model.
  void multiply(int n, int thread, const Shared& shared, float (&c)[4]) const {
    const int warp = thread / kWarp, lane = thread % kWarp;
    for (int r = 0; r < 4; ++r) {
      const Line left{shared.a[warp * kMmaRows + mma_row_c(lane, r)], per_word(), core.a_format};
      const Line right{shared.b[n * kMmaColumns + mma_column_c(lane, r)], per_word(),
                       core.b_format};
      c[r] = detail::core_chain(core, Terms{left, right}, 0, depth(), c[r]);
    }
  }
  struct Line {
    const uint32_t* words;
    int per_word;
    FloatFormat format;
    float operator[](int64_t k) const {
      const uint32_t word = words[k / per_word];
      if (per_word == 1) return std::bit_cast<float>(word);
      return decode(word >> (k % per_word * 32 / per_word) & (per_word == 2 ? 0xffffu : 0xffu),
                    format);
    }
  };
  struct Terms {
    Line a, b;
    float left(int64_t k) const { return a[k]; }
    float right(int64_t k) const { return b[k]; }
  };
#endif
};

}  // namespace halfscope::gpu
