// SPDX-License-Identifier: MIT
// OpenMP's functions for one thread. A page has no threads unless its server sends special headers,
// and a file has no server.
#pragma once

inline int omp_get_max_threads() { return 1; }
inline int omp_get_num_threads() { return 1; }
inline int omp_get_thread_num() { return 0; }
inline int omp_in_parallel() { return 0; }
inline void omp_set_num_threads(int) {}
