// SPDX-License-Identifier: MIT
// Files that leave the number of samples open, made from two that fix it: what differs between them
// is what depends on it.
#pragma once

#include <cstdint>
#include <string>

namespace halfscope {

struct OpenedBatch {
  std::string bytes;     ///< empty where the number cannot be left open
  std::string obstacle;  ///< why, naming a node
};

/// The same network written for `samples` and for `more` samples at once, as onnx_bytes() does.
struct BatchPair {
  const std::string& file;
  int64_t samples;
  const std::string& other;
  int64_t more;
};

/// Dimensions of inputs and outputs that are the number of samples become `dimension`; targets of
/// Reshape have -1 there, and what else has that size takes it from an input when it runs. Throws
/// Error naming `name` if the bytes are no ONNX files.
OpenedBatch open_batch(const BatchPair& pair, const std::string& dimension,
                       const std::string& name);

}  // namespace halfscope
