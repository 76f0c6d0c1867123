// SPDX-License-Identifier: MIT
// Bodies: the work of kernels as plain structs of pointers and sizes. They run on the device and,
// one item at a time in any order, on the host. There are two kinds (gpu/engine/executor.h):
//   items    operator()(i): independent of all other items
//   blocks   step(s, block, thread, shared, state): threads of a block share memory and synchronize
//            between steps; `state` is kept per thread from step to step
// Items that count into the same memory use the functions below. They add integers, so the order
// does not matter. Two items never write to the same memory in any other way.
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

/// True if inner sums follow the accumulation of the plan: only in fp32 containers; double sums in
/// double.
template <class T>
inline constexpr bool kNamesSums = sizeof(T) == sizeof(float);

}  // namespace halfscope::gpu
