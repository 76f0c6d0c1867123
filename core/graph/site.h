// SPDX-License-Identifier: MIT
// Sites: the tensors of a lane that are measured, by layer, role and phase; and the layers as rules
// see them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/numeric/formats/float_format.h"
#include "core/tensor.h"

namespace halfscope {

/// Role of a tensor in its layer.
enum class Role : uint8_t {
  input,
  activation,
  weight,
  activation_grad,
  weight_grad,
  update,
  state
};
/// The part of the step that computes it.
enum class Phase : uint8_t { forward, backward, update };

const char* role_name(Role role) noexcept;     // "activation_grad"
const char* phase_name(Phase phase) noexcept;  // "backward"

/// One recorded tensor of one lane. Its name is "PATH.TENSOR", e.g. "fc1.activation",
/// "fc1.activation_grad", "fc1.weight", "fc1.bias_grad", "conv2.weight_update", "input.input".
struct SiteInfo {
  std::string path;  ///< node path, which users call a layer: "fc1", "block2/conv1"
  std::string
      tensor;  ///< "activation", "activation_grad", "weight", "weight_grad", "bias_update" ...
  Role role = Role::activation;
  Phase phase = Phase::forward;
  std::string op;      ///< ONNX operator type of the node: "Gemm", "Conv", "Relu" ...
  FloatFormat format;  ///< format the tensor is written in; the counters refer to it
  Shape shape;
  int order = 0;  ///< position in execution order, unique within the lane
  /// Codes of a scaled operand: how they are scaled, in the words of plans; otherwise empty. Their
  /// values count in units of the scale, and the largest may saturate.
  std::string scale{};

  std::string name() const { return path + "." + tensor; }
};

/// One operator of a lane's forward graph; rules read structure from here.
struct LayerInfo {
  std::string path;  ///< "conv2"
  std::string op;    ///< "Conv"
  /// Paths of the nodes it reads; "input" for the data. If no node has a variable's name, the
  /// variable's own: "w3", or "norm" for "norm.weight" where "norm" was expanded.
  std::vector<std::string> inputs;
  FloatFormat read;      ///< format its operands are read in
  FloatFormat write;     ///< format its outputs are written in
  bool follows = false;  ///< it has no format of its own and runs in its inputs' format
  int64_t parameters =
      0;                ///< number of elements in the variables and constant tensors that it reads
  std::string alias{};  ///< its name in an imported file, if different
};

}  // namespace halfscope
