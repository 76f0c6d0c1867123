// SPDX-License-Identifier: MIT
// Checks of a file that was written under a plan against the plan's lane: the file is read back and
// both run on the same samples. The types of a strongly typed file become a plan.
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
  int64_t nodes = 0;     ///< nodes whose formats were compared
  int64_t outputs = 0;   ///< elements that were compared
  int64_t max_ulps = 0;  ///< largest difference of an output, in ulps of the lane's format
  /// Differences, a sentence each. Empty if all formats are equal and all outputs are within one
  /// ulp.
  std::vector<std::string> differences{};

  std::string summary() const;
};

/// Runs both on the first samples of the data's test part, as many as `lane` takes at once.
TypedCheck check_typed_file(const OnnxImport& file, const Executable& lane,
                            const NamedTensors& weights, const Dataset& samples);

/// Same for a file that computes in float32, with Casts or with QuantizeLinear and
/// DequantizeLinear. Returns a sentence: how far its outputs are from the lane's.
std::string check_outputs(const OnnxImport& file, const Executable& lane,
                          const NamedTensors& weights, const Dataset& samples);

}  // namespace halfscope
