// SPDX-License-Identifier: MIT
// What the recognition of composites shares: a match, and questions about the graph around a node.
// recognise.cpp puts the matches that the functions below find in place of their nodes.
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

/// A scale or bias that the file does not have or has in another shape: made when the graph is
/// rewritten.
struct Parameter {
  Shape shape;
  ValueId from = kNone;  ///< a variable or a constant of as many elements; kNone: `value` repeated
  float value = 1.0f;
};

/// One composite found: the nodes it replaces, of which the last makes the result.
struct Match {
  std::string op;
  std::vector<ValueId> inputs;
  Attributes attributes;
  std::set<NodeId> nodes;
  NodeId root = kNone;
  std::vector<Parameter> parameters{};  ///< further inputs, after the others
};

/// A product taken apart: what is multiplied, and the product of its constants.
struct Product {
  std::vector<ValueId> factors;
  double constant = 1.0;
  std::set<NodeId> nodes;
};

/// A graph with its readers and known numbers. The model must outlive it.
class Surroundings {
 public:
  using TypeOf = std::function<FloatFormat(const Node&)>;
  Surroundings(const Model& model, TypeOf type_of);

  const Graph& graph() const { return graph_; }
  const Shape& shape(ValueId value) const { return graph_.value(value).shape; }
  NodeId producer(ValueId value) const { return graph_.value(value).producer; }
  /// The node that makes the value, if it is of that operator.
  const Node* made_by(ValueId value, const char* op) const;
  /// The only node that reads the value; null if there are more, or if it is an output too.
  const Node* only_reader(ValueId value) const;
  /// Whether it is an input of the network or depends on one.
  bool is_computed(ValueId value) const { return computed_.contains(value); }

  /// The number that a constant of one element is.
  std::optional<double> scalar(ValueId value) const;
  /// The other operand of a node of two of which one is that scalar.
  std::optional<ValueId> beside(const Node& node, double constant) const;
  /// Whether it is a constant, or a variable that starts as one, that only repeats that number.
  bool repeats(ValueId value, float number) const;

  /// The starting value of a variable; null if it has none.
  const Tensor* start_of(ValueId value) const;

  /// The value behind Identities that nobody else reads, which join `nodes`. Those that are Casts
  /// to a narrower format than on both sides stay, as they round.
  ValueId through_identities(ValueId value, std::set<NodeId>& nodes) const;
  Product product_of(ValueId value) const;

  /// Whether nobody outside reads what the nodes compute, the root's result aside.
  bool is_closed(const Match& match) const;

 private:
  void take_apart(ValueId value, Product& product, int depth) const;

  const Graph& graph_;
  const NamedTensors& initial_;
  TypeOf type_of_;
  std::map<ValueId, std::vector<NodeId>> readers_;
  std::set<ValueId> kept_;
  std::set<ValueId> computed_;
  std::map<ValueId, const Constant*> constants_;
};

/// Whether a is b as a float, or what narrow files make of b: it or its inverse in float16 or
/// bfloat16.
bool is_close(double a, double b);

/// The nodes of a match as they stand in the file. Null where they need a value that is no operand
/// of the composite.
std::shared_ptr<const WrittenForm> written_form(const Surroundings& in, const Match& match);

/// The match that this node is the root of, or for normalizations, at the end of the primitives
/// before scale and bias.
std::optional<Match> match_attention(const Surroundings& in, NodeId id);
std::optional<Match> match_softmax(const Surroundings& in, NodeId id);
std::optional<Match> match_normalization(const Surroundings& in, NodeId id);
std::optional<Match> match_group_normalization(const Surroundings& in, NodeId id);
std::optional<Match> match_function(const Surroundings& in, NodeId id);

}  // namespace halfscope::onnx_files
