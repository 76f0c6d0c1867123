// SPDX-License-Identifier: MIT
// The cost of a plan: memory and work by counting, time on a device by the roofline model, and in
// words why a layer is no faster than under another plan.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "analysis/cost/memory.h"
#include "analysis/cost/roofline.h"

namespace halfscope {

struct PlanCost {
  std::string plan;  ///< its name
  Executable executable;
  MemoryUse memory;
  std::vector<NodeWork> work;

  PlanCost(std::string name, Executable lowered);

  bool trains() const { return executable.forward == Entry::grad; }
  /// Returns the operations of products by the format they read, such as "fp16".
  std::map<std::string, int64_t> operations() const;
  int64_t bytes() const;  ///< read and written
  /// Returns the number of casts and the bytes that they move.
  std::pair<int64_t, int64_t> casts() const;
};

/// All work of one layer, forward and backward, or of the optimizer.
struct LayerTime {
  std::string layer, op;
  int64_t operations = 0, bytes = 0;
  double seconds = 0.0;
  double compute = 0.0, memory = 0.0, start = 0.0;  ///< `seconds` by what limits each kernel
  double casts = 0.0;                               ///< the part of `seconds` in casts
  int kernels = 0;
  UnitUse use{};  ///< of its slowest product

  Limit limit() const noexcept;
};

/// Returns the times of all layers in order of execution, the optimizer last.
std::vector<LayerTime> layer_times(const PlanCost& cost, const Device& device);

/// The time of a whole step.
struct StepTime {
  double seconds = 0.0;
  double products = 0.0, others = 0.0, casts = 0.0, optimizer = 0.0;
  double compute = 0.0, memory = 0.0, start = 0.0;
};
StepTime step_time(const PlanCost& cost, const Device& device);

/// Says in a few words what keeps a layer from being faster than it was under the other plan; "" if
/// products at the full rate of their format take most of its time. The two may be the same.
std::string why_no_faster(const LayerTime& before, const LayerTime& now, const Device& device);

/// Returns the largest number of samples whose peak of memory is at most `bytes`, 0 if not even one
/// fits. `build` lowers the network for a number of samples. If it throws Error because there are
/// too many, the memory is extrapolated from the last two numbers that it accepted.
int64_t largest_batch(const std::function<Executable(int64_t batch)>& build, int64_t bytes);

}  // namespace halfscope
