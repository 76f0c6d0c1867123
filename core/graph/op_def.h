// SPDX-License-Identifier: MIT
// OpDef: everything about an operator except its kernels. Names and semantics are ONNX's (opset
// 21); our own operators are marked in `domain`. The definitions are in core/ops.
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

/// Decides the format that a mixed-precision policy gives an operator. The classes follow PyTorch's
/// autocast on CUDA (docs.pytorch.org/docs/stable/amp.html, "Autocast Op Reference"). Operators on
/// none of its lists run in the format of their inputs, like those that TensorFlow's grappler calls
/// "infer" and "clear" (auto_mixed_precision_lists.h).
enum class Autocast : uint8_t {
  unset,     ///< not allowed in the table
  internal,  ///< never in a network: gradients follow their operator; updates and metrics have
             ///< their own rules
  low,       ///< the policy's low-precision format
  follow,    ///< the format of the input
  promote,   ///< the input format with the most precision
  fp32,
};

/// The kind of sum of products that an operator computes. Its first two inputs are the operands,
/// the third is a bias.
enum class ProductKind : uint8_t { none, matrix, conv, conv_grad_input, conv_grad_weight };

/// The things that the indices in input 1 select.
enum class Picks : uint8_t {
  nothing,
  classes,         ///< along axis 1 of input 0; negative ones are ignored
  rows,            ///< along the attribute `axis` of input 0
  rows_of_result,  ///< along the attribute `axis` of output 0
};

/// An attribute with ONNX's name and meaning, and its value if a file omits it.
struct OnnxAttribute {
  const char* name;
  std::optional<double> fallback = std::nullopt;
};

/// How ONNX files represent an operator, as far as that needs no code. core/onnx/export_nodes.cpp
/// and core/onnx/translate_*.cpp handle all others.
struct OnnxForm {
  bool written = false;   ///< exported with the same name, operands and attributes
  size_t read = 0;        ///< operands to import unchanged; 0: core/onnx has a function
  bool integers = false;  ///< may be imported with integer operands
  std::vector<OnnxAttribute> attributes{};
};

class GradientContext;  // core/graph/autodiff.h
class SampleNode;       // core/ops/samples.h
struct SampleResult;    // core/ops/samples.h
struct Movement;        // core/ops/movement.h

struct OpDef {
  const char* name;
  const char* domain;  ///< "" for ONNX, "halfscope" for ours
  /// Returns the types of all outputs. Throws Error naming the node if the inputs do not fit.
  std::vector<OutputType> (*infer)(const Graph&, const Node&);
  /// Returns the gradients of the inputs, kNone where none is needed. Null if the operator has
  /// none.
  std::vector<ValueId> (*gradient)(GradientContext&) = nullptr;
  /// Composites: adds the primitives to `graph` under node.path + "/..." and returns the values
  /// that replace the node's outputs. Null for primitives.
  std::vector<ValueId> (*expand)(Graph& graph, const Node& node) = nullptr;
  Autocast autocast = Autocast::unset;
  OnnxForm onnx{};
  /// Returns where the outputs have the samples of the inputs, if samples are computed
  /// independently (core/ops/samples.h). Null: not known to be independent.
  SampleResult (*keeps_samples)(const SampleNode&) = nullptr;
  /// Every output element is an element of an input, so rounding it to the inputs' format changes
  /// nothing.
  bool selects = false;
  /// The output is the input's memory under another shape.
  bool view = false;
  /// Moves elements of inputs [first, end) without interpreting them.
  struct {
    size_t first = 0, end = 0;
  } moves{};
  /// Describes an operator that only copies boxes of elements; backends do that for it
  /// (core/ops/movement.h). Null for operators that compute.
  Movement (*movement)(const Graph&, const Node&) = nullptr;
  /// Its kernels round the outputs themselves.
  bool rounds_itself = false;
  /// Sums products of the first two inputs, which tensor cores can compute.
  ProductKind product = ProductKind::none;
  /// Products: returns the axis of operand 0 or 1 that is summed over, along which blocks share a
  /// scale. A negative axis counts from the end.
  int64_t (*summed_axis)(const Node&, size_t operand) = nullptr;
  /// Inputs from this one on are read as they are stored, whatever the node's read format. They are
  /// ignored when a node follows its inputs' format.
  size_t stored_inputs_from = kAllInputs;
  /// A constant of one element is read unrounded, whatever the node's read format, unless its plan
  /// is stagewise: PyTorch computes with a Python number in fp32 and rounds only the result.
  bool reads_numbers = false;
  /// Outputs from this one on are statistics and are not written in the node's write format. A
  /// statistic that replaces an input is written in that input's format, others in fp32.
  size_t statistics_from = kAllInputs;
  Picks picks = Picks::nothing;

  /// Composites without their own kernel and gradient. lower() expands them under every plan, and
  /// each primitive is planned as a separate node (core/lower/add_planned.h).
  bool always_expands = false;

  static constexpr size_t kAllInputs = SIZE_MAX;

  bool sums_products() const noexcept { return product != ProductKind::none; }
};

/// All operators, by name in ascending order.
std::span<const OpDef> op_table();
/// Returns all operators, in ascending order of their names.
const OpDef& find_op(const std::string& name);
/// Returns the operator. Throws Error for an unknown name.
const OpDef* lookup_op(std::string_view name);

}  // namespace halfscope
