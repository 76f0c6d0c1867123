// SPDX-License-Identifier: MIT
// `halfscope doctor`: what this machine and this build offer, in plain words, and what to do
// about what is missing. For bug reports and for "why is my GPU not used".
#pragma once

#include <cstdint>
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/cost/tensor_core_fit.h"
#include "gpu/device_info.h"

namespace halfscope {

/// A network whose layers are to be looked at.
struct DoctorNetwork {
  std::string model, plan;
  int64_t batch = 0;  ///< samples at once; 0 where the network does not leave it open
  std::vector<TensorCoreFit> layers;
};

/// Writes the report to `out` and returns the exit code, which is 0: a machine without a GPU is
/// not an error. `version` is HalfScope's own. Throws Error for an unusable HALFSCOPE_ISA.
int run_doctor(std::ostream& out, std::string_view version, const DoctorNetwork* network = nullptr);

/// The same as `halfscope.doctor/1` of docs/reference/json.md.
nlohmann::ordered_json doctor_json(std::string_view version,
                                   const DoctorNetwork* network = nullptr);

/// Returns one line about what a GPU is used for on this machine.
std::string backends_text(const GpuReport& gpus);

/// Returns a table of layers and whether tensor cores can run them, with notes. Says for every
/// device whether it has tensor cores for the formats that the layers read.
std::string layers_text(const DoctorNetwork& network, std::span<const GpuDevice> devices);
nlohmann::ordered_json layers_json(std::span<const TensorCoreFit> layers);

}  // namespace halfscope
