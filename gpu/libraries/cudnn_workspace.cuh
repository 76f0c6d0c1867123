// SPDX-License-Identifier: MIT
// Device memory that engines of cuDNN need while they run; all products of a program use it, one
// after another. It grows while products are prepared and stays where it is once one has run,
// because CUDA graphs contain its address.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "gpu/libraries/cuda_error.cuh"

namespace halfscope::gpu::cudnn {

/// Engines that convert layouts need several GiB for a large batch. More would not be used.
inline constexpr int64_t kMostWorkspaceBytes = int64_t{4} << 30;

class Workspace {
 public:
  /// Only compares with the limit; nothing can run.
  explicit Workspace(int64_t limit) : limit_(limit), only_plans_(true) {}
  /// On the current device.
  Workspace() : limit_(limit_here()) {}
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() {
    if (memory_ != nullptr) static_cast<void>(cudaFree(memory_));
  }

  /// Returns the most bytes for the current device. It depends on the size of the device, so that
  /// runs choose the same engines, unless memory is short.
  static int64_t limit_here() {
    size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      return 0;
    }
    return std::min(
        {kMostWorkspaceBytes, static_cast<int64_t>(total / 16), static_cast<int64_t>(free / 2)});
  }

  /// Returns whether this many bytes can be used, after making room for them. Without enough memory
  /// the limit becomes half of what was requested.
  bool reserve(int64_t bytes) {
    if (bytes <= bytes_) return true;
    if (bytes > limit_ || in_use_) return false;
    if (only_plans_) return true;
    const int64_t before = bytes_;
    if (allocate(bytes)) return true;
    limit_ = std::max(before, bytes / 2);
    if (before > 0 && !allocate(before)) {
      throw_cuda_error(cudaErrorMemoryAllocation, "workspace allocation (cuDNN)",
                       static_cast<size_t>(before));
    }
    return false;
  }

  void* const* use() {
    in_use_ = true;
    return &memory_;
  }
  /// The same for a product that runs now and never again.
  void* const* now() const { return &memory_; }
  int64_t bytes() const { return bytes_; }

 private:
  /// Replaces the memory. The old memory is freed first: together they may not fit.
  bool allocate(int64_t bytes) {
    check_cuda(cudaFree(memory_), "workspace (cuDNN)");
    memory_ = nullptr;
    bytes_ = 0;
    const cudaError_t error = cudaMalloc(&memory_, static_cast<size_t>(bytes));
    if (error == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      memory_ = nullptr;
      return false;
    }
    check_cuda(error, "workspace allocation (cuDNN)", static_cast<size_t>(bytes));
    bytes_ = bytes;
    return true;
  }

  void* memory_ = nullptr;
  int64_t bytes_ = 0, limit_;
  bool only_plans_ = false;
  bool in_use_ = false;
};

}  // namespace halfscope::gpu::cudnn
