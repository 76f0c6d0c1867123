// SPDX-License-Identifier: MIT
// Adds TensorFlow's operators to a graph, where only edges with a colour matter: operands without
// one (shapes, axes, indices) all come from the same constants. For the sources of this folder.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/policy/grappler/tf_graph.h"

namespace halfscope::grappler {

/// Returns TensorFlow's operator for one of ours that computes the same from the same floating
/// operands, or "".
std::string_view same_op(std::string_view ours);

class TfBuilder {
 public:
  const TfGraph& graph() const noexcept { return graph_; }
  TfGraph take() { return std::move(graph_); }

  /// Adds a node and returns its name, which is `name` unless that is taken.
  std::string append(const std::string& name, const std::string& op,
                     std::vector<std::string> inputs,
                     const std::vector<std::pair<std::string, TfType>>& types);
  /// Adds an operator of TensorFlow and returns its name. Its floating operands are `floats`, in
  /// order, all others constants. `results`: how many, where the operator leaves it open.
  std::string emit(const std::string& name, const std::string& op,
                   const std::vector<std::string>& floats, size_t results = 1);
  /// Adds an operator that TensorFlow does not have, as a function.
  std::string emit_unknown(const std::string& name, const std::string& op,
                           const std::vector<std::string>& floats, size_t results);
  /// Returns a constant of this type, the same for all.
  std::string filler(TfType type);

 private:
  std::string fresh(const std::string& wanted);

  TfGraph graph_;
  std::map<std::string, int> names_;
  std::map<TfType, std::string> fillers_;
};

}  // namespace halfscope::grappler
