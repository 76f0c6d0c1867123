// SPDX-License-Identifier: MIT
// Estimates how long the work of a step takes on a device: the roofline model (Williams, Waterman
// and Patterson 2009) for each kernel, and why it is no faster.
//
//   seconds = max(operations / (rate * kComputeShare * used), bytes / (bandwidth * kMemoryShare),
//                 kKernelSeconds)
//
// `used` is the share of the device's units that a product can keep busy:
//   - tiles of 128x128 results, each split along K at most every 512 terms, must fill the
//     multiprocessors;
//   - sizes that are not multiples of 16 bytes halve the rate of tensor cores, and those that a
//     device pads count as padded;
//   - products with a single row or column, such as depthwise convolutions, and formats that the
//     device has no unit for, run on its fp32 units.
// Nothing else is counted: no overlap of kernels, no cache between them, no waiting for the host,
// other GPUs or data.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "analysis/cost/device.h"
#include "analysis/cost/work.h"

namespace halfscope {

/// Assumptions: shares of the published rates that well-tuned kernels reach, and the shortest
/// kernel that a framework starts.
inline constexpr double kComputeShare = 0.75, kMemoryShare = 0.85, kKernelSeconds = 5e-6;

enum class Limit : uint8_t { compute, memory, start };

/// Why a product does not run at the full rate of its format.
struct UnitUse {
  std::string_view format;  ///< of the units that compute it: "fp16", "fp32"
  double used = 1.0;        ///< share of their rate
  bool no_unit = false;     ///< the device has none for the format that is read
  bool thin = false;        ///< a single row or column: fp32 units
  bool misaligned = false;  ///< sizes that are not multiples
  int64_t padded_to = 0;    ///< the multiple that a side is padded to, if it is
  bool few_tiles = false;   ///< too few results for all multiprocessors
};

struct Estimate {
  double compute = 0.0, memory = 0.0;  ///< seconds of the two roofs
  double seconds = 0.0;
  Limit limit = Limit::memory;
  UnitUse use{};  ///< of products
};

/// Estimates one piece of work of the executable.
Estimate estimate(const Executable& executable, const NodeWork& work, const Device& device);

}  // namespace halfscope
