// SPDX-License-Identifier: MIT
// The operator table. Each operator is one file of core/ops with its shape rule, its gradient
// rule and, for composites, its expansion into primitives; a line in table.cpp makes it known.
// Names and semantics are ONNX's (opset 21); operators of ours are marked in `domain`.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"
#include "core/numeric/axis_lines.h"

namespace halfscope {

struct OutputType {
  Shape shape;
  ElementType type = ElementType::real;
};

/// What a gradient rule works with: the graph it may add nodes to, and the gradients of the
/// node's outputs. Nodes added through add() carry the forward node's path.
class GradientContext {
 public:
  GradientContext(Graph& graph, NodeId node, std::vector<ValueId> output_gradients,
                  std::vector<bool> needed)
      : graph_(graph),
        node_(node),
        output_gradients_(std::move(output_gradients)),
        needed_(std::move(needed)) {}

  Graph& graph() { return graph_; }
  /// Do not hold the reference across add(): the graph grows.
  const Node& node() const { return graph_.node(node_); }
  ValueId input(size_t i) const { return node().inputs.at(i); }
  ValueId output(size_t i) const { return node().outputs.at(i); }
  Shape input_shape(size_t i) const { return graph_.value(input(i)).shape; }
  /// Gradient of output i; kNone if the loss does not depend on it.
  ValueId output_gradient(size_t i) const { return output_gradients_.at(i); }
  /// Whether anyone wants the gradient of input i.
  bool needed(size_t i) const { return i < needed_.size() && needed_[i]; }
  /// Adds a node of the backward phase and returns its first output.
  ValueId add(std::string op, std::vector<ValueId> inputs, Attributes attributes = {});
  /// The same, all outputs.
  std::vector<ValueId> add_all(std::string op, std::vector<ValueId> inputs,
                               Attributes attributes = {});
  /// Gives `value` this very shape, zeros meaning zero.
  ValueId reshape(ValueId value, const Shape& shape);
  /// Sums `gradient` over the axes that broadcasting stretched, back to `shape`.
  ValueId unbroadcast(ValueId gradient, const Shape& shape);

 private:
  Graph& graph_;
  NodeId node_;
  std::vector<ValueId> output_gradients_;
  std::vector<bool> needed_;
};

/// Which format a mixed policy gives an operator. The classes are those of PyTorch's autocast on
/// CUDA (docs.pytorch.org/docs/stable/amp.html, "Autocast Op Reference"). Operators on none of its
/// lists run in the format of their inputs, like those that TensorFlow's grappler calls "infer" and
/// "clear" (auto_mixed_precision_lists.h).
enum class Autocast : uint8_t {
  unset,     ///< no operator may stay so
  internal,  ///< in no network: gradients follow their operator, updates and metrics their own
             ///< rules
  low,       ///< the policy's narrow format
  follow,    ///< the format of the input
  promote,   ///< the widest format of the inputs
  fp32,
};

/// Which sum of products an operator takes; its first two inputs are the operands, the third is a
/// bias.
enum class ProductKind : uint8_t { none, matrix, conv, conv_grad_input, conv_grad_weight };

/// What the indices in input 1 pick.
enum class Picks : uint8_t {
  nothing,
  classes,         ///< along axis 1 of input 0; negative ones are ignored
  rows,            ///< along attribute axis of input 0
  rows_of_result,  ///< along attribute axis of output 0
};

/// An attribute that has ONNX's name and meaning, and its value where a file leaves it out.
struct OnnxAttribute {
  const char* name;
  std::optional<double> fallback = std::nullopt;
};

/// How ONNX files hold an operator, as far as it needs no code: core/onnx/export_nodes.cpp writes
/// and core/onnx/translate_*.cpp read all others.
struct OnnxForm {
  bool written = false;   ///< with the same name, operands and attributes
  size_t read = 0;        ///< operands to read the same way; 0: core/onnx has a function
  bool integers = false;  ///< may be read with integer operands
  std::vector<OnnxAttribute> attributes{};
};

class SampleNode;

struct OpDef {
  const char* name;
  const char* domain;  ///< "" for ONNX, "halfscope" for ours
  /// Types of all outputs. Throws Error naming the node if the inputs do not fit.
  std::vector<OutputType> (*infer)(const Graph&, const Node&);
  /// Gradients of the inputs, kNone where none is needed; null if the operator has none.
  std::vector<ValueId> (*gradient)(GradientContext&) = nullptr;
  /// Composites: adds the primitives to `graph` under node.path + "/..." and returns the values
  /// that replace the node's outputs. Null for primitives.
  std::vector<ValueId> (*expand)(Graph& graph, const Node& node) = nullptr;
  Autocast autocast = Autocast::unset;
  OnnxForm onnx{};
  /// Whether every sample (axis 0 of some inputs) is computed apart from the others and the result
  /// has the samples along axis 0 (core/ops/samples.h). Null: not known to.
  bool (*keeps_samples)(const SampleNode&) = nullptr;
  /// Every output element is an element of an input, so rounding it to the inputs' format
  /// changes nothing.
  bool selects = false;
  /// The output is the input's memory under another shape.
  bool view = false;
  /// Moves elements of inputs [first, end) without looking at them, whatever they stand for.
  struct {
    size_t first = 0, end = 0;
  } moves{};
  /// Its kernels round the outputs themselves.
  bool rounds_itself = false;
  /// Sums of products of the first two inputs, which tensor cores can do.
  ProductKind product = ProductKind::none;
  /// Of those: the axis of operand 0 or 1 along which blocks with one scale lie, which is summed
  /// over; negative if it is counted from the end.
  int64_t (*summed_axis)(const Node&, size_t operand) = nullptr;
  /// Inputs from this one on are read as they are stored, whatever the node's read format; they do
  /// not count where a node follows its inputs.
  size_t stored_inputs_from = kAllInputs;
  /// Outputs from this one on are not the node's result in its write format but statistics: those
  /// of an input that they replace are written in that input's format, others in fp32.
  size_t statistics_from = kAllInputs;
  Picks picks = Picks::nothing;

