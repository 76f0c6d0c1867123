// SPDX-License-Identifier: MIT
// The magnitudes of the operands of a network's products when it runs in fp32 on the samples of a
// calibration.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/data/dataset.h"
#include "core/graph/model.h"
#include "core/numeric/scaling/range_choice.h"

namespace halfscope {

/// The products that one rule of a plan selects: those with the same path and operator.
struct ProductRanges {
  std::string path, op;
  std::array<MagnitudeHistogram, 2> seen{};  ///< by operand
  /// Whether the operand is known before the network runs, as weights are.
  std::array<bool, 2> known{};
};

/// Runs the network in fp32 on the first `samples` of the data's test part, in whole batches but at
/// least one. Returns the products in order of execution, or none if `stop` became true.
/// starting_weights() makes `weights`. Throws Error (usage) if the samples do not fill a batch, and
/// Error if an operand has an infinity or a NaN.
std::vector<ProductRanges> measure_products(const Model& network, const NamedTensors& weights,
                                            const Dataset& data, int64_t samples,
                                            const Backend& backend, const std::atomic<bool>& stop);

}  // namespace halfscope
