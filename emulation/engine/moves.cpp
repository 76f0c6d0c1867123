// SPDX-License-Identifier: MIT
// Kernels that move elements and compute nothing: copies, Expand, Transpose, Concat, Split,
// Slice, Pad.
#include <algorithm>
#include <cstring>

#include "core/ops/ops.h"
#include "emulation/engine/kernel.h"
#include "emulation/engine/walk.h"

namespace halfscope {
namespace {

/// to[...] = from[...] over a box of these sizes, with strides of their own.
template <class T>
void copy_box(const Shape& sizes, const T* from, const Strides& from_strides, T* to,
              const Strides& to_strides) {
  const Walk<2> walk(sizes, {from_strides, to_strides});
  const int64_t a = walk.step()[0], b = walk.step()[1];
  walk.rows([&](const std::array<int64_t, 2>& at, int64_t n) {
    const T* const x = from + at[0];
    T* const y = to + at[1];
    if (a == 1 && b == 1) {
      std::memcpy(y, x, static_cast<size_t>(n) * sizeof(T));
    } else {
      for (int64_t i = 0; i < n; ++i) y[i * b] = x[i * a];
    }
  });
}

template <class T>
void copy(KernelCall<T>& c) {
  const T* x = c.in[0];
  T* y = c.out[0];
  parallel_ranges(c.out_count(0), kGrain, [&](int64_t begin, int64_t end) {
    std::memcpy(y + begin, x + begin, static_cast<size_t>(end - begin) * sizeof(T));
  });
}

template <class T>
void expand(KernelCall<T>& c) {
  const Shape& to = c.out_shape(0);
  copy_box(to, c.in[0], broadcast_strides(c.in_shape(0), to), c.out[0], row_major(to));
}

template <class T>
void transpose(KernelCall<T>& c) {
  const Shape& to = c.out_shape(0);
  const Strides own = row_major(c.in_shape(0));
  Strides from;
  for (const int64_t axis : transpose_axes(*c.node, to.size())) {
    from.push_back(own[static_cast<size_t>(axis)]);
  }
  copy_box(to, c.in[0], from, c.out[0], row_major(to));
}

template <class T>
void concat(KernelCall<T>& c) {
  const int64_t axis = axis_attribute(*c.node, c.out_shape(0).size());
  const AxisSplit to = split_at(c.out_shape(0), axis);
  int64_t first = 0;
  for (size_t i = 0; i < c.in.size(); ++i) {
    const AxisSplit from = split_at(c.in_shape(i), axis);
    const int64_t run = from.length * from.inner;
    copy_box<T>({from.outer, run}, c.in[i], {run, 1}, c.out[0] + first, {to.length * to.inner, 1});
    first += run;
  }
}

template <class T>
void split(KernelCall<T>& c) {
  const int64_t axis = axis_attribute(*c.node, c.in_shape(0).size(), 0);
  const AxisSplit from = split_at(c.in_shape(0), axis);
  int64_t first = 0;
  for (size_t i = 0; i < c.out.size(); ++i) {
    const AxisSplit to = split_at(c.out_shape(i), axis);
    const int64_t run = to.length * to.inner;
    copy_box<T>({to.outer, run}, c.in[0] + first, {from.length * from.inner, 1}, c.out[i],
                {run, 1});
    first += run;
  }
}

/// Where the elements of a slice of `shape` lie in it.
struct SliceBox {
  Shape sizes;
  Strides strides;
  int64_t first = 0;

  SliceBox(const Node& node, const Shape& shape) {
    const std::vector<SliceAxis> axes = slice_axes(node, shape);
    const Strides own = row_major(shape);
    for (size_t i = 0; i < shape.size(); ++i) {
      sizes.push_back(axes[i].count);
      strides.push_back(own[i] * axes[i].step);
      first += own[i] * axes[i].start;
    }
  }
};

template <class T>
void slice(KernelCall<T>& c) {
  const SliceBox box(*c.node, c.in_shape(0));
  copy_box(box.sizes, c.in[0] + box.first, box.strides, c.out[0], row_major(box.sizes));
}

template <class T>
void slice_grad(KernelCall<T>& c) {
  const SliceBox box(*c.node, c.out_shape(0));
  std::fill_n(c.out[0], c.out_count(0), T{0});
  copy_box(box.sizes, c.in[0], row_major(box.sizes), c.out[0] + box.first, box.strides);
}

template <class T>
void pad(KernelCall<T>& c) {
  const Shape& from = c.in_shape(0);
  const Strides source = row_major(from), target = row_major(c.out_shape(0));
  const std::vector<PadAxis> axes = pad_axes(*c.node, from);
  Shape sizes;
  int64_t first = 0, first_to = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    sizes.push_back(axes[i].count);
    first += axes[i].source * source[i];
    first_to += axes[i].target * target[i];
  }
  std::fill_n(c.out[0], c.out_count(0), static_cast<T>(real_attribute(*c.node, "value", 0.0)));
  if (element_count(sizes) == 0) return;
  copy_box(sizes, c.in[0] + first, source, c.out[0] + first_to, target);
}

}  // namespace

template <class T>
std::span<const KernelEntry<T>> move_kernels() {
  static constexpr KernelEntry<T> kernels[] = {
      {"Identity", copy<T>}, {"StopGradient", copy<T>}, {"Flatten", copy<T>},
      {"Reshape", copy<T>},  {"Expand", expand<T>},     {"Transpose", transpose<T>},
      {"Concat", concat<T>}, {"Slice", slice<T>},       {"SliceGrad", slice_grad<T>},
      {"Pad", pad<T>},       {"Split", split<T>},
  };
  return kernels;
}

template std::span<const KernelEntry<float>> move_kernels();
template std::span<const KernelEntry<double>> move_kernels();
template std::span<const KernelEntry<int32_t>> move_kernels();

}  // namespace halfscope
