// SPDX-License-Identifier: MIT
// Steps without sums: arithmetic with broadcasting, functions of one element, copies.
#pragma once

#include <vector>

#include "gpu/bodies/elementwise.h"
#include "gpu/bodies/indexing.h"
#include "gpu/engine/node_call.h"

namespace halfscope::gpu {

/// Dimensions of 1 left out, neighbours that lie one after the other made one.
inline Strided strided(const Node& node, const std::vector<int64_t>& sizes,
                       const std::vector<int64_t>& strides) {
  Strided result;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    const int last = result.rank - 1;
    if (last >= 0 && result.stride[last] == strides[d] * sizes[d]) {
      result.size.set(last, result.size[last] * sizes[d]);
      result.stride[last] = strides[d];
      continue;
    }
    check_node(node, result.rank < kMaxRank,
               "more than " + std::to_string(kMaxRank) + " dimensions do not run on a GPU");
    result.size.set(result.rank, sizes[d]);
    result.stride[result.rank++] = strides[d];
  }
  return result;
}

inline std::vector<int64_t> row_major_strides(const Shape& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

/// `shape` seen as broadcast to `to`: stride 0 along stretched dimensions.
inline Strided broadcast(const Node& node, const Shape& shape, const Shape& to) {
  std::vector<int64_t> strides(to.size(), 0);
  const std::vector<int64_t> own = row_major_strides(shape);
  const size_t extra = to.size() - shape.size();
  for (size_t i = 0; i < shape.size(); ++i) strides[extra + i] = shape[i] == 1 ? 0 : own[i];
  return strided(node, to, strides);
}

inline Operand operand_of(const Node& node, const Shape& shape, const Shape& to) {
  if (element_count(shape) == element_count(to)) return {Operand::Kind::same, {}};
  if (element_count(shape) == 1) return {Operand::Kind::scalar, {}};
  return {Operand::Kind::broadcast, broadcast(node, shape, to)};
}

template <class X, class T, class Operation>
Step binary_step(const NodeCall<X, T>& c, Operation operation) {
  const Shape& to = c.out_shape(0);
  return items_step(
      *c.executor, element_count(to),
      Binary<T, Operation>{c.in[0], c.in[1], c.out[0], operand_of(*c.node, c.in_shape(0), to),
                           operand_of(*c.node, c.in_shape(1), to), operation});
}

/// Of operations that take no longer than reading their operands.
template <class X, class T, class Operation>
Step simple_binary_step(const NodeCall<X, T>& c, Operation operation) {
  const int64_t n = c.out_count(0);
  if (c.in_count(0) != n || c.in_count(1) != n) return binary_step(c, operation);
  return items_step(*c.executor, items_of_several(n),
                    SimpleBinary<T, Operation>{c.in[0], c.in[1], c.out[0], n, operation});
}
template <class X, class T, class Operation>
Step simple_unary_step(const NodeCall<X, T>& c, Operation operation) {
  const int64_t n = c.out_count(0);
  return items_step(*c.executor, items_of_several(n),
                    SimpleUnary<T, Operation>{c.in[0], c.out[0], n, operation});
}

template <class X, class T, class Operation>
Step unary_step(const NodeCall<X, T>& c, Operation operation) {
  return items_step(*c.executor, c.out_count(0), Unary<T, Operation>{c.in[0], c.out[0], operation});
}

/// Where the elements of a slice of `shape` lie in it.
struct SlicePlace {
  Strided at;
  int64_t first = 0;
};
inline SlicePlace slice_place(const Node& node, const Shape& shape,
                              const std::vector<SliceAxis>& axes) {
  const std::vector<int64_t> own = row_major_strides(shape);
  std::vector<int64_t> sizes, strides;
  int64_t first = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    sizes.push_back(axes[i].count);
    strides.push_back(own[i] * axes[i].step);
    first += own[i] * axes[i].start;
  }
  return {strided(node, sizes, strides), first};
}

/// Zeros, and x at its place.
template <class X, class T>
Step spread_step(const NodeCall<X, T>& c, const SlicePlace& place) {
  return in_turn({items_step(*c.executor, c.out_count(0), Fill<T>{c.out[0], T{0}}),
                  items_step(*c.executor, c.in_count(0),
                             CopyTo<T>{c.in[0], c.out[0], place.at, place.first})});
}

template <class X, class T>
Step pad_step(const NodeCall<X, T>& c) {
  const Shape& from = c.in_shape(0);
  const std::vector<PadAxis> axes = pad_axes(*c.node, from);
  const std::vector<int64_t> source = row_major_strides(from);
  const std::vector<int64_t> target = row_major_strides(c.out_shape(0));
  Shape sizes;
  int64_t first = 0, first_to = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    sizes.push_back(axes[i].count);
    first += axes[i].source * source[i];
    first_to += axes[i].target * target[i];
  }
  const T value = static_cast<T>(real_attribute(*c.node, "value", 0.0));
  const Step fill = items_step(*c.executor, c.out_count(0), Fill<T>{c.out[0], value});
  if (element_count(sizes) == 0) return fill;
  return in_turn({fill, items_step(*c.executor, element_count(sizes),
                                   CopyBox<T>{c.in[0] + first, c.out[0] + first_to,
                                              strided(*c.node, sizes, source),
                                              strided(*c.node, sizes, target)})});
}

