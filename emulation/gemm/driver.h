// SPDX-License-Identifier: MIT
// Helpers that the drivers of gemm.h share: choosing the kernels, scratch memory, packing operands
// into the order in which register tiles read them, and splitting work between threads.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>

#include "emulation/gemm/gemm.h"
#include "emulation/gemm/rounded.h"
#include "emulation/gemm/tile.h"
#include "emulation/team.h"

namespace halfscope::gemm_detail {

/// The kernels of the active instruction set and the arithmetic of one SumSpec.
template <class T>
struct Chains {
  const Kernels<T>& kernels;
  FormatRounding rounding;
  bool odd;            ///< deliver with round-to-odd
  bool uncut = false;  ///< a tile must compute a whole chain at once
  SumRounding sums{};  ///< for tiles of rounded.h

  int lanes() const { return kernels.lanes; }
  int panel() const { return 2 * kernels.lanes; }  ///< columns of a full panel of b
  /// Returns the distance between two k of a packed tile of a, in whole blocks of the transpose.
  int row_pitch() const { return (kernels.rows + 7) / 8 * 8; }
};

const KernelSet& active_kernels(bool noting = false);
FormatRounding format_rounding(const FloatFormat& format) noexcept;

/// Bits and magnitudes that an operand's elements have in common.
struct OperandRange {
  uint32_t bits = 0;      ///< bits that are set in any element
  uint32_t lowest = ~0u;  ///< the smallest nonzero magnitude, minus 1
};
OperandRange range_of(int64_t count, const float* x) noexcept;
OperandRange range_of(int64_t rows, int64_t columns, const MatrixView& x) noexcept;

/// Counts, for each k, the lines with a nonzero element.
void count_nonzeros(int64_t lines, int64_t k, const float* from, int64_t line_stride,
                    int64_t k_stride, int32_t* to) noexcept;

/// Facts about operands that let with_chains choose faster kernels.
struct OperandFacts {
  bool exact_products = false;  ///< every product is exact in fp32
  bool bf16 = false;            ///< all operands, NaNs included, are values of bf16
};
/// Returns whether scanning `operands` elements pays off for `steps` steps. Without exact products,
/// chains would have to run in double; operands in bf16 save only a few operations.
inline bool wants_facts(const SumSpec& spec, int64_t operands, int64_t steps) noexcept {
  constexpr int64_t kWorthIt = 32;
  const Accumulation::Kind kind = spec.accumulation.kind;
  if (kind == Accumulation::format_mul_add) return true;
  const bool rounds = kind == Accumulation::format || kind == Accumulation::fma32_then_round;
  return rounds && spec.write == kBf16 && steps >= kWorthIt * operands;
}
OperandFacts facts_of(const OperandRange& a, const OperandRange& b) noexcept;
/// Same for arrays, for sums of `steps` steps in total.
OperandFacts facts_of(const SumSpec& spec, int64_t steps, int64_t a_count, const float* a,
                      int64_t b_count, const float* b) noexcept;

/// Returns the kernels for chains of floats in fp16 or bf16, or null if there are none.
inline const Kernels<float>* narrow_kernels(const KernelSet& set, const SumSpec& spec,
                                            const OperandFacts& facts) {
  if (spec.write != kFp16 && spec.write != kBf16) return nullptr;
  const NarrowKernels& narrow = spec.write == kFp16 ? set.fp16
                                : facts.bf16        ? set.bf16_of_bf16
                                                    : set.bf16;
  const Kernels<float>* kernels = nullptr;
  if (spec.accumulation.kind == Accumulation::format) kernels = &narrow.format;
  if (spec.accumulation.kind == Accumulation::format_mul_add && facts.exact_products) {
    kernels = &narrow.format_mul_add;
  }
  if (spec.accumulation.kind == Accumulation::fma32_then_round) kernels = &narrow.fma32_then_round;
  return kernels != nullptr && kernels->rows > 0 ? kernels : nullptr;
}

/// Calls f(const Chains<float>&) or f(const Chains<double>&). `terms` of a sum matter only if it
/// rounds in a mode other than nearest even. Only chains with diagnostics can be `noting`.
template <class F>
void with_chains(const SumSpec& spec, const OperandFacts& facts, F f, int64_t terms = 0,
                 bool noting = false) {
  const KernelSet& set = active_kernels(noting);
  const bool to_fp32 = spec.write == kFp32;
  if (spec.accumulation.rounds_otherwise()) {
    f(Chains<double>{rounded_kernels(spec), {}, false, true, sum_rounding(spec, terms)});
  } else if (const Kernels<float>* narrow = narrow_kernels(set, spec, facts)) {
    f(Chains<float>{*narrow, {}, false});
  } else if (spec.accumulation.kind == Accumulation::fp64) {
    f(Chains<double>{set.fp64, {}, spec.write.mantissa_bits <= 21});  // round_odd.h
  } else if (spec.accumulation.kind == Accumulation::format_mul_add) {
    f(Chains<double>{set.format_mul_add, format_rounding(spec.write), false});
  } else if (spec.accumulation.kind == Accumulation::fma32_then_round && !to_fp32) {
    f(Chains<double>{set.fma32_then_round, format_rounding(spec.write), false});
  } else if (spec.accumulation.kind == Accumulation::format && !to_fp32) {
    // Sums are already values of the format, so both kinds of delivery are exact.
    f(Chains<double>{set.format, format_rounding(spec.write), false});
  } else if (spec.accumulation.kind == Accumulation::kahan) {
    f(Chains<float>{set.kahan, {}, false, true});
  } else if (spec.accumulation.kind == Accumulation::pairwise) {
    f(Chains<float>{set.pairwise, {}, false, true});
  } else {  // rounding to fp32 after every term is the fp32 chain
    f(Chains<float>{set.fp32, {}, false});
  }
}

/// Memory that grows and is reused; one per thread and purpose.
template <class T>
class Scratch {
 public:
  T* get(int64_t count) {
    if (count > size_) {
      size_ = count + count / 4;
      data_.reset();  // free the old block before allocating the new one
      data_.reset(static_cast<T*>(
          ::operator new (static_cast<size_t>(size_) * sizeof(T), std::align_val_t{kAlign})));
    }
    return data_.get();
  }

