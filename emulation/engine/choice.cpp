// SPDX-License-Identifier: MIT
// Relations, logic, ArgMax, ArgSort and Where (core/ops/choice.cpp).
#include <algorithm>
#include <numeric>
#include <vector>

#include "core/bodies/indices.h"
#include "core/ops/ops.h"
#include "emulation/engine/broadcast.h"
#include "emulation/engine/kernel.h"
#include "emulation/engine/map_values.h"
#include "emulation/engine/walk.h"

namespace halfscope {
namespace {

template <class T, class Relation>
void compare(KernelCall<T>& c) {
  if (c.in[0] != nullptr) {
    map_two(c, c.in[0], c.in[1], c.index_out[0], Relation{});
  } else {
    map_two(c, c.index_in[0], c.index_in[1], c.index_out[0], Relation{});
  }
}

template <class T, class Relation>
void logic(KernelCall<T>& c) {
  map_two(c, c.index_in[0], c.index_in[1], c.index_out[0], Relation{});
}

template <class T, class... F>
void add_relations(std::vector<KernelEntry<T>>& list, FunctionList<F...>) {
  (list.push_back({F::kName, compare<T, F>}), ...);
}
template <class T, class... F>
void add_connectives(std::vector<KernelEntry<T>>& list, FunctionList<F...>) {
  (list.push_back({F::kName, logic<T, F>}), ...);
}

template <class T>
void negate(KernelCall<T>& c) {
  for_items(c.out_count(0), kGrain,
            [x = c.index_in[0], y = c.index_out[0]](int64_t i) { y[i] = NotOp{}(x[i]); });
}

template <class T>
void arg_max(KernelCall<T>& c) {
  const AxisLines lines = axis_lines(*c.node, c.in_shape(0), 0);
  for_items(lines.count, 64,
            ArgMax<const T*>{c.in[0], c.index_out[0], lines,
                             int_attribute(*c.node, "select_last_index", 0) != 0});
}

/// Orders as the body ArgSort does, which compares each element with all others of its line.
template <class T>
void arg_sort(KernelCall<T>& c) {
  const AxisLines from = axis_lines(*c.node, c.in_shape(0), -1);
  const AxisLines to = axis_lines(*c.node, c.out_shape(0), -1);
  for_items(from.count, 1, [from, to, x = c.in[0], y = c.index_out[0]](int64_t line) {
    const auto at = [&](int32_t i) { return x[from.first(line) + i * from.stride]; };
    const auto before = [&](int32_t i, int32_t k) {
      const T a = at(i), b = at(k);
      if (is_nan(a) || is_nan(b)) return is_nan(a) && is_nan(b) ? i < k : is_nan(a);
      return a != b ? a > b : i < k;
    };
    std::vector<int32_t> order(static_cast<size_t>(from.size));
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + to.size, order.end(), before);
    for (int64_t i = 0; i < to.size; ++i)
      y[to.first(line) + i * to.stride] = order[static_cast<size_t>(i)];
  });
}

/// Chooses n elements: x's or the one of y, or one of each if kEach.
template <bool kEach, class T>
void choose_in_vectors(Isa isa, int64_t n, const int32_t* condition, const T* x, const T* y,
                       T* __restrict__ out) {
  call_in_vectors(isa, [=] {
    for (int64_t i = 0; i < n; ++i) {
      const T yes = x[i], no = y[kEach ? i : 0];
      out[i] = condition[i] != 0 ? yes : no;
    }
  });
}

template <class T>
void where(KernelCall<T>& c) {
  const Shape& to = c.out_shape(0);
  const T zero = 0;
  const T* values[2];
  Strides strides[2];
  for (size_t i = 0; i < 2; ++i) {
    const bool given = c.node->inputs[i + 1] != kNone;
    values[i] = given ? c.in[i + 1] : &zero;
    strides[i] = given ? broadcast_strides(c.in_shape(i + 1), to) : Strides(to.size(), 0);
  }
  const Walk<4> walk(to,
                     {broadcast_strides(c.in_shape(0), to), strides[0], strides[1], row_major(to)});
  const auto& step = walk.step();
  const bool adjacent = step[0] == 1 && step[1] == 1 && step[3] == 1;
  const Isa isa = active_isa();
  walk.rows([&](const std::array<int64_t, 4>& at, int64_t n) {
    if (adjacent && (step[2] == 0 || step[2] == 1)) {
      return (step[2] == 1 ? choose_in_vectors<true, T>
                           : choose_in_vectors<false, T>)(isa, n, c.index_in[0] + at[0],
                                                          values[0] + at[1], values[1] + at[2],
                                                          c.out[0] + at[3]);
    }
    for (int64_t i = 0; i < n; ++i) {
      const T x = values[0][at[1] + i * step[1]], y = values[1][at[2] + i * step[2]];
      c.out[0][at[3] + i * step[3]] = c.index_in[0][at[0] + i * step[0]] != 0 ? x : y;
    }
  });
}

}  // namespace

template <class T>
std::span<const KernelEntry<T>> choice_kernels() {
  static const auto kernels = [] {
    std::vector<KernelEntry<T>> list{
        {"Not", negate<T>}, {"ArgMax", arg_max<T>}, {"ArgSort", arg_sort<T>}, {"Where", where<T>}};
    add_relations(list, Relations{});
    add_connectives(list, Connectives{});
    return list;
  }();
  return kernels;
}

template std::span<const KernelEntry<float>> choice_kernels();
template std::span<const KernelEntry<double>> choice_kernels();
template std::span<const KernelEntry<int32_t>> choice_kernels();

}  // namespace halfscope
