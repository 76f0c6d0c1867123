// SPDX-License-Identifier: MIT
// OpDef: the row of an operator, with everything but its kernels. Names and semantics are ONNX's
// (opset 21); operators of ours are marked in `domain`. core/ops has the rows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"

namespace halfscope {

struct OutputType {
  Shape shape;
  ElementType type = ElementType::real;
};

/// Which format a mixed policy gives an operator. The classes follow PyTorch's autocast on
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

class GradientContext;  // core/graph/autodiff.h
class SampleNode;       // core/ops/samples.h
struct SampleResult;    // core/ops/samples.h
struct Movement;        // core/ops/movement.h

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
  /// Where the results have the samples of the inputs, if they are computed apart from each other
  /// (core/ops/samples.h). Null: not known to be.
  SampleResult (*keeps_samples)(const SampleNode&) = nullptr;
  /// Every output element is an element of an input, so rounding it to the inputs' format
  /// changes nothing.
  bool selects = false;
  /// The output is the input's memory under another shape.
  bool view = false;
  /// Moves elements of inputs [first, end) without looking at them, whatever they stand for.
  struct {
    size_t first = 0, end = 0;
  } moves{};
  /// All it does is move boxes of elements; backends copy them (core/ops/movement.h). Null for
  /// operators that compute.
  Movement (*movement)(const Graph&, const Node&) = nullptr;
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
  /// A constant of one element is read unrounded, whatever the node's read format, unless its plan
  /// is stagewise: PyTorch computes with a Python number in fp32 and rounds the result alone.
  bool reads_numbers = false;
  /// Outputs from this one on are not the node's result in its write format but statistics: those
  /// of an input that they replace are written in that input's format, others in fp32.
  size_t statistics_from = kAllInputs;
  Picks picks = Picks::nothing;

  /// Composites without a kernel and a gradient of their own: lower() expands them under every
  /// plan, and each primitive is planned as a node of its own (core/lower/add_planned.h).
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

}  // namespace halfscope