 private:
  static constexpr size_t kAlign = 64;
  struct Free {
    void operator()(T* p) const { ::operator delete (p, std::align_val_t{kAlign}); }
  };
  std::unique_ptr<T, Free> data_;
  int64_t size_ = 0;
};

enum class Purpose { panels, rows, tile, image, offsets, bias, chains, delivered };

template <class T, Purpose>
T* scratch(int64_t count) {
  thread_local Scratch<T> memory;
  return memory.get(std::max<int64_t>(count, 1));
}

/// Half-open part number `index` of [0, total), cut into `parts` nearly equal ones.
struct Part {
  int64_t begin, end;
  Part(int64_t total, int64_t parts, int64_t index)
      : begin(total * index / parts), end(total * (index + 1) / parts) {}
  int64_t size() const { return end - begin; }
};

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Returns the number of threads worth starting for `terms` multiply-adds.
inline int threads_for(int64_t terms) {
  constexpr int64_t kTermsPerThread = 1 << 16;
  const int64_t useful = std::max<int64_t>(terms / kTermsPerThread, 1);
  return static_cast<int>(std::min<int64_t>(omp_get_max_threads(), useful));
}

/// Copies up to 32 floats, as most packed lines have, by moves of a fixed size: a call of memcpy
/// takes longer than that.
inline void copy_short(const float* from, int64_t n, float* to) {
  const auto ends = [&](auto count) {  // two moves that may overlap
    constexpr size_t kCount = decltype(count)::value;
    std::memcpy(to, from, kCount * sizeof(float));
    std::memcpy(to + n - kCount, from + n - kCount, kCount * sizeof(float));
  };
  if (n > 32 || n < 8) {
    std::copy_n(from, n, to);
  } else if (n >= 16) {
    ends(std::integral_constant<size_t, 16>{});
  } else {
    ends(std::integral_constant<size_t, 8>{});
  }
}
inline void copy_short(const float* from, int64_t n, double* to) { std::copy_n(from, n, to); }

/// Packs lines of X(line, k) = from[line * line_stride + k * k_stride] as to[k * width + line].
/// `width` is a multiple of 8 and at least `lines` >= 1. The lanes in between contain arbitrary
/// values, so that whole vectors may be read.
template <class T>
void pack_lines(const Kernels<T>& kernels, int64_t lines, int64_t k, const float* from,
                int64_t line_stride, int64_t k_stride, T* to, int64_t width) {
  int64_t filled = lines;
  if (k_stride == 1) {
    kernels.transpose(lines, k, from, line_stride, to, width, true);
    filled = ceil_div(lines, 8) * 8;
  } else if (line_stride == 1) {
    for (int64_t i = 0; i < k; ++i) copy_short(from + i * k_stride, lines, to + i * width);
  } else {
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t j = 0; j < lines; ++j) to[i * width + j] = from[j * line_stride + i * k_stride];
    }
  }
  if (filled == width) return;
  for (int64_t i = 0; i < k; ++i) std::fill(to + i * width + filled, to + (i + 1) * width, T{0});
}

