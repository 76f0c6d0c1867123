// SPDX-License-Identifier: MIT
#include "cli/backends.h"

#include <algorithm>

#include "core/error.h"
#include "core/near_miss.h"
#include "emulation/backends.h"
#include "gpu/backends.h"

namespace halfscope {

namespace {

constexpr GpuProducts kGpuProducts[] = {GpuProducts::library, GpuProducts::own, GpuProducts::fast};

}  // namespace

std::vector<std::string> backend_names() {
  std::vector<std::string> names{"emulated"};
  for (const GpuProducts products : kGpuProducts) names.emplace_back(gpu_backend_name(products));
  return names;
}

void check_backend_name(const std::string& name) {
  const std::vector<std::string> names = backend_names();
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  throw usage_error("unknown backend " + name,
                    did_you_mean(name, names, "backends: " + comma_list(names)));
}

const Backend& backend_for(const Plan& plan, const std::string& name) {
  if (plan.double_precision) return float64_backend();
  check_backend_name(name);
  for (const GpuProducts products : kGpuProducts) {
    if (name == gpu_backend_name(products)) return cuda_backend(products);
  }
  return emulation_backend();
}

LaneRequest parse_lane(const std::string& text) {
  for (const std::string& name : backend_names()) {
    if (text.starts_with(name + ":")) return {name, text.substr(name.size() + 1)};
  }
  return {"", text};
}

}  // namespace halfscope
