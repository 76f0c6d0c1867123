// SPDX-License-Identifier: MIT
// Shared by the recognition of composites: matches, and queries about the graph around a node.
// recognise.cpp replaces the nodes of the matches that the functions below find.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/graph/model.h"

namespace halfscope::onnx_files {

/// A scale or bias that the file lacks or has in another shape; created when the graph is
/// rewritten.
struct Parameter {
  Shape shape;
  ValueId from = kNone;  ///< variable or constant with the same element count; kNone: `value`
  float value = 1.0f;
};

/// A composite that was found, and the nodes it replaces; the last one produces the output.
struct Match {
  std::string op;
  std::vector<ValueId> inputs;
  Attributes attributes;
  std::set<NodeId> nodes;
  NodeId root = kNone;
  std::vector<Parameter> parameters{};  ///< further inputs, after the others
};

/// A product: its factors, and the product of its constants.
struct Product {
  std::vector<ValueId> factors;
  double constant = 1.0;
  std::set<NodeId> nodes;
};

/// A graph with the readers of its values and its constants. The model must outlive it.
class Surroundings {
 public:
  using TypeOf = std::function<FloatFormat(const Node&)>;
  /// `own_squares`: see recognise_composites().
  Surroundings(const Model& model, TypeOf type_of, bool own_squares = false);

  const Graph& graph() const { return graph_; }
  const Shape& shape(ValueId value) const { return graph_.value(value).shape; }
  NodeId producer(ValueId value) const { return graph_.value(value).producer; }
  /// Returns the format in which the file computes a node.
  FloatFormat type_of(const Node& node) const { return type_of_(node); }
  /// Returns the node that produces the value if it has that operator, else null.
  const Node* made_by(ValueId value, const char* op) const;
  /// Returns the only node that reads the value; null if there are more or it is also an output.
  const Node* only_reader(ValueId value) const;
  /// Returns whether a value is an input of the network or depends on one.
  bool is_computed(ValueId value) const { return computed_.contains(value); }

  /// Returns the tensor of a constant; null for other values.
  const Tensor* constant(ValueId value) const;
  /// Returns the number of a constant with one element.
  std::optional<double> scalar(ValueId value) const;
  /// Returns the other operand of a node with two operands, if one is this constant.
  std::optional<ValueId> beside(const Node& node, double constant) const;
  /// Returns whether a normalization with Mul(x, x) is one that the network computes itself.
  bool has_own_squares() const { return own_squares_; }
  /// Returns whether a value is a constant, or a variable by its initial value, that only repeats
  /// that number.
  bool repeats(ValueId value, float number) const;

  /// Returns the initial value of a variable; null if it has none.
  const Tensor* start_of(ValueId value) const;

  /// Returns the value before Identities that nothing else reads, and adds these to `nodes`. Casts
  /// to a narrower format than on both sides stay because they round.
  ValueId through_identities(ValueId value, std::set<NodeId>& nodes) const;
  Product product_of(ValueId value) const;

  /// Returns whether no other node reads outputs of these nodes, except the root's.
  bool is_closed(const Match& match) const;

 private:
  void take_apart(ValueId value, Product& product, int depth) const;

  const Graph& graph_;
  const NamedTensors& initial_;
  TypeOf type_of_;
  bool own_squares_;
  std::map<ValueId, std::vector<NodeId>> readers_;
  std::set<ValueId> kept_;
  std::set<ValueId> computed_;
  std::map<ValueId, const Constant*> constants_;
};

/// Returns whether a is b as a float, or b or its inverse rounded to float16 or bfloat16, as in
/// files of these types.
bool is_close(double a, double b);

/// Returns the nodes of a match as they are in the file; null if they need a value that is not an
/// operand of the composite.
std::shared_ptr<const WrittenForm> written_form(const Surroundings& in, const Match& match);

/// Return the match with this node as its root or, for normalizations, as the last of the
/// primitives before scale and bias.
std::optional<Match> match_attention(const Surroundings& in, NodeId id);
std::optional<Match> match_softmax(const Surroundings& in, NodeId id);
std::optional<Match> match_normalization(const Surroundings& in, NodeId id);
std::optional<Match> match_group_normalization(const Surroundings& in, NodeId id);
std::optional<Match> match_function(const Surroundings& in, NodeId id);

/// Notes the function of PyTorch (kTorchFunction) of all nodes of a binary cross-entropy that the
/// file has as primitives.
void mark_losses(const Surroundings& in, Graph& graph);

}  // namespace halfscope::onnx_files
