// SPDX-License-Identifier: MIT
// Matrix products of tensor-core models on the tiles of block.h.
#pragma once

#include "emulation/gemm/gemm.h"

namespace halfscope::gemm_detail {

/// Where the element (i, j) of a result goes: data[i * row_stride + j * column_stride]; the
/// bias of its row or of its column, or none; and which element of the whole result data[0] is.
struct ResultView {
  float* data;
  int64_t row_stride, column_stride;
  const float* row_bias;
  const float* column_bias;
  int64_t first = 0;
};

/// Whether there are tiles for it, with diagnostics or without.
bool has_block_tiles(const SumSpec& spec, bool diagnosed = false);

/// c(i, j) = sum of a(i, k) * b(k, j), as core/numeric/sums/accumulate.h has it. Needs block tiles.
/// Returns how many elements the tiles left to the reference.
int64_t block_product(int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b,
                      const ResultView& c, const SumSpec& spec,
                      SumDiagnostics* diagnostics = nullptr);

}  // namespace halfscope::gemm_detail
