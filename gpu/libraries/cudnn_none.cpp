// SPDX-License-Identifier: MIT
// open_cudnn() for builds without its header.
#include "gpu/libraries/libraries.h"

namespace halfscope::gpu {

std::unique_ptr<ProductLibrary> open_cudnn(StreamPointer, bool, std::string& why) {
  why = "built without cuDNN";
  return nullptr;
}

std::optional<std::string> cudnn_objection(const ConvPlan&) { return std::nullopt; }
std::optional<CudnnEngines> cudnn_engines(const ConvPlan&, bool) { return std::nullopt; }
std::optional<CudnnChoice> cudnn_choice(const ConvPlan&, bool, const std::string&) {
  return std::nullopt;
}

}  // namespace halfscope::gpu
