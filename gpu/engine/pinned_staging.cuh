// SPDX-License-Identifier: MIT
// Pinned host memory that copies to a device pass through, so that a copy waits for nobody and its
// source may change at once. All programs of the process share one area per device: pinning 32 MiB
// takes longer than a small program runs.
//
// The area has two halves. One is filled while copies from the other are on their way. Before a
// half is filled again, the events of all streams that copied from it are waited for.
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

  /// Events of one stream, one for each half: all its copies from that half are done.
  using Events = std::array<cudaEvent_t, 2>;

  /// Returns the area of that device, which must be the current one when it is used. The area is
  /// kept until the process ends: programs that come one after the other would pin it again and
  /// again, and when static objects are destroyed the CUDA runtime may be gone already.
  static PinnedStaging& of_device(int device);

  PinnedStaging() = default;
  PinnedStaging(const PinnedStaging&) = delete;
  PinnedStaging& operator=(const PinnedStaging&) = delete;
  ~PinnedStaging();

  /// Copies to the device in the order of `stream`; `from` may change when it returns. Any thread
  /// may call it. Throws DeviceError if there is no memory, or the device is lost.
  void upload(void* to, const void* from, size_t bytes, cudaStream_t stream, const Events& copied);

  /// Call it when the stream of these events is done, before they are destroyed.
  void forget(const Events& copied);

 private:
  /// Makes room for `part` bytes and returns it.
  std::byte* room_for(size_t part);

  std::mutex mutex_;
  std::byte* memory_ = nullptr;
  size_t half_ = 0, used_ = 0;  ///< `used_` bytes of that half are taken
  std::array<std::set<cudaEvent_t>, 2> pending_;
};

}  // namespace halfscope::gpu
