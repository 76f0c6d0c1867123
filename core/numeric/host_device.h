// SPDX-License-Identifier: MIT
// HS_HD marks functions that compile for the host and, under nvcc, for the device too.
#pragma once

#if defined(__CUDACC__)
#define HS_HD __host__ __device__
#else
#define HS_HD
#endif
