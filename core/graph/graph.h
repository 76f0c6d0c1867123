// SPDX-License-Identifier: MIT
// Graph: Nodes and Values in SSA form. Operators are named and defined as in ONNX (opset 21); our
// own, such as gradients and optimizers, are in the same table (core/graph/op_def.h). A node's
// scope path ("block2/conv1") is what users call a layer.
//
// The same type is used for the source graph that a model builds and for the executable graph that
// lower() makes from it. Formats and plans are meaningful only in the latter.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/graph/site.h"
#include "core/plan/plan.h"
#include "core/tensor.h"

namespace halfscope {

using ValueId = int32_t;
using NodeId = int32_t;
inline constexpr int32_t kNone = -1;

enum class ElementType : uint8_t {
  real,   ///< numbers of Value::format, in a float container
  index,  ///< integers: labels, positions
};

struct Value {
  Shape shape;
  ElementType type = ElementType::real;
  NodeId producer = kNone;     ///< kNone for inputs, variables and constants
  FloatFormat format = kFp32;  ///< every stored element is representable in this format
  RoundingChoice rounding{};   ///< how elements are rounded to that format
};

using Attribute = std::variant<int64_t, double, std::vector<int64_t>>;
using Attributes = std::map<std::string, Attribute>;

struct WrittenForm;

struct Node {
  std::string op;               ///< name in the operator table: "Gemm"
  std::string path;             ///< "fc1"
  std::vector<ValueId> inputs;  ///< kNone where an optional input is omitted
  std::vector<ValueId> outputs;
  Attributes attributes;
  Phase phase = Phase::forward;
  NodeId forward = kNone;  ///< gradient nodes: the forward node they belong to
  NodePlan plan;
  std::string alias{};  ///< its name in an imported file, if different
  /// Composites that an imported file writes as primitives: the expansion for stagewise plans.
  /// Null: the operator's own expansion.
  std::shared_ptr<const WrittenForm> written{};
};

/// Initial distribution of a variable: uniform in center +- bound.
struct Initializer {
  double bound = 0.0;
  double center = 0.0;
};

struct Variable {
  std::string path;  ///< "fc1.weight"
  ValueId value = kNone;
  Initializer initializer{};
  /// Its value after the step. The optimizer's builder sets it, for a buffer the model's builder.
  ValueId next = kNone;
  bool buffer = false;  ///< not trained: the forward pass computes its next value
  /// Executable graphs: the value that replaces it at the beginning of a step; see lower.h.
  ValueId restored = kNone;
  std::string alias{};  ///< name of its initializer in an imported file
};

/// A named input that the caller writes before a run.
struct Input {
  std::string name;  ///< "input", "labels", "loss_scale" ...
  ValueId value = kNone;
};

struct Constant {
  ValueId value = kNone;
  Tensor tensor;                   ///< index constants: only the shape
  std::vector<int32_t> indices{};  ///< index constants: the values
};

class Graph {
 public:
  ValueId add_input(std::string name, Shape shape, ElementType type = ElementType::real);
  ValueId add_variable(std::string path, Shape shape, Initializer initializer);
  /// Adds a variable without a gradient, for example a running mean; the caller sets its `next`.
  ValueId add_buffer(std::string path, Shape shape, Initializer initializer);
  ValueId add_constant(Tensor tensor);
  ValueId add_constant(float scalar) { return add_constant(Tensor{{}, {scalar}}); }
  ValueId add_index_constant(Shape shape, std::vector<int32_t> indices);

  /// Appends a node and returns its outputs; shapes come from the operator's shape rule. Throws
  /// Error for an unknown operator or shapes that do not fit.
  std::vector<ValueId> add(std::string op, std::string path, std::vector<ValueId> inputs,
                           Attributes attributes = {});
  /// Appends a node and returns its first output.
  ValueId add1(std::string op, std::string path, std::vector<ValueId> inputs,
               Attributes attributes = {}) {
    return add(std::move(op), std::move(path), std::move(inputs), std::move(attributes)).front();
  }
  /// Adds a value without checks; add() or a pass then gives it a producer.
  ValueId add_value(Shape shape, ElementType type, NodeId producer = kNone);

  const Value& value(ValueId id) const { return values_.at(static_cast<size_t>(id)); }
  Value& value(ValueId id) { return values_.at(static_cast<size_t>(id)); }
  const Node& node(NodeId id) const { return nodes_.at(static_cast<size_t>(id)); }
  Node& node(NodeId id) { return nodes_.at(static_cast<size_t>(id)); }

  const std::vector<Value>& values() const noexcept { return values_; }
  const std::vector<Node>& nodes() const noexcept { return nodes_; }
  const std::vector<Variable>& variables() const noexcept { return variables_; }
  std::vector<Variable>& variables() noexcept { return variables_; }
  const std::vector<Input>& inputs() const noexcept { return inputs_; }
  const std::vector<Constant>& constants() const noexcept { return constants_; }

  /// Returns the input with this name. Throws Error if there is none.
  ValueId input(const std::string& name) const;
  /// Returns a graph with this node alone, under the same ids. Its operands have no producer, all
  /// other values and nodes are empty, and there are no inputs, variables and constants.
  Graph only(NodeId node) const;

  /// Returns the variable whose value this is, or nullptr.
  const Variable* variable_of(ValueId value) const;

 private:
  std::vector<Value> values_;
  std::vector<Node> nodes_;  // in an executable order
  std::vector<Variable> variables_;
  std::vector<Input> inputs_;
  std::vector<Constant> constants_;
};

/// The primitives of a composite as an imported file writes them. The graph's inputs are the
/// composite's operands, in order. The paths of its nodes are below the composite's path.
struct WrittenForm {
  Graph graph;
  ValueId output = kNone;  ///< the composite's first output
};

int64_t int_attribute(const Node& node, const std::string& name, int64_t fallback);
double real_attribute(const Node& node, const std::string& name, double fallback);
std::vector<int64_t> ints_attribute(const Node& node, const std::string& name,
                                    std::vector<int64_t> fallback = {});

}  // namespace halfscope
