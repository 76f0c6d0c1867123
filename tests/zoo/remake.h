// SPDX-License-Identifier: MIT
// Remake: a model made again, input by input and node by node, with changes on the way.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/graph/model.h"

namespace halfscope::zoo {

/// Returns whether a loss compares with this input; trainings identify it by name.
inline bool is_answer(const std::string& input) { return input == "labels" || input == "targets"; }

class Remake {
 public:
  explicit Remake(const Model& from);

  /// Order in which they are added; for nodes, one that can be executed.
  std::vector<size_t> inputs, variables, nodes;
  // Changes; unset members change nothing.
  std::function<std::string(const std::string&)> name{};
  std::function<Shape(const Shape&)> input_shape{};
  std::function<Tensor(const Tensor&)> constant{};
  /// Changes a node whose operands are already those of the new graph.
  std::function<void(Graph&, Node&)> node{};
  /// Returns the value to read instead of an input or a node's output, by its old and its new id.
  std::function<ValueId(Graph&, ValueId old, ValueId now)> behind{};

  Model run();

 private:
  ValueId id_of(ValueId old) const;
  std::string name_of(const std::string& old) const { return name ? name(old) : old; }
  void add_sources();
  void add_node(size_t i);

  const Model& from_;
  Model made_;
  std::vector<ValueId> ids_;  ///< by the old ones
  ValueId main_input_ = kNone;
};

}  // namespace halfscope::zoo
