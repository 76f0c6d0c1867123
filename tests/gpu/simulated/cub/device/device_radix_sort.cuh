// SPDX-License-Identifier: MIT
// Takes the place of CUB's header of this name, for the simulated device (../../device.h): the one
// function that gpu/ calls, with the working memory that CUB may ask for.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <vector>

#include "tests/gpu/simulated/device.h"

namespace cub {

struct DeviceRadixSort {
  /// Sorts by the bits [begin, end) of unsigned keys. Without memory, only sets `bytes`.
  template <class Key, class Value>
  static cudaError_t SortPairs(void* memory, size_t& bytes, const Key* keys, Key* sorted_keys,
                               const Value* values, Value* sorted_values, int n, int begin, int end,
                               cudaStream_t stream) {
    namespace simulated = halfscope::simulated;
    const size_t count = static_cast<size_t>(n), needed = count * sizeof(Key) + 1;
    if (memory == nullptr) {
      bytes = needed;
      return cudaSuccess;
    }
    if (bytes < needed) return cudaErrorInvalidValue;
    if (begin < 0 || end <= begin || end > static_cast<int>(8 * sizeof(Key))) {
      simulated::violated("a sort by bits that its keys do not have");
    }
    if (!simulated::on_device(memory, bytes) || !simulated::on_device(keys, count * sizeof(Key)) ||
        !simulated::on_device(sorted_keys, count * sizeof(Key)) ||
        !simulated::on_device(values, count * sizeof(Value)) ||
        !simulated::on_device(sorted_values, count * sizeof(Value))) {
      simulated::violated("a sort of what is no memory of the device");
    }
    const auto sort = [=] {
      std::memset(memory, 0xff, needed);
      const Key mask = static_cast<Key>(~Key{0}) >> (8 * static_cast<int>(sizeof(Key)) - end);
      std::vector<size_t> order(count);
      std::iota(order.begin(), order.end(), size_t{0});
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        return (keys[a] & mask) >> begin < (keys[b] & mask) >> begin;
      });
      for (size_t i = 0; i < count; ++i) {
        sorted_keys[i] = keys[order[i]];
        sorted_values[i] = values[order[i]];
      }
    };
    return simulated::enqueue(stream, sort, {memory, keys, sorted_keys, values, sorted_values});
  }
};

}  // namespace cub
