// SPDX-License-Identifier: MIT
#include "gpu/engine/pinned_staging.cuh"

#include <algorithm>
#include <cstring>
#include <map>

#include "gpu/libraries/cuda_error.cuh"

namespace halfscope::gpu {

PinnedStaging& PinnedStaging::of_device(int device) {
  static std::mutex mutex;
  static auto* const areas = new std::map<int, PinnedStaging>;  // never destroyed, see the header
  const std::lock_guard<std::mutex> lock(mutex);
  return (*areas)[device];
}

PinnedStaging::~PinnedStaging() { static_cast<void>(cudaFreeHost(memory_)); }

std::byte* PinnedStaging::room_for(size_t part) {
  if (memory_ == nullptr) {
    void* memory = nullptr;
    check_cuda(cudaMallocHost(&memory, 2 * kHalfBytes), "pinned-memory allocation", 2 * kHalfBytes);
    memory_ = static_cast<std::byte*>(memory);
  }
  if (used_ + part > kHalfBytes) {
    const size_t next = 1 - half_;
    for (cudaEvent_t event : pending_[next]) {
      check_cuda(cudaEventSynchronize(event), "copy to the device");
    }
    pending_[next].clear();
    half_ = next;
    used_ = 0;
  }
  return memory_ + half_ * kHalfBytes + used_;
}

void PinnedStaging::upload(void* to, const void* from, size_t bytes, cudaStream_t stream,
                           const Events& copied) {
  constexpr size_t kAlignment = 256;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (size_t done = 0; done < bytes;) {
    const size_t part = std::min(bytes - done, kHalfBytes);
    std::byte* const at = room_for(part);
    std::memcpy(at, static_cast<const std::byte*>(from) + done, part);
    check_cuda(cudaMemcpyAsync(static_cast<std::byte*>(to) + done, at, part, cudaMemcpyHostToDevice,
                               stream),
               "copy to the device", bytes);
    used_ += (part + kAlignment - 1) / kAlignment * kAlignment;
    // Recorded now: later, another thread would have to do it on a stream that it does not own.
    pending_[half_].insert(copied[half_]);
    check_cuda(cudaEventRecord(copied[half_], stream), "copy to the device", bytes);
    done += part;
  }
}

void PinnedStaging::forget(const Events& copied) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (size_t half = 0; half < pending_.size(); ++half) pending_[half].erase(copied[half]);
}

}  // namespace halfscope::gpu
