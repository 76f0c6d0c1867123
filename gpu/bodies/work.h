// SPDX-License-Identifier: MIT
// Bodies: the work of kernels as plain structs of pointers and sizes, which run on the device and,
// one item after the other in any order, on the host. There are two kinds (gpu/engine/executor.h):
//   items    operator()(i): independent of all other items
//   blocks   step(s, block, thread, shared, state): threads of a block share memory, and meet
//            between steps; `state` is what a thread keeps from step to step
// Items that count into one place do so by the functions below: integers, so that order does not
// matter. Nothing else is written by two items.
#pragma once

#include <cstdint>

#include "core/bodies/elements.h"
#include "core/host_device.h"
#include "gpu/bodies/stored.h"

namespace halfscope::gpu {

// The host runs one item at a time.

HS_HD inline void add_to(uint32_t* target, uint32_t value) {
#if defined(__CUDA_ARCH__)
  atomicAdd(target, value);
#else
  *target += value;
#endif
}
HS_HD inline void add_to(uint64_t* target, uint64_t value) {
#if defined(__CUDA_ARCH__)
  atomicAdd(reinterpret_cast<unsigned long long*>(target), static_cast<unsigned long long>(value));
#else
  *target += value;
#endif
}
HS_HD inline void raise_to(uint32_t* target, uint32_t value) {
#if defined(__CUDA_ARCH__)
  atomicMax(target, value);
#else
  if (value > *target) *target = value;
#endif
}
HS_HD inline void lower_to(uint32_t* target, uint32_t value) {
#if defined(__CUDA_ARCH__)
  atomicMin(target, value);
#else
  if (value < *target) *target = value;
#endif
}

HS_HD constexpr int64_t smaller(int64_t a, int64_t b) noexcept { return a < b ? a : b; }
HS_HD constexpr int64_t larger(int64_t a, int64_t b) noexcept { return a > b ? a : b; }
HS_HD constexpr int64_t ceil_div(int64_t a, int64_t b) noexcept { return (a + b - 1) / b; }

/// Inner sums as a plan names them are for fp32 containers; double sums in double.
template <class T>
inline constexpr bool kNamesSums = sizeof(T) == sizeof(float);

}  // namespace halfscope::gpu
