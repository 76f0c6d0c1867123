// SPDX-License-Identifier: MIT
// Pinned host memory through which copies to a device pass, so that no copy blocks and its source
// may be changed at once. All programs of the process share one area per device, because pinning 32
// MiB takes longer than a small program runs.
//
// The area has two halves. One is filled while copies from the other are in flight. Before a half
// is filled again, the events of all streams that copied from it must have completed.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <mutex>
#include <set>

namespace halfscope::gpu {

class PinnedStaging {
 public:
  static constexpr size_t kHalfBytes = size_t{16} << 20;

  /// Events of one stream, one per half: all its copies from that half are done.
  using Events = std::array<cudaEvent_t, 2>;

  /// Returns the area of a device, which must be the current one when the area is used. The area is
  /// kept until the process ends: consecutive programs would otherwise pin it again and again. When
  /// static objects are destroyed, the CUDA runtime may already be gone.
  static PinnedStaging& of_device(int device);

  PinnedStaging() = default;
  PinnedStaging(const PinnedStaging&) = delete;
  PinnedStaging& operator=(const PinnedStaging&) = delete;
  ~PinnedStaging();

  /// Copies to the device in the order of `stream`; `from` may change when it returns. Thread-safe.
  /// Throws DeviceError if there is not enough memory or the device is lost.
  void upload(void* to, const void* from, size_t bytes, cudaStream_t stream, const Events& copied);

  /// Forgets these events. Call it when their stream is done, before they are destroyed.
  void forget(const Events& copied);

 private:
  /// Makes room for `part` bytes and returns it.
  std::byte* room_for(size_t part);

  std::mutex mutex_;
  std::byte* memory_ = nullptr;
  size_t half_ = 0, used_ = 0;  ///< `used_` bytes of half `half_` are taken
  std::array<std::set<cudaEvent_t>, 2> pending_;
};

}  // namespace halfscope::gpu