template <class X, class T>
Step transpose_step(const NodeCall<X, T>& c) {
  const std::vector<int64_t> own = row_major_strides(c.in_shape(0));
  const Shape& to = c.out_shape(0);
  std::vector<int64_t> from;
  for (const int64_t axis : transpose_axes(*c.node, to.size())) {
    from.push_back(own[static_cast<size_t>(axis)]);
  }
  return items_step(*c.executor, element_count(to),
                    CopyFrom<T>{c.in[0], c.out[0], strided(*c.node, to, from)});
}

template <class X, class T>
Step concat_step(const NodeCall<X, T>& c) {
  const int64_t axis = axis_attribute(*c.node, c.out_shape(0).size());
  const AxisSplit to = split_at(c.out_shape(0), axis);
  std::vector<Step> steps;
  int64_t first = 0;
  for (size_t i = 0; i < c.in.size(); ++i) {
    const AxisSplit from = split_at(c.in_shape(i), axis);
    const int64_t run = from.length * from.inner;
    steps.push_back(items_step(
        *c.executor, c.in_count(i),
        CopyTo<T>{c.in[i], c.out[0], strided(*c.node, {from.outer, run}, {to.length * to.inner, 1}),
                  first}));
    first += run;
  }
  return in_turn(std::move(steps));
}

template <class X, class T>
Step split_step(const NodeCall<X, T>& c) {
  const int64_t axis = axis_attribute(*c.node, c.in_shape(0).size(), 0);
  const AxisSplit from = split_at(c.in_shape(0), axis);
  std::vector<Step> steps;
  int64_t first = 0;
  for (size_t i = 0; i < c.out.size(); ++i) {
    const AxisSplit to = split_at(c.out_shape(i), axis);
    const int64_t run = to.length * to.inner;
    steps.push_back(items_step(
        *c.executor, c.out_count(i),
        CopyFrom<T>{c.in[0], c.out[i],
                    strided(*c.node, {to.outer, run}, {from.length * from.inner, 1}), first}));
    first += run;
  }
  return in_turn(std::move(steps));
}

template <class X, class T>
Step slice_step(const NodeCall<X, T>& c) {
  const Shape& from = c.in_shape(0);
  const SlicePlace place = slice_place(*c.node, from, slice_axes(*c.node, from));
  return items_step(*c.executor, c.out_count(0),
                    CopyFrom<T>{c.in[0], c.out[0], place.at, place.first});
}

/// Into memory of its own, where the output does not lie in the input's.
template <class X, class T>
Step copy_step(const NodeCall<X, T>& c) {
  const int64_t n = c.out_count(0);
  return items_step(*c.executor, n, CopyFrom<T>{c.in[0], c.out[0], strided(*c.node, {n}, {1})});
}

template <class X, class T>
Step expand_step(const NodeCall<X, T>& c) {
  const Shape& to = c.out_shape(0);
  return items_step(*c.executor, element_count(to),
                    CopyFrom<T>{c.in[0], c.out[0], broadcast(*c.node, c.in_shape(0), to)});
}

template <class X, class T>
Step slice_grad_step(const NodeCall<X, T>& c) {
  const Shape& to = c.out_shape(0);
  return spread_step(c, slice_place(*c.node, to, slice_axes(*c.node, to)));
}

template <class X, class T>
Step movement_step(const NodeCall<X, T>& call) {
  using Call = NodeCall<X, T>;
  static constexpr StepRow<X, T> kRows[] = {
      {"Add", [](const Call& c) { return simple_binary_step(c, AddOp{}); }},
      {"Sub", [](const Call& c) { return simple_binary_step(c, SubOp{}); }},
      {"Mul", [](const Call& c) { return simple_binary_step(c, MulOp{}); }},
      {"Div", [](const Call& c) { return binary_step(c, DivOp{}); }},
      {"ReluGrad", [](const Call& c) { return simple_binary_step(c, ReluGradOp{}); }},
      {"Neg", [](const Call& c) { return simple_unary_step(c, NegOp{}); }},
      {"Sqrt", [](const Call& c) { return unary_step(c, SqrtOp{}); }},
      {"Exp", [](const Call& c) { return unary_step(c, ExpOp{c.out_format(0)}); }},
      {"Log", [](const Call& c) { return unary_step(c, LogOp{c.out_format(0)}); }},
      {"Relu", [](const Call& c) { return simple_unary_step(c, ReluOp{}); }},
      {"Assign", copy_step<X, T>},
      {"Expand", expand_step<X, T>},
      {"Slice", slice_step<X, T>},
      {"SliceGrad", slice_grad_step<X, T>},
      {"Pad", pad_step<X, T>},
      {"Transpose", transpose_step<X, T>},
      {"Concat", concat_step<X, T>},
      {"Split", split_step<X, T>},
  };
  return is_view(*call.node) ? copy_step(call) : step_from(kRows, call);
}

}  // namespace halfscope::gpu
