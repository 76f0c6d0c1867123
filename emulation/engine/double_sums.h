// SPDX-License-Identifier: MIT
// Double-precision products for the reference backend. They take a different route from the
// emulator's kernels (im2col, separate tiles, products and sums rounded separately), so that the
// two check each other. Every result is one chain over ascending k, whatever the number of threads,
// the instruction set and the cache sizes.
#pragma once

#include <cstdint>

#include "emulation/gemm/gemm.h"

namespace halfscope {

/// Computes c = op(a) op(b) + bias per column. a and b are dense and row-major; a set `trans` flag
/// means that the operand is stored transposed.
void gemm_double(int64_t m, int64_t n, int64_t k, const double* a, bool trans_a, const double* b,
                 bool trans_b, const double* bias, double* c);
void conv_forward_double(const ConvShape& shape, const double* x, const double* w,
                         const double* bias, double* y);
void conv_grad_input_double(const ConvShape& shape, const double* dy, const double* w, double* dx);
void conv_grad_weight_double(const ConvShape& shape, const double* x, const double* dy, double* dw);

}  // namespace halfscope