  /// Composites without a kernel and a gradient of their own: lower() expands them under every
  /// plan, and each primitive is planned as a node of its own (core/graph/add_planned.h).
  bool always_expands = false;

  static constexpr size_t kAllInputs = SIZE_MAX;

  bool sums_products() const noexcept { return product != ProductKind::none; }
};

/// All operators, by name in ascending order.
std::span<const OpDef> op_table();
/// Throws Error for an unknown name.
const OpDef& find_op(const std::string& name);
/// Null for an unknown name.
const OpDef* lookup_op(std::string_view name);

/// Numpy-style broadcast of two shapes; throws Error naming `node` if they do not fit.
Shape broadcast_shapes(const Node& node, const Shape& a, const Shape& b);

/// Throws Error "fc1 (Gemm): TEXT" unless `ok`.
void check_node(const Node& node, bool ok, const std::string& text);

/// Throws Error unless input i holds real numbers, or indices.
void check_real(const Graph& graph, const Node& node, size_t i);
void check_index(const Graph& graph, const Node& node, size_t i);

/// The one type of all inputs from this one on; throws Error if they differ.
ElementType common_type(const Graph& graph, const Node& node, size_t first = 0);

/// Attribute axis, made non-negative; without a fallback it must be there.
int64_t axis_attribute(const Node& node, size_t rank,
                       std::optional<int64_t> fallback = std::nullopt);

/// A tensor as [outer, length, inner], where `length` is that of one axis.
struct AxisSplit {
  int64_t outer = 1, length = 1, inner = 1;
};
AxisSplit split_at(const Shape& shape, int64_t axis);

/// Attribute perm of Transpose; throws Error unless it names every axis once.
std::vector<int64_t> transpose_axes(const Node& node, size_t rank);

/// GatherElements and its gradient: indices are labels of rows, negative ones are ignored.
bool takes_labels(const Node& node);

/// Axes attribute of a reduction made non-negative and sorted; without any it is all axes, or none
/// with noop_with_empty_axes.
std::vector<int64_t> reduction_axes(const Node& node, size_t rank);

/// Lines of a tensor of this shape along attribute `axis`, which is the last one by default.
AxisLines axis_lines(const Node& node, const Shape& shape);

/// Groups of LayerNormalization and its like; throws Error if the attributes do not fit x.
NormGroups norm_groups(const Node& node, const Shape& x);
/// Of NormalizationGrad.
NormGroups norm_groups_of_gradient(const Node& node, const Shape& x, const Shape& scale);

/// Quantize and Dequantize: how a tensor of this shape is cut into blocks.
BlockShape block_shape(const Node& node, const Shape& shape);

/// ScaleUpdate: the state holds the scale (0: none yet, which means 1), where in the history the
/// next entry goes, and the history.
inline constexpr int64_t kScaleStateHead = 2;

/// What a product does with its sums and a bias: element (i, j) of a Gemm becomes
/// alpha * sum + beta * C[i * row + j * column]; others have no factors.
struct GemmBias {
  float alpha = 1.0f, beta = 1.0f;
  int64_t row = 0, column = 0;
  bool part_of_sums = true;  ///< plain biases [n], or none
};
GemmBias gemm_bias(const Graph& graph, const Node& node);

/// MatMul as products of matrices with strides.
struct MatMulShape {
  Shape a, b;           ///< of the operands, with at least two dimensions
  Shape batch, result;  ///< what is broadcast; the result's shape
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row = 0, a_column = 0, b_row = 0, b_column = 0;
  /// Products side by side: sizes, and the distances of their operands. Empty if one product of m
  /// rows does all.
  Shape products;
  std::vector<int64_t> a_batch, b_batch;
};

/// Throws Error if the operands do not fit.
MatMulShape matmul_shape(const Node& node, const Shape& a, const Shape& b);

/// One mask of an Attention: what is added to the scores, or what stands in their place where a
/// condition is false (`fills`: true).
struct AttentionMask {
  ValueId condition = kNone;  ///< kNone where it is added
  size_t value = 0;           ///< input of the node
  bool fills = false;
};
/// In the order in which they come; throws Error if the inputs after v are no masks.
std::vector<AttentionMask> attention_masks(const Graph& graph, const Node& node);

/// How the kernel of a 2-D convolution lies on its input.
struct ConvWindow {
  int64_t group = 1;
  int64_t stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int64_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
};

/// Of Conv and its gradients; throws Error if the attributes do not fit.
ConvWindow conv_window(const Node& node);

/// How the windows of a pool lie on its input.
struct PoolWindow {
  int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int64_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  bool counts_padding = false;  ///< of averages
};

/// Of MaxPool, AveragePool and their gradients; throws Error if the attributes do not fit.
PoolWindow pool_window(const Node& node);

/// What Slice takes of one dimension; steps may be negative.
struct SliceAxis {
  int64_t start, step, count;
};

/// Of every dimension of the input's shape; throws Error if the attributes do not fit.
std::vector<SliceAxis> slice_axes(const Node& node, const Shape& shape);

/// What Pad does with one dimension: `count` elements from `source` on go to `target` and after;
/// negative pads leave elements out.
struct PadAxis {
  int64_t source, target, count, result;  ///< `result` is the length of the output
};
std::vector<PadAxis> pad_axes(const Node& node, const Shape& shape);

}  // namespace halfscope
