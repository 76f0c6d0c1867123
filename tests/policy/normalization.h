// SPDX-License-Identifier: MIT
// A network of one layer normalization.
#pragma once

#include <vector>

#include "core/graph/model.h"

namespace halfscope::test {

/// x [1, 4] through a layer normalization whose scale is just above 1.
inline Model normalization() {
  Model model;
  model.name = "norm";
  Graph& graph = model.graph;
  model.input = graph.add_input("x", {1, 4});
  const ValueId scale = graph.add_variable("norm.weight", {4}, {});
  const ValueId shift = graph.add_variable("norm.bias", {4}, {});
  const ValueId y = graph.add1("LayerNormalization", "norm", {model.input, scale, shift},
                               {{"axis", int64_t{-1}}, {"epsilon", 0.0}});
  model.outputs = {{"y", y}};
  model.initial["norm.weight"] = {{4}, std::vector<float>(4, 1.0f + 0x1p-12f)};
  model.initial["norm.bias"] = {{4}, std::vector<float>(4, 0x1p-12f)};
  return model;
}

}  // namespace halfscope::test
