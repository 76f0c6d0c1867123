// SPDX-License-Identifier: MIT
// What benchmarks on a GPU share of their command lines.
#pragma once

#include <string>
#include <vector>

#include "core/error.h"
#include "emulation/backends.h"
#include "gpu/backends.h"

namespace halfscope {

/// The parts of "A,B,C".
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

/// Throws Error for an unknown name, or for one that needs a GPU where there is none.
inline const Backend& backend_of(const std::string& name) {
  for (const GpuProducts products : {GpuProducts::library, GpuProducts::own, GpuProducts::fast}) {
    if (name == gpu_backend_name(products)) return cuda_backend(products);
  }
  if (name == "emulated") return emulation_backend();
  throw Error("unknown backend " + name);
}

}  // namespace halfscope
