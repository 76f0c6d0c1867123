// SPDX-License-Identifier: MIT
// Sorting on a device: pairs of a key and a value, by ascending keys. Pairs with equal keys keep
// their order, so the result is the same on every executor.
#pragma once

#include <cstddef>
#include <cstdint>

namespace halfscope::gpu {

/// A sort, with its memory on the device.
struct PairSort {
  const uint32_t* keys = nullptr;
  uint32_t* sorted_keys = nullptr;
  const int32_t* values = nullptr;
  int32_t* sorted_values = nullptr;
  int64_t n = 0;
  int bits = 32;           ///< all keys are below 2^bits
  void* memory = nullptr;  ///< working memory of `bytes` bytes, which executors name
  size_t bytes = 0;
};

}  // namespace halfscope::gpu
