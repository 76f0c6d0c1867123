// SPDX-License-Identifier: MIT
// HS_HD marks functions that compile for the host and, under nvcc, also for the device. HS_SELDOM
// keeps code that kernels rarely run out of line. Inlining it would cost every kernel registers and
// the compiler most of its time.
#pragma once

#if defined(__CUDACC__)
#define HS_HD __host__ __device__
#define HS_SELDOM __noinline__
#else
#define HS_HD
#define HS_SELDOM
#endif
