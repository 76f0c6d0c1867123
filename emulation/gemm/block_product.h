// SPDX-License-Identifier: MIT
// Matrix products under tensor-core models, on the tiles of block.h.
#pragma once

#include "emulation/gemm/gemm.h"

namespace halfscope::gemm_detail {

/// Destination of a product: element (i, j) goes to data[i * row_stride + j * column_stride]. The
/// bias is per row, per column, or absent. `first` is the index of data[0] in the whole output.
struct ResultView {
  float* data;
  int64_t row_stride, column_stride;
  const float* row_bias;
  const float* column_bias;
  int64_t first = 0;
};

/// Returns whether tiles exist for `spec`, with or without diagnostics.
bool has_block_tiles(const SumSpec& spec, bool diagnosed = false);

/// Computes c(i, j) = sum of a(i, k) * b(k, j), as defined in core/numeric/sums/accumulate.h. Needs
/// has_block_tiles(). Returns how many elements the tiles left to the reference.
int64_t block_product(int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b,
                      const ResultView& c, const SumSpec& spec,
                      SumDiagnostics* diagnostics = nullptr);

}  // namespace halfscope::gemm_detail
