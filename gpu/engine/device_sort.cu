// SPDX-License-Identifier: MIT
#include <cub/device/device_radix_sort.cuh>

#include "gpu/engine/device_sort.cuh"
#include "gpu/libraries/cuda_error.cuh"

namespace halfscope::gpu {
namespace {

/// Without memory, only finds the bytes of working memory.
size_t call_cub(const PairSort& sort, void* memory, size_t bytes, cudaStream_t stream) {
  check_cuda(cub::DeviceRadixSort::SortPairs(memory, bytes, sort.keys, sort.sorted_keys,
                                             sort.values, sort.sorted_values,
                                             static_cast<int>(sort.n), 0, sort.bits, stream),
             "sort");
  return bytes;
}

}  // namespace

size_t device_sort_bytes(const PairSort& sort) { return call_cub(sort, nullptr, 0, nullptr); }

void sort_on_device(const PairSort& sort, cudaStream_t stream) {
  call_cub(sort, sort.memory, sort.bytes, stream);
}

}  // namespace halfscope::gpu
