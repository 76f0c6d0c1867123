// SPDX-License-Identifier: MIT
// Boxes of the operators that move elements.
#include "core/ops/movement.h"

#include <utility>

#include "core/ops/ops.h"

namespace halfscope {
namespace {

/// Returns the whole output, read from these positions of the only input.
Movement gathered(const Shape& to, Strides from, int64_t first = 0) {
  Movement result;
  result.boxes.push_back({0, 0, to, std::move(from), row_major(to), first, 0});
  return result;
}

Strides transposed(const Node& node, const Shape& x) {
  const Strides own = row_major(x);
  Strides from;
  for (const int64_t axis : transpose_axes(node, x.size())) {
    from.push_back(own[static_cast<size_t>(axis)]);
  }
  return from;
}

/// Returns parts of `whole` along an axis, one after the other: inputs of a Concat, outputs of a
/// Split.
Movement parts(const Graph& graph, const std::vector<ValueId>& values, const Shape& whole,
               int64_t axis, bool joins) {
  const AxisSplit all = split_at(whole, axis);
  const Strides of_all{all.length * all.inner, 1};
  Movement result;
  result.boxes.reserve(values.size());
  int64_t first = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const AxisSplit part = split_at(graph.value(values[i]).shape, axis);
    const int64_t run = part.length * part.inner;
    const Shape sizes{part.outer, run};
    if (joins) {
      result.boxes.push_back({i, 0, sizes, {run, 1}, of_all, 0, first});
    } else {
      result.boxes.push_back({0, i, sizes, of_all, {run, 1}, first, 0});
    }
    first += run;
  }
  return result;
}

/// The position of a slice within `shape`.
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

Movement spread(const Node& node, const Shape& to) {
  const SliceBox box(node, to);
  Movement result{0.0, {}};
  result.boxes.push_back({0, 0, box.sizes, row_major(box.sizes), box.strides, 0, box.first});
  return result;
}

Movement padded(const Node& node, const Shape& x, const Shape& y) {
  BoxCopy box{0, 0, {}, row_major(x), row_major(y)};
  const std::vector<PadAxis> axes = pad_axes(node, x);
  for (size_t i = 0; i < x.size(); ++i) {
    box.sizes.push_back(axes[i].count);
    box.first_from += axes[i].source * box.from[i];
    box.first_to += axes[i].target * box.to[i];
  }
  Movement result{real_attribute(node, "value", 0.0), {}};
  if (element_count(box.sizes) != 0) result.boxes.push_back(std::move(box));
  return result;
}

}  // namespace

Strides row_major(const Shape& shape) {
  Strides strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

Strides broadcast_strides(const Shape& shape, const Shape& to) {
  Strides strides(to.size(), 0);
  const Strides own = row_major(shape);
  const size_t extra = to.size() - shape.size();
  for (size_t i = 0; i < shape.size(); ++i) strides[extra + i] = shape[i] == 1 ? 0 : own[i];
  return strides;
}

void copy_box(const BoxCopy& box, std::span<const float> from, std::span<float> to) {
  const int64_t count = element_count(box.sizes);
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, a = box.first_from, b = box.first_to;
    for (size_t axis = box.sizes.size(); axis-- > 0;) {
      const int64_t at = rest % box.sizes[axis];
      rest /= box.sizes[axis];
      a += at * box.from[axis];
      b += at * box.to[axis];
    }
    to[static_cast<size_t>(b)] = from[static_cast<size_t>(a)];
  }
}

NodeId maker_of(const Graph& graph, ValueId value) {
  NodeId id = graph.value(value).producer;
  while (id != kNone) {
    const Node& node = graph.node(id);
    const OpDef& def = find_op(node.op);
    const bool keeps = def.view || def.movement != nullptr || node.op == "Cast" ||
                       node.op == "Gather" || node.op == "Quantize" || node.op == "Dequantize";
    if (!keeps) break;
    id = graph.value(node.inputs[0]).producer;
  }
  return id;
}

Movement movement_of(const Graph& graph, const Node& node) {
  const OpDef& def = find_op(node.op);
  check_node(node, def.movement != nullptr, "does not move elements");
  return def.movement(graph, node);
}

namespace movements {
namespace {

const Shape& in_shape(const Graph& graph, const Node& node) {
  return graph.value(node.inputs[0]).shape;
}
const Shape& out_shape(const Graph& graph, const Node& node) {
  return graph.value(node.outputs[0]).shape;
}

}  // namespace

Movement expand(const Graph& graph, const Node& node) {
  const Shape& y = out_shape(graph, node);
  return gathered(y, broadcast_strides(in_shape(graph, node), y));
}

Movement transpose(const Graph& graph, const Node& node) {
  return gathered(out_shape(graph, node), transposed(node, in_shape(graph, node)));
}

Movement concat(const Graph& graph, const Node& node) {
  const Shape& y = out_shape(graph, node);
  return parts(graph, node.inputs, y, axis_attribute(node, y.size()), true);
}

Movement split(const Graph& graph, const Node& node) {
  const Shape& x = in_shape(graph, node);
  return parts(graph, node.outputs, x, axis_attribute(node, x.size(), 0), false);
}

Movement slice(const Graph& graph, const Node& node) {
  const SliceBox box(node, in_shape(graph, node));
  return gathered(box.sizes, box.strides, box.first);
}

Movement slice_grad(const Graph& graph, const Node& node) {
  return spread(node, out_shape(graph, node));
}

Movement pad(const Graph& graph, const Node& node) {
  return padded(node, in_shape(graph, node), out_shape(graph, node));
}

}  // namespace movements
}  // namespace halfscope
