// SPDX-License-Identifier: MIT
// Copies a model node by node, for passes that change some of its nodes.
#pragma once

#include <functional>
#include <vector>

#include "core/graph/model.h"

namespace halfscope::onnx_files {

class GraphCopy {
 public:
  using ShapeOf = std::function<Shape(ValueId)>;
  /// Copies the inputs, in the shapes that `shape_of` gives them, and the variables. `from` must
  /// outlive this.
  GraphCopy(const Model& from, const ShapeOf& shape_of);
  explicit GraphCopy(const Model& from);

  Model& result() { return result_; }
  Graph& graph() { return result_.graph; }
  /// Returns the copy of a value of `from`; constants are copied when they are first read.
  ValueId moved(ValueId value);
  std::vector<ValueId> moved(const std::vector<ValueId>& values);
  void set(ValueId value, ValueId to) { new_of_.at(static_cast<size_t>(value)) = to; }
  /// Adds the node with its operands moved.
  void copy(const Node& node);
  Model finish();

 private:
  const Model& from_;
  Model result_;
  std::vector<ValueId> new_of_;
  std::vector<const Constant*> constant_of_;  ///< by value
};

}  // namespace halfscope::onnx_files
