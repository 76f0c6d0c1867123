// SPDX-License-Identifier: MIT
// Kernels of scaled operands (core/ops/quantize.cpp). Codes are written before they are rounded,
// which the Program does as for any other value: so they are measured, and rounded in any mode.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "core/numeric/formats/round_odd.h"
#include "core/numeric/scaling/block_format.h"
#include "core/numeric/scaling/tensor_scaling.h"
#include "core/ops/ops.h"
#include "emulation/engine/kernel.h"

namespace halfscope {
namespace {

std::span<const float> as_floats(const float* x, int64_t count, std::vector<float>&) {
  return {x, static_cast<size_t>(count)};
}
std::span<const float> as_floats(const double* x, int64_t count, std::vector<float>& memory) {
  memory.assign(x, x + count);
  return memory;
}

/// The number that the elements are multiplied with.
float tensor_factor(const TensorScale& choice, std::span<const float> x, const FloatFormat& code,
                    float state) {
  switch (choice.kind) {
    case TensorScale::Kind::fixed:
      return choice.factor;
    case TensorScale::Kind::current:
      return current_scale(largest_magnitude(x), code, choice.grid);
    case TensorScale::Kind::delayed:
      return state > 0 ? state : 1;
    default:
      return 1;
  }
}

BlockFormat block_format(const Node& node) {
  const TensorScale& choice = node.plan.scale;
  BlockFormat format{.element = node.op == "Quantize" ? node.plan.write : node.plan.read,
                     .block_size = choice.block(),
                     .rule = choice.rule};
  if (choice.kind == TensorScale::Kind::nvfp4) format.scale = ScaleKind::e4m3fn_and_fp32;
  return format;
}

/// Calls f(scales, first element, count, stride) for neighbours in memory: the i-th of them has the
/// scale scales + i * stride.
template <class F>
void for_runs(const BlockShape& shape, int64_t block, const F& f) {
  const int64_t blocks = (shape.length + block - 1) / block;
  const int64_t row = std::max<int64_t>(1, shape.length * shape.inner);
  parallel_ranges(shape.outer, std::max<int64_t>(1, kGrain / row), [&](int64_t begin, int64_t end) {
    for (int64_t outer = begin; outer < end; ++outer) {
      const int64_t scales = outer / shape.outer_block * blocks * shape.inner;
      if (shape.inner == 1) {
        for (int64_t at = 0; at < shape.length; at += block) {
          f(scales + at / block, outer * row + at, std::min(block, shape.length - at), 0);
        }
      } else {
        for (int64_t at = 0; at < shape.length; ++at) {
          f(scales + at / block * shape.inner, outer * row + at * shape.inner, shape.inner, 1);
        }
      }
    }
  });
}

/// x over a scale that is a power of two: exact but where it leaves fp32 downwards, and there it
/// matters that it is not zero. A NaN scale makes NaN.
template <class T>
T by_power_of_two(T x, T scale) {
  const T ratio = x * (1 / scale);
  return ratio == 0 && x != 0 ? std::copysign(std::numeric_limits<T>::denorm_min(), x) : ratio;
}

/// x over the product of both scales. Where that vanished codes do, but as what is flushed to zero.
double by_two_scales(double x, double scale, double tensor_scale) {
  const double by = scale * tensor_scale;
  if (by != 0 || x == 0) return x == 0 ? x : x / by;
  return std::copysign(std::numeric_limits<double>::denorm_min(), x);
}
float ready(double ratio, const FloatFormat& code, float) { return deliver(ratio, code); }
double ready(double ratio, const FloatFormat&, double) { return ratio; }

template <class T>
void quantize_blocks(KernelCall<T>& c) {
  const BlockFormat format = block_format(*c.node);
  const BlockShape shape = block_shape(*c.node, c.in_shape(0));
  std::vector<float> memory, scales(static_cast<size_t>(c.out_count(1)));
  const float tensor_scale =
      block_scales(as_floats(c.in[0], c.in_count(0), memory), shape, format, scales);
  std::copy(scales.begin(), scales.end(), c.out[1]);
  c.out[2][0] = static_cast<T>(tensor_scale);
  const T *const x = c.in[0], *const scale = c.out[1];
  T* const y = c.out[0];
  if (format.scale == ScaleKind::ue8m0) {
    for_runs(shape, format.block_size, [&](int64_t s, int64_t first, int64_t n, int64_t stride) {
      for (int64_t i = first; i < first + n; ++i, s += stride) {
        y[i] = by_power_of_two(x[i], scale[s]);
      }
    });
    return;
  }
  const double of_tensor = static_cast<double>(tensor_scale);
  for_runs(shape, format.block_size, [&](int64_t s, int64_t first, int64_t n, int64_t stride) {
    for (int64_t i = first; i < first + n; ++i, s += stride) {
      const double ratio =
          by_two_scales(static_cast<double>(x[i]), static_cast<double>(scale[s]), of_tensor);
      y[i] = ready(ratio, c.node->plan.write, T{});
    }
  });
}

template <class T>
void quantize(KernelCall<T>& c) {
  if (c.node->plan.scale.by_block()) {
    quantize_blocks(c);
    return;
  }
  std::vector<float> memory;
  const float state = c.in.size() > 1 ? static_cast<float>(c.in[1][0]) : 0.0f;
  const float factor = tensor_factor(c.node->plan.scale, as_floats(c.in[0], c.in_count(0), memory),
                                     c.node->plan.write, state);
  c.out[1][0] = static_cast<T>(1 / factor);
  c.out[2][0] = 1;
  const T* const x = c.in[0];
  T* const y = c.out[0];
  parallel_ranges(c.out_count(0), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = x[i] * static_cast<T>(factor);
  });
}

template <class T>
void dequantize(KernelCall<T>& c) {
  const BlockShape shape = block_shape(*c.node, c.in_shape(0));
  const T *const codes = c.in[0], *const scale = c.in[1];
  T* const y = c.out[0];
  const double tensor_scale = static_cast<double>(c.in[2][0]);
  constexpr double kLargest = static_cast<double>(std::numeric_limits<float>::max());
  const int64_t block = c.node->plan.scale.block();
  for_runs(shape, block, [&](int64_t s, int64_t first, int64_t n, int64_t stride) {
    for (int64_t i = first; i < first + n; ++i, s += stride) {
      const double value =
          static_cast<double>(codes[i]) * (static_cast<double>(scale[s]) * tensor_scale);
      y[i] = static_cast<T>(std::clamp(value, -kLargest, kLargest));  // NaN stays
    }
  });
}

template <class T>
void scale_update(KernelCall<T>& c) {
  const TensorScale& choice = c.node->plan.scale;
  T* const state = c.out[0];
  const int64_t history = c.out_count(0) - kScaleStateHead;
  if (state != c.in[1]) std::copy_n(c.in[1], c.out_count(0), state);
  std::vector<float> memory, ring_memory;
  const float amax = largest_magnitude(as_floats(c.in[0], c.in_count(0), memory));
  const double place = static_cast<double>(state[1]);
  const bool inside = place >= 0 && place < static_cast<double>(history);
  const int64_t next = inside ? static_cast<int64_t>(place) : 0;
  state[kScaleStateHead + next] = static_cast<T>(amax);
  state[1] = static_cast<T>((next + 1) % history);
  const float before = state[0] > 0 ? static_cast<float>(state[0]) : 1.0f;
  const std::span<const float> ring = as_floats(state + kScaleStateHead, history, ring_memory);
  state[0] = static_cast<T>(
      delayed_scale(ring, amax, before, c.node->plan.write, choice.amax, choice.margin));
}

}  // namespace

template <class T>
std::span<const KernelEntry<T>> quantize_kernels() {
  static constexpr KernelEntry<T> kernels[] = {
      {"Quantize", quantize<T>},
      {"Dequantize", dequantize<T>},
      {"ScaleUpdate", scale_update<T>},
  };
  return kernels;
}

template std::span<const KernelEntry<float>> quantize_kernels();
template std::span<const KernelEntry<double>> quantize_kernels();

}  // namespace halfscope
