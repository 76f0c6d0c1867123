// SPDX-License-Identifier: MIT
// Kernels of scaled operands (core/bodies/scaling.h).
#include <algorithm>
#include <span>
#include <vector>

#include "core/bodies/scaling.h"
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

/// Computes y = f(x, scale of the block) for all elements.
template <class T, class F>
void map_blocks(const BlockShape& shape, int64_t block, const T* x, const T* scales, T* y,
                const F& f) {
  const int64_t blocks = (shape.length + block - 1) / block;
  const int64_t row = std::max<int64_t>(1, shape.length * shape.inner);
  parallel_ranges(shape.outer, std::max<int64_t>(1, kGrain / row), [&](int64_t begin, int64_t end) {
    for (int64_t outer = begin; outer < end; ++outer) {
      const T* const scale = scales + outer / shape.outer_block * blocks * shape.inner;
      for (int64_t at = 0; at < shape.length; at += shape.inner == 1 ? block : 1) {
        const T* const own = scale + at / block * shape.inner;
        const int64_t first = outer * row + at * shape.inner;
        if (shape.inner == 1) {
          const T one = *own;
          const int64_t last = first + std::min(block, shape.length - at);
          for (int64_t i = first; i < last; ++i) y[i] = f(x[i], one);
        } else {
          for (int64_t i = 0; i < shape.inner; ++i) y[first + i] = f(x[first + i], own[i]);
        }
      }
    }
  });
}

template <class T>
void quantize_blocks(KernelCall<T>& c) {
  const BlockFormat format = block_format(*c.node);
  const BlockShape shape = block_shape(*c.node, c.in_shape(0));
  std::vector<float> memory, scales(static_cast<size_t>(c.out_count(1)));
  const float tensor_scale =
      block_scales(as_floats(c.in[0], c.in_count(0), memory), shape, format, scales);
  std::copy(scales.begin(), scales.end(), c.out[1]);
  c.out[2][0] = static_cast<T>(tensor_scale);
  const int64_t block = format.block_size;
  if (format.scale == ScaleKind::ue8m0) {
    map_blocks(shape, block, c.in[0], c.out[1], c.out[0],
               [](T x, T scale) { return code_by_power_of_two(x, scale); });
    return;
  }
  if (format.scale == ScaleKind::fp32) {
    map_blocks(shape, block, c.in[0], c.out[1], c.out[0],
               [](T x, T scale) { return code_by_quotient(x, scale); });
    return;
  }
  const T of_tensor = c.out[2][0];
  const FloatFormat write = c.node->plan.write;
  map_blocks(shape, block, c.in[0], c.out[1], c.out[0], [of_tensor, write](T x, T scale) {
    return code_by_two_scales(x, scale, of_tensor, write);
  });
}

template <class T>
void quantize(KernelCall<T>& c) {
  if (c.node->plan.scale.by_block()) {
    quantize_blocks(c);
    return;
  }
  const TensorScale& choice = c.node->plan.scale;
  std::vector<float> memory;
  const float amax = choice.kind == TensorScale::Kind::current
                         ? largest_magnitude(as_floats(c.in[0], c.in_count(0), memory))
                         : 0.0f;
  const float state = c.in.size() > 1 ? static_cast<float>(c.in[1][0]) : 0.0f;
  const float factor = tensor_factor(choice, c.node->plan.write, amax, state);
  c.out[1][0] = static_cast<T>(undone(choice, factor));
  c.out[2][0] = 1;
  const T* const x = c.in[0];
  T* const y = c.out[0];
  const T by = static_cast<T>(factor);
  parallel_ranges(c.out_count(0), kGrain, [&](int64_t begin, int64_t end) {
    if (choice.kind == TensorScale::Kind::divided) {
      for (int64_t i = begin; i < end; ++i) y[i] = code_by_quotient(x[i], by);
    } else {
      for (int64_t i = begin; i < end; ++i) y[i] = x[i] * by;
    }
  });
}

template <class T>
void dequantize(KernelCall<T>& c) {
  const BlockShape shape = block_shape(*c.node, c.in_shape(0));
  map_blocks(shape, block_format(*c.node).block_size, c.in[0], c.in[1], c.out[0],
             [tensor_scale = c.in[2][0]](T code, T scale) {
               return value_of_code(code, scale, tensor_scale);
             });
}

template <class T>
void scale_update(KernelCall<T>& c) {
  const TensorScale& choice = c.node->plan.scale;
  T* const state = c.out[0];
  if (state != c.in[1]) std::copy_n(c.in[1], c.out_count(0), state);
  std::vector<float> memory;
  const float amax = largest_magnitude(as_floats(c.in[0], c.in_count(0), memory));
  advance_scale_state(state, c.out_count(0) - kScaleStateHead, amax, c.node->plan.write,
                      choice.amax, choice.margin);
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