/// Returns how many vectors a panel of `columns` columns needs.
template <class T>
int vectors_for(const Chains<T>& chains, int64_t columns) {
  return columns > chains.lanes() ? 2 : 1;
}

/// Returns the distance between two k of a packed panel of b: its vectors, in whole blocks of the
/// transpose.
template <class T>
int64_t panel_width(const Chains<T>& chains, int64_t columns) {
  return ceil_div(static_cast<int64_t>(vectors_for(chains, columns)) * chains.lanes(), 8) * 8;
}

inline constexpr int kMaxPanel = 32;  ///< columns

/// Runs one tile and stores its sums. Chains in float go straight to the float matrix at c, or
/// continue in it; chains in double go through a small tile and are delivered. Sets tile.c and
/// tile.c_row; rows of c are `stride` apart.
template <class T>
void run_tile_to(const Chains<T>& chains, Tile<T>& tile, int rows, bool gather, float* c,
                 int64_t stride) {
  const int vectors = vectors_for(chains, tile.columns);
  const auto& functions = gather ? chains.kernels.gather : chains.kernels.strided;
  const auto function = functions[rows - 1][vectors - 1];
  tile.rounding = &chains.rounding;
  tile.sums = &chains.sums;
  int64_t c_row[kMaxRows];
  tile.c_row = c_row;
  if constexpr (std::is_same_v<T, float>) {
    for (int i = 0; i < rows; ++i) c_row[i] = i * stride;
    tile.c = c;
    function(tile);
  } else {
    alignas(64) T results[kMaxRows * kMaxPanel];
    for (int i = 0; i < rows; ++i) c_row[i] = i * kMaxPanel;
    tile.c = results;
    function(tile);
    for (int i = 0; i < rows; ++i) {
      chains.kernels.deliver(tile.columns, results + i * kMaxPanel, c + i * stride, chains.odd);
    }
  }
}

/// Returns the length of the blocks into which k is cut: short blocks keep a packed tile of a in
/// the first-level cache. Chains in double are not cut, because c cannot store them between blocks.
template <class T>
int64_t k_block(const Chains<T>& chains, int64_t k) {
  constexpr int64_t kLongest = 512;
  const bool whole = !std::is_same_v<T, float> || chains.uncut || k <= kLongest;
  if (whole) return std::max<int64_t>(k, 1);
  return ceil_div(k, ceil_div(k, kLongest));
}

}  // namespace halfscope::gemm_detail
