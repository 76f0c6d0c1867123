// SPDX-License-Identifier: MIT
// Makes a file with an open batch dimension from two files that fix it: the differences between
// them are exactly what depends on the number of samples.
#pragma once

#include <cstdint>
#include <string>

namespace halfscope {

struct OpenedBatch {
  std::string bytes;     ///< empty if the number cannot be left open
  std::string obstacle;  ///< the reason, naming a node
};

/// The same network written for `samples` and for `more` samples at once, as onnx_bytes() does.
struct BatchPair {
  const std::string& file;
  int64_t samples;
  const std::string& other;
  int64_t more;
};

/// Opens the batch dimension. Dimensions of inputs and outputs that are the number of samples
/// become `dimension`; targets of Reshape get -1 there, and other values of that size read it from
/// an input at run time. Throws Error naming `name` if the bytes are not valid ONNX files.
OpenedBatch open_batch(const BatchPair& pair, const std::string& dimension,
                       const std::string& name);

}  // namespace halfscope
