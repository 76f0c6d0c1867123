// SPDX-License-Identifier: MIT
// The products of gemm.h under accumulations that the convolutions have no code of their own for:
// operands are laid out so that both factors of an output element lie in ascending k. Matrix
// products of that run on the tiles of gemm.cpp or block_product.h, or else on the reference.
#pragma once

#include "emulation/gemm/gemm.h"

namespace halfscope::gemm_detail {

/// Whether convolutions and sums have no code of their own for it.
bool needs_model(const SumSpec& spec) noexcept;
/// Whether tiled_gemm does it.
bool has_tiles(const SumSpec& spec) noexcept;

/// Where diagnostics go: null if they are not wanted, or mean nothing.
inline SumDiagnostics* prepare(const SumSpec& spec, Diagnostics* diagnostics) {
  if (diagnostics == nullptr) return nullptr;
  diagnostics->reset();
  if (!has_diagnostics(spec.accumulation)) return nullptr;
  return &diagnostics->emplace();
}

/// Which elements of a tensor of sums the elements of a product are: c(i, j) is element
/// first + i * row + j * column.
struct Elements {
  int64_t first, row, column;
};

/// gemm() on register tiles (gemm.cpp): single chains, promotion and split k.
void tiled_gemm(int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b, const float* row_bias,
                const float* column_bias, float* c, const SumSpec& spec, const Elements& elements,
                SumDiagnostics* diagnostics);

void model_gemm(int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b, const float* bias,
                float* c, const SumSpec& spec, SumDiagnostics* diagnostics, int64_t first);
/// Of one group; the pointers are those of the whole tensors.
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
