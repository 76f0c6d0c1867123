// SPDX-License-Identifier: MIT
// Checks on the device that an engine of cuDNN sums products. Engines for Winograd's algorithm and
// for Fourier transforms multiply transformed operands instead, so the errors of their results grow
// with the largest operand of a tile. cuDNN notes this for most of them, but not for all:
// cuDNN 9.14 proposes engine 17 for the fp32 gradient of a 5x5 weight on an H200 without a note.
//
// The check multiplies two neighbours, 1 and 2^40, by 1. Sums have exactly these two results. A
// transform first adds the neighbours, so the 1 is lost.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "gpu/libraries/cuda_error.cuh"
#include "gpu/libraries/product_plan.h"

namespace halfscope::gpu::cudnn {

/// Elements of a convolution: each of `pair`, in the first operand, times the element `one` of the
/// second operand is the whole of one of `results`.
struct NeighbourCheck {
  int64_t pair[2], one, results[2];

  friend bool operator==(const NeighbourCheck&, const NeighbourCheck&) = default;
};

/// Returns the check of a convolution in fp32; nothing if no engine would transform it: its window
/// is a single element or is moved by more than one, or there are no two neighbours.
inline std::optional<NeighbourCheck> neighbour_check(const ConvPlan& plan) {
  for (const auto* tensor : {&plan.x, &plan.w, &plan.y}) {
    if (tensor->storage != Storage::fp32) return std::nullopt;
  }
  if (plan.strides != std::array<int64_t, 2>{1, 1}) return std::nullopt;
  if (plan.dilations != std::array<int64_t, 2>{1, 1}) return std::nullopt;
  for (const size_t axis : {size_t{1}, size_t{0}}) {
    const size_t other = 1 - axis;
    const int64_t window = plan.w.size[2 + axis], pad = plan.pad_before[axis];
    const int64_t beside = plan.pad_before[other];  // of the window: it meets the first line
    if (window < 2 || pad >= window || beside >= plan.w.size[2 + other]) continue;
    if (plan.x.size[2 + axis] < 2) continue;
    const auto at = [&](const TensorPlan& tensor, int64_t i, int64_t line) {
      return i * tensor.stride[2 + axis] + line * tensor.stride[2 + other];
    };
    const auto x = [&](int64_t i) { return at(plan.x, i, 0); };
    const auto w = [&](int64_t i) { return at(plan.w, i, beside); };
    const auto y = [&](int64_t i) { return at(plan.y, i, 0); };
    if (plan.product == ConvProduct::grad_weight) {
      const int64_t tap = std::min(pad, window - 2);
      if (pad - tap >= plan.y.size[2 + axis]) continue;
      return NeighbourCheck{{x(0), x(1)}, y(pad - tap), {w(tap), w(tap + 1)}};
    }
    if (plan.y.size[2 + axis] < 2) continue;
    if (plan.product == ConvProduct::forward) {
      return NeighbourCheck{{x(0), x(1)}, w(pad), {y(0), y(1)}};
    }
    return NeighbourCheck{{y(0), y(1)}, w(pad), {x(0), x(1)}};
  }
  return std::nullopt;
}

/// A tensor of zeros on the device, but for a few elements.
class ZeroTensor {
 public:
  ZeroTensor(const TensorPlan& plan, cudaStream_t stream) : stream_(stream) {
    int64_t elements = 1;
    for (size_t i = 0; i < 4; ++i) elements += (plan.size[i] - 1) * plan.stride[i];
    const size_t bytes = static_cast<size_t>(elements) * sizeof(float);
    check_cuda(cudaMalloc(&memory_, bytes), "allocation (check of cuDNN)", bytes);
    check_cuda(cudaMemsetAsync(memory_, 0, bytes, stream_), "memset (check of cuDNN)", bytes);
  }
  ZeroTensor(const ZeroTensor&) = delete;
  ZeroTensor& operator=(const ZeroTensor&) = delete;
  ~ZeroTensor() { static_cast<void>(cudaFree(memory_)); }

  void* memory() const { return memory_; }
  void set(int64_t element, float value) {
    check_cuda(cudaMemcpyAsync(at(element), &value, sizeof value, cudaMemcpyHostToDevice, stream_),
               "copy (check of cuDNN)", sizeof value);
    check_cuda(cudaStreamSynchronize(stream_), "copy (check of cuDNN)");
  }
  float get(int64_t element) const {
    float value = 0.0f;
    check_cuda(cudaMemcpyAsync(&value, at(element), sizeof value, cudaMemcpyDeviceToHost, stream_),
               "copy (check of cuDNN)", sizeof value);
    check_cuda(cudaStreamSynchronize(stream_), "copy (check of cuDNN)");
    return value;
  }

 private:
  float* at(int64_t element) const { return static_cast<float*>(memory_) + element; }

  void* memory_ = nullptr;
  cudaStream_t stream_;
};

/// Returns whether the results are those of sums. `run(first operand, second operand, result)`
/// computes the convolution in the stream.
template <class Run>
bool sums_products(const ConvPlan& plan, const NeighbourCheck& check, cudaStream_t stream,
                   const Run& run) {
  constexpr float kLarge = 0x1p40f;
  const bool forward = plan.product == ConvProduct::forward;
  const bool of_weight = plan.product == ConvProduct::grad_weight;
  // run() takes (x, w), (y, w) or (y, x).
  ZeroTensor pair(forward || of_weight ? plan.x : plan.y, stream);
  ZeroTensor one(of_weight ? plan.y : plan.w, stream), result(plan.made(), stream);
  one.set(check.one, 1.0f);
  for (const size_t large : {size_t{0}, size_t{1}}) {
    pair.set(check.pair[large], kLarge);
    pair.set(check.pair[1 - large], 1.0f);
    if (of_weight) {
      run(one.memory(), pair.memory(), result.memory());
    } else {
      run(pair.memory(), one.memory(), result.memory());
    }
    if (result.get(check.results[large]) != kLarge) return false;
    if (result.get(check.results[1 - large]) != 1.0f) return false;
  }
  return true;
}

}  // namespace halfscope::gpu::cudnn
