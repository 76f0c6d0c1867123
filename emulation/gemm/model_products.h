// SPDX-License-Identifier: MIT
// The products of gemm.h under accumulations for which the convolutions have no code. Operands are
// laid out so that both factors of an output element are in ascending k. The resulting matrix
// products run on the tiles of gemm.cpp or block_product.h, or else on the reference.
#pragma once

#include "emulation/gemm/gemm.h"

namespace halfscope::gemm_detail {

/// Returns whether convolutions and sums have no code for `spec`, so that they need model_*().
bool needs_model(const SumSpec& spec) noexcept;
/// Returns whether tiled_gemm() supports `spec`.
bool has_tiles(const SumSpec& spec) noexcept;

/// Returns where diagnostics go, or null if they are not requested or not defined for `spec`.
inline SumDiagnostics* prepare(const SumSpec& spec, Diagnostics* diagnostics) {
  if (diagnostics == nullptr) return nullptr;
  diagnostics->reset();
  if (!has_diagnostics(spec.accumulation)) return nullptr;
  return &diagnostics->emplace();
}

/// Position of a product's elements in a tensor of sums: c(i, j) is element first + i * row + j *
/// column.
struct Elements {
  int64_t first, row, column;
};

/// Computes gemm() on register tiles (gemm.cpp): single chains, promotion and split k.
void tiled_gemm(int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b, const float* row_bias,
                const float* column_bias, float* c, const SumSpec& spec, const Elements& elements,
                SumDiagnostics* diagnostics);

void model_gemm(int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b, const float* bias,
                float* c, const SumSpec& spec, SumDiagnostics* diagnostics, int64_t first);
/// One group each; the pointers are to the whole tensors.
void model_conv_forward(const ConvShape& shape, int64_t group, const float* x, const float* w,
                        const float* bias, float* y, const SumSpec& spec,
                        SumDiagnostics* diagnostics);
void model_conv_grad_input(const ConvShape& shape, int64_t group, const float* dy, const float* w,
                           float* dx, const SumSpec& spec, SumDiagnostics* diagnostics);
void model_conv_grad_weight(const ConvShape& shape, int64_t group, const float* x, const float* dy,
                            float* dw, const SumSpec& spec, SumDiagnostics* diagnostics);
void model_sum_except(int64_t outer, int64_t n, int64_t inner, const float* x, float* out,
                      const SumSpec& spec);

}  // namespace halfscope::gemm_detail
