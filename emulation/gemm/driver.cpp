// SPDX-License-Identifier: MIT
#include "emulation/gemm/driver.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace halfscope::gemm_detail {

const KernelSet& active_kernels(bool noting) {
  switch (active_isa()) {
#if defined(__x86_64__)
    case Isa::avx2:
      return noting ? avx2_noting_kernels() : avx2_kernels();
    case Isa::avx512:
      return noting ? avx512_noting_kernels() : avx512_kernels();
#endif
    default:
      return noting ? baseline_noting_kernels() : baseline_kernels();
  }
}

FormatRounding format_rounding(const FloatFormat& format) noexcept {
  return {.min_normal = FloatFormat::power_of_two(format.min_exponent()),
          .above_max = FloatFormat::power_of_two(format.max_exponent() + 1),
          .magic = 1.5 * FloatFormat::power_of_two(52 - format.mantissa_bits),
          .max_finite = format.max_finite(),
          .overflow = format.saturates()      ? format.max_finite()
                      : format.has_infinity() ? std::numeric_limits<double>::infinity()
                                              : std::numeric_limits<double>::quiet_NaN()};
}

OperandRange range_of(int64_t count, const float* x) noexcept {
  OperandRange range;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(x[i]);
    range.bits |= bits;
    range.lowest = std::min(range.lowest, (bits & 0x7fffffffu) - 1);  // 0 becomes the largest
  }
  return range;
}

OperandRange range_of(int64_t rows, int64_t columns, const MatrixView& x) noexcept {
  OperandRange range;
  const bool by_rows = x.column_stride == 1;
  const int64_t lines = by_rows ? rows : columns, length = by_rows ? columns : rows;
  const int64_t line_stride = by_rows ? x.row_stride : x.column_stride;
  const int64_t stride = by_rows ? x.column_stride : x.row_stride;
  for (int64_t line = 0; line < lines; ++line) {
    const float* const data = x.data + line * line_stride;
    for (int64_t i = 0; i < length; i = stride == 1 ? length : i + 1) {
      const OperandRange part = range_of(stride == 1 ? length : 1, data + i * stride);
      range.bits |= part.bits;
      range.lowest = std::min(range.lowest, part.lowest);
    }
  }
  return range;
}

namespace {

/// Returns whether every product is exact in fp32: each operand has at most 12 significant bits,
/// and no product has bits below the smallest fp32 number.
bool products_are_exact(const OperandRange& a, const OperandRange& b) noexcept {
  if (((a.bits | b.bits) & 0xfffu) != 0) return false;
  if (a.lowest == ~0u || b.lowest == ~0u) return true;  // only zeros
  const int64_t exponents = ((a.lowest + 1) >> 23) + ((b.lowest + 1) >> 23);
  return exponents - 2 * (127 + 11) >= -149;
}

}  // namespace

OperandFacts facts_of(const OperandRange& a, const OperandRange& b) noexcept {
  return {.exact_products = products_are_exact(a, b), .bf16 = ((a.bits | b.bits) & 0xffffu) == 0};
}

OperandFacts facts_of(const SumSpec& spec, int64_t steps, int64_t a_count, const float* a,
                      int64_t b_count, const float* b) noexcept {
  if (!wants_facts(spec, a_count + b_count, steps)) return {};
  return facts_of(range_of(a_count, a), range_of(b_count, b));
}

void count_nonzeros(int64_t lines, int64_t k, const float* from, int64_t line_stride,
                    int64_t k_stride, int32_t* to) noexcept {
  std::fill_n(to, k, 0);
  if (k_stride == 1) {
    for (int64_t line = 0; line < lines; ++line) {
      for (int64_t i = 0; i < k; ++i) to[i] += from[line * line_stride + i] != 0.0f ? 1 : 0;
    }
    return;
  }
  for (int64_t i = 0; i < k; ++i) {
    const float* const x = from + i * k_stride;
    int32_t count = 0;
    if (line_stride == 1) {  // the usual case, written so that it vectorizes
      for (int64_t line = 0; line < lines; ++line) count += x[line] != 0.0f ? 1 : 0;
    } else {
      for (int64_t line = 0; line < lines; ++line) count += x[line * line_stride] != 0.0f ? 1 : 0;
    }
    to[i] = count;
  }
}

}  // namespace halfscope::gemm_detail
