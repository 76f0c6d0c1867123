// SPDX-License-Identifier: MIT
// Sites: the tensors of a lane that are measured, by layer, role and phase; and the layers
// themselves, as rules see them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/numeric/formats/float_format.h"
#include "core/tensor.h"

namespace halfscope {

/// What a tensor is to its layer.
enum class Role : uint8_t {
  input,
  activation,
  weight,
  activation_grad,
  weight_grad,
  update,
  state
};
/// When in the step it is made.
enum class Phase : uint8_t { forward, backward, update };

const char* role_name(Role role) noexcept;     // "activation_grad"
const char* phase_name(Phase phase) noexcept;  // "backward"

/// One recorded tensor of one lane. Its name is "PATH.TENSOR", e.g. "fc1.activation",
/// "fc1.activation_grad", "fc1.weight", "fc1.bias_grad", "conv2.weight_update", "input.input".
struct SiteInfo {
  std::string path;  ///< node path, which is what users call a layer: "fc1", "block2/conv1"
  std::string
      tensor;  ///< "activation", "activation_grad", "weight", "weight_grad", "bias_update" ...
  Role role = Role::activation;
  Phase phase = Phase::forward;
  std::string op;      ///< ONNX operator type of the node: "Gemm", "Conv", "Relu" ...
  FloatFormat format;  ///< the format the tensor is written in, which the counters refer to
  Shape shape;
  int order = 0;  ///< position in execution order, unique within the lane
  /// Of codes of a scaled operand how they are scaled, as plans say it; else empty. Their values
  /// count in units of the scale, and the largest of them may saturate.
  std::string scale{};

  std::string name() const { return path + "." + tensor; }
};

/// One operator of a lane's forward graph; rules read structure from here.
struct LayerInfo {
  std::string path;  ///< "conv2"
  std::string op;    ///< "Conv"
  /// Paths of the nodes it reads; "input" for the data, and where a variable is named after no node
  /// what it is named after: "w3", or "norm" for "norm.weight" where "norm" was taken apart.
  std::vector<std::string> inputs;
  FloatFormat read;        ///< format its operands are read in
  FloatFormat write;       ///< format its result is written in
  bool follows = false;    ///< it has no format of its own: runs in what arrives
  int64_t parameters = 0;  ///< numbers in variables and constant tensors it reads
  std::string alias{};     ///< its name in an imported file, if that is another
};

}  // namespace halfscope
