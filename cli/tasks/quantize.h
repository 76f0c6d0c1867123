// SPDX-License-Identifier: MIT
// `halfscope quantize`: calibrates static scales for inference, finds the layers that must keep
// more precision, and proves it by running the network.
#pragma once

#include <string>
#include <vector>

#include "analysis/cost/device.h"
#include "analysis/quantization/trials.h"
#include "cli/args/settings.h"

namespace halfscope {

struct QuantizeOptions {
  FloatFormat format = kInt8Format;
  RangeMethod method{};
  bool by_channel = true;
  int64_t calibration = 512;  ///< samples
  Tolerance tolerance{};
  std::vector<std::string> kept{};  ///< globs of layers that are not quantized
  std::vector<Device> devices{};
};

/// Calibrates, searches, prints the result as text or as `halfscope.quantize/1` of
/// docs/reference/json.md, and writes the plan to Settings::out. Returns the exit code: 1 if no
/// plan is within the tolerance. Throws Error.
int quantize_network(const Settings& settings, const QuantizeOptions& options);

}  // namespace halfscope
