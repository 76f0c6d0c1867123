// SPDX-License-Identifier: MIT
#include "cli/args/backends.h"

#include <algorithm>

#include "cli/mpi/job.h"
#include "cli/terminal/output.h"
#include "core/error.h"
#include "core/near_miss.h"
#include "core/policy/policy.h"
#include "emulation/backends.h"
#include "gpu/backends.h"
#include "gpu/processes.h"

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
  throw usage_error("unknown backend '" + name + "'",
                    did_you_mean(name, names, "backends: " + comma_list(names)));
}

const Backend& backend_for(const Plan& plan, const std::string& name) {
  if (plan.double_precision) return float64_backend();
  check_backend_name(name);
  for (const GpuProducts products : kGpuProducts) {
    if (name != gpu_backend_name(products)) continue;
    choose_device(local_rank());
    return cuda_backend(products);
  }
  return emulation_backend();
}

LaneRequest parse_lane(const std::string& text) {
  LaneRequest lane{.backend = "", .plan = text};
  for (const std::string& name : backend_names()) {
    if (text.starts_with(name + ":")) lane = {name, text.substr(name.size() + 1)};
  }
  if (lane.plan.empty()) throw usage_error("'" + text + "' has no plan", "write " + text + "PLAN");
  if (!lane.plan.starts_with('{')) {
    if (lane.plan.find(',') == std::string::npos) return lane;
    throw usage_error("'" + lane.plan + "': a plan's name cannot contain a comma",
                      "rename the file");
  }
  lane.spelled_out = plan_from_json(lane.plan);
  lane.plan.clear();
  return lane;
}

std::string lane_text(const LaneRequest& lane) {
  const std::string plan =
      lane.spelled_out ? Json::parse(plan_to_json(*lane.spelled_out)).dump() : lane.plan;
  return lane.backend.empty() ? plan : lane.backend + ":" + plan;
}

}  // namespace halfscope
