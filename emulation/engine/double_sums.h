// SPDX-License-Identifier: MIT
// Double-precision products for the reference backend, by another route than the emulator's kernels
// (im2col, tiles of their own, products and sums rounded apart), so that the two check each other.
// Every result is one chain over ascending k, whatever the number of threads, the instruction set
// and the sizes of caches.
#pragma once

#include <cstdint>

#include "emulation/gemm/gemm.h"

namespace halfscope {

/// c = op(a) op(b) + bias per column; a and b dense row-major, stored transposed if the flag says
/// so.
void gemm_double(int64_t m, int64_t n, int64_t k, const double* a, bool trans_a, const double* b,
                 bool trans_b, const double* bias, double* c);
void conv_forward_double(const ConvShape& shape, const double* x, const double* w,
                         const double* bias, double* y);
void conv_grad_input_double(const ConvShape& shape, const double* dy, const double* w, double* dx);
void conv_grad_weight_double(const ConvShape& shape, const double* x, const double* dy, double* dw);

}  // namespace halfscope
