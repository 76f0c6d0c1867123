// SPDX-License-Identifier: MIT
// MatMul: the matrix product of the last two dimensions, as numpy's matmul. A one-dimensional
// operand is a row (the first) or a column (the second); its dimension of 1 is missing in the
// result. All other dimensions are a batch, which broadcasts. With transA or transB (ours; not for
// one-dimensional operands) the last two dimensions of an operand are swapped. A third operand
// (ours), with a matrix B and without transA, is a bias [n] that is part of the sums, as in
// PyTorch's linear layers.
// Gradients: dA = dy op(B)^T, dB = op(A)^T dy, summed where the batch was broadcast. A B without a
// batch uses one product of all rows, as in PyTorch. The bias gets the sums of dy over all rows.
#include <algorithm>
#include <numeric>

#include "core/ops/definitions.h"
#include "core/ops/samples.h"

namespace halfscope {
namespace {

bool transposes(const Node& node, const char* which) { return int_attribute(node, which, 0) != 0; }

Shape batch_of(const Shape& matrix) { return Shape(matrix.begin(), matrix.end() - 2); }

/// Returns the strides of a batch of matrices when it is broadcast to `batch`.
std::vector<int64_t> batch_strides(const Shape& matrix, const Shape& batch) {
  std::vector<int64_t> strides(batch.size(), 0);
  int64_t stride = matrix[matrix.size() - 1] * matrix[matrix.size() - 2];
  for (size_t i = 3; i <= matrix.size(); ++i) {
    const int64_t size = matrix[matrix.size() - i];
    if (size != 1) strides[batch.size() + 2 - i] = stride;
    stride *= size;
  }
  return strides;
}

}  // namespace

MatMulShape matmul_shape(const Node& node, const Shape& a, const Shape& b) {
  check_node(node, !a.empty() && !b.empty(), "operands need at least one dimension");
  const bool ta = transposes(node, "transA"), tb = transposes(node, "transB");
  check_node(node, (!ta || a.size() > 1) && (!tb || b.size() > 1),
             "one-dimensional operands have no transpose");
  MatMulShape s;
  s.a = a.size() == 1 ? Shape{1, a[0]} : a;
  s.b = b.size() == 1 ? Shape{b[0], 1} : b;
  const int64_t a_rows = s.a[s.a.size() - 2], a_columns = s.a.back();
  const int64_t b_rows = s.b[s.b.size() - 2], b_columns = s.b.back();
  s.m = ta ? a_columns : a_rows;
  s.k = ta ? a_rows : a_columns;
  s.n = tb ? b_rows : b_columns;
  check_node(node, s.k == (tb ? b_columns : b_rows),
             "inner dimensions differ: " + to_string(a) + " and " + to_string(b));
  s.batch = broadcast_shapes(node, batch_of(s.a), batch_of(s.b));
  s.result = s.batch;
  if (a.size() > 1) s.result.push_back(s.m);
  if (b.size() > 1) s.result.push_back(s.n);
  s.a_row = ta ? 1 : a_columns;
  s.a_column = ta ? a_columns : 1;
  s.b_row = tb ? 1 : b_columns;
  s.b_column = tb ? b_columns : 1;
  if (element_count(batch_of(s.b)) == 1 && !ta) {  // one product of all rows
    s.m *= element_count(s.batch);
    return s;
  }
  s.products = s.batch;
  s.a_batch = batch_strides(s.a, s.batch);
  s.b_batch = batch_strides(s.b, s.batch);
  return s;
}

namespace ops {
namespace {

std::vector<OutputType> infer(const Graph& graph, const Node& node) {
  const size_t count = node.inputs.size();
  check_node(node, count == 2 || count == 3, "needs two inputs and may have a bias");
  for (size_t i = 0; i < count; ++i) check_real(graph, node, i);
  const Shape &a = graph.value(node.inputs[0]).shape, &b = graph.value(node.inputs[1]).shape;
  const Shape result = matmul_shape(node, a, b).result;
  if (count == 3) {
    check_node(node, b.size() == 2 && !transposes(node, "transA"),
               "only rows times a matrix may have a bias");
    const Shape& bias = graph.value(node.inputs[2]).shape;
    check_node(node, bias == Shape{result.back()},
               "its bias " + to_string(bias) + " does not fit " + to_string(result));
  }
  return {{result}};
}

/// Returns an axis counted from the end, because the shapes are not known here.
int64_t summed_axis(const Node& node, size_t operand) {
  const bool transposed = transposes(node, operand == 0 ? "transA" : "transB");
  return (operand == 0) == transposed ? -2 : -1;
}

ValueId product(GradientContext& c, ValueId a, bool ta, ValueId b, bool tb) {
  return c.add("MatMul", {a, b}, {{"transA", int64_t{ta}}, {"transB", int64_t{tb}}});
}

std::vector<ValueId> gradient(GradientContext& c) {
  const bool ta = transposes(c.node(), "transA"), tb = transposes(c.node(), "transB");
  const MatMulShape s = matmul_shape(c.node(), c.input_shape(0), c.input_shape(1));
  const auto shaped = [&](ValueId value, const Shape& shape) {
    return c.graph().value(value).shape == shape ? value : c.reshape(value, shape);
  };
  Shape full = s.batch;
  full.push_back(s.a[s.a.size() - (ta ? 1 : 2)]);
  full.push_back(s.n);
  const ValueId dy = shaped(c.output_gradient(0), full);
  std::vector<ValueId> result(c.node().inputs.size(), kNone);
  if (result.size() > 2 && c.needed(2)) {  // before the products, as in Gemm
    std::vector<int64_t> axes(s.result.size() - 1);
    std::iota(axes.begin(), axes.end(), int64_t{0});
    const ValueId rows = c.output_gradient(0);
    result[2] = axes.empty()
                    ? rows
                    : c.add("ReduceSum", {rows}, {{"axes", axes}, {"keepdims", int64_t{0}}});
  }
  if (c.needed(1)) {
    ValueId a = shaped(c.input(0), s.a), rows = dy;
    if (s.products.empty() && !s.batch.empty()) {
      a = c.reshape(a, {s.m, s.k});
      rows = c.reshape(dy, {s.m, s.n});
    }
    const ValueId db = tb ? product(c, rows, true, a, ta) : product(c, a, !ta, rows, false);
    result[1] = s.products.empty() ? shaped(db, c.input_shape(1))
                                   : shaped(c.unbroadcast(db, s.b), c.input_shape(1));
  }
  if (c.needed(0)) {
    const ValueId b = shaped(c.input(1), s.b);
    const ValueId da = ta ? product(c, b, tb, dy, true) : product(c, dy, false, b, !tb);
    result[0] = shaped(c.unbroadcast(da, s.a), c.input_shape(0));
  }
  return result;
}

/// The samples of an operand of MatMul: a dimension of the batch, rows or columns of the result, or
/// summed over.
enum class Role : uint8_t { batch, free, summed };

Role role_of(const SampleNode& n, size_t operand) {
  const size_t rank = n.rank(operand), axis = n.place(operand)->axis;
  if (rank == 1) return Role::summed;
  if (axis + 2 < rank) return Role::batch;
  const auto from_end = static_cast<int64_t>(axis) - static_cast<int64_t>(rank);
  return from_end == summed_axis(n.node(), operand) ? Role::summed : Role::free;
}

SampleResult keeps_samples(const SampleNode& n) {
  const size_t rank = n.result().size();
  if (n.has(2) && n.place(2)) return samples::unfit("its bias depends on the samples");
  std::vector<samples::Operand> batches;
  bool batched = false;
  for (size_t i = 0; i < 2; ++i) {
    const size_t other = 1 - i;
    const Shape batch = n.rank(i) > 2 ? batch_of(n.shape(i)) : Shape{};
    batches.push_back({batch, n.place(i), i});
    if (!n.place(i)) continue;
    const Role role = role_of(n, i);
    if (role == Role::batch) {
      batched = true;
      continue;
    }
    if (n.place(other)) return samples::mixes("it multiplies samples with each other");
    if (role == Role::summed) return samples::unfit("it sums over the samples");
    // Rows come before columns, which a one-dimensional operand does not have.
    const size_t columns = n.rank(other) > 1 && i == 0 ? 1 : 0;
    return samples::at(SamplePlace{rank - 1 - columns, n.place(i)->before});
  }
  if (!batched) return samples::at(std::nullopt);
  const size_t dimensions = std::max(batches[0].shape.size(), batches[1].shape.size());
  return samples::broadcast_to(dimensions, batches);
}

}  // namespace

const std::vector<OpDef>& matmul() {
  static const std::vector<OpDef> defs{{.name = "MatMul",
                                        .domain = "",
                                        .infer = infer,
                                        .gradient = gradient,
                                        .autocast = Autocast::low,
                                        .onnx = {.written = true},
                                        .keeps_samples = keeps_samples,
                                        .product = ProductKind::matrix,
                                        .summed_axis = summed_axis}};
  return defs;
}

}  // namespace ops
}  // namespace halfscope
