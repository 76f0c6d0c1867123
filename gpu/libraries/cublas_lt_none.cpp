// SPDX-License-Identifier: MIT
// open_cublas_lt() for builds without its header.
#include "gpu/libraries/libraries.h"

namespace halfscope::gpu {

std::unique_ptr<ProductLibrary> open_cublas_lt(StreamPointer, bool, std::string& why) {
  why = "built without cuBLASLt";
  return nullptr;
}

std::optional<std::string> cublas_lt_objection(const MatrixPlan&) { return std::nullopt; }

}  // namespace halfscope::gpu
