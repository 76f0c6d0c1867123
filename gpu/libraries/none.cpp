// SPDX-License-Identifier: MIT
// Libraries of a build without CUDA: there are none.
#include "gpu/libraries/libraries.h"

namespace halfscope::gpu {

std::optional<std::string> cublas_lt_objection(const MatrixPlan&) { return std::nullopt; }
std::optional<std::string> cudnn_objection(const ConvPlan&) { return std::nullopt; }
std::optional<CudnnEngines> cudnn_engines(const ConvPlan&, bool) { return std::nullopt; }
std::optional<CudnnChoice> cudnn_choice(const ConvPlan&, bool, const std::string&) {
  return std::nullopt;
}

}  // namespace halfscope::gpu
