// SPDX-License-Identifier: MIT
// PyTorch's autocast as plans. docs/reference/torch.md describes them.
//   source: PyTorch 2.15, aten/src/ATen/autocast_mode.h and .cpp
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/model.h"
#include "core/plan/plan.h"

namespace halfscope {

struct TorchAutocast {
  bool cuda = true;         ///< the lists for CUDA, otherwise those for the CPU
  FloatFormat low = kFp16;  ///< the dtype given to torch.autocast

  friend bool operator==(const TorchAutocast&, const TorchAutocast&) = default;
};

/// Returns the autocast of a preset such as "torch-autocast-fp16"; nothing for other names.
std::optional<TorchAutocast> torch_autocast(std::string_view preset);

/// Returns the autocast with the same rules for operators as the plan, whatever the plan's name;
/// nothing if there is none.
std::optional<TorchAutocast> torch_autocast(const Plan& plan);

/// One of our operators and the function of PyTorch that computes it.
struct TorchFunction {
  const char* op;    ///< "Gemm"
  const char* name;  ///< "linear"; its lists are in core/policy/torch_lists.h
};
/// Returns the function behind an operator, or null for operators that no network contains.
const TorchFunction* torch_function(std::string_view op);

/// Returns rules for a network's structure, for functions of PyTorch that its file writes as
/// several operators, such as the sum in a linear layer, or an interpolation, and for nodes where
/// its code casts or switches autocast off (kTorchCast, kAutocastOff). They name exact paths.
std::vector<PlanRule> torch_node_rules(const TorchAutocast& autocast, const Model& model);

/// Returns the plan of the autocast for any network.
Plan torch_autocast_plan(const TorchAutocast& autocast);

/// Returns the same plan with torch_node_rules() for this network.
Plan torch_autocast_plan(const TorchAutocast& autocast, const Model& model);

}  // namespace halfscope
