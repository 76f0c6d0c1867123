// SPDX-License-Identifier: MIT
// Command-line helpers that the GPU benchmarks share.
#pragma once

#include <string>
#include <vector>

#include "core/error.h"
#include "emulation/backends.h"
#include "gpu/backends.h"

namespace halfscope {

/// Returns the parts of "A,B,C".
inline std::vector<std::string> words(const std::string& list) {
  std::vector<std::string> result(1);
  for (char c : list) {
    if (c == ',') {
      result.emplace_back();
    } else {
      result.back() += c;
    }
  }
  return result;
}

/// Returns the backend `name`. Throws Error if it is unknown, or if it needs a GPU and there is
/// none.
inline const Backend& backend_of(const std::string& name) {
  for (const GpuProducts products : {GpuProducts::library, GpuProducts::own, GpuProducts::fast}) {
    if (name == gpu_backend_name(products)) return cuda_backend(products);
  }
  if (name == "emulated") return emulation_backend();
  throw Error("unknown backend " + name);
}

}  // namespace halfscope
