// SPDX-License-Identifier: MIT
// HS_VECTOR_CLONES: the compiler makes a version of a function for each vector instruction set and
// chooses when the module is loaded. For loops that convert and count; no result depends on it.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HS_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define HS_VECTOR_CLONES
#endif
