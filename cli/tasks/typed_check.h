// SPDX-License-Identifier: MIT
// What a strongly typed file computes, beside the lane whose plan it was made of: the file is read
// back, its own types are a plan, and both run on the same samples.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/data/dataset.h"
#include "core/lower/lower.h"
#include "core/onnx/import.h"

namespace halfscope {

struct TypedCheck {
  int64_t nodes = 0;     ///< whose formats were compared
  int64_t outputs = 0;   ///< elements that were compared
  int64_t max_ulps = 0;  ///< of an output, in ulps of its format in the lane
  /// What differs, a sentence each; empty where all formats are equal and no output is more than
  /// one ulp off.
  std::vector<std::string> differences{};

  std::string summary() const;
};

/// Runs both on the first samples of the data's test part, as many as `lane` takes at once.
TypedCheck check_typed_file(const OnnxImport& file, const Executable& lane,
                            const NamedTensors& weights, const Dataset& samples);

}  // namespace halfscope
