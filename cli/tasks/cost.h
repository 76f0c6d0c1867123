// SPDX-License-Identifier: MIT
// `halfscope cost`: what plans cost a network in memory and, by an estimate, in time on a device.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "analysis/cost/device.h"
#include "cli/args/settings.h"

namespace halfscope {

struct CostOptions {
  std::vector<Device> devices;  ///< the first one's memory and layers are shown
  bool inference = false;       ///< a forward pass, whatever the network could train for
  bool all_layers = false;
};

/// Returns the devices of a list "v100,t4", or all of them for "all". Throws Error (usage).
std::vector<Device> parse_devices(const std::string& list);

/// Prints the cost of every lane of the settings, as text or as `halfscope.cost/1` of
/// docs/reference/json.md. `version` is HalfScope's own. Returns the exit code. Throws Error.
int print_cost(std::string_view version, const Settings& settings, const CostOptions& options);

}  // namespace halfscope
