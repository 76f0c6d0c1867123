// SPDX-License-Identifier: MIT
// `halfscope doctor`: what this machine and this build offer, in plain words, and what to do
// about what is missing. For bug reports and for "why is my GPU not used".
#pragma once

#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace halfscope {

/// Writes the report to `out` and returns the exit code, which is 0: a machine without a GPU is
/// not an error. `version` is HalfScope's own. Throws Error for an unusable HALFSCOPE_ISA.
int run_doctor(std::ostream& out, std::string_view version);

/// The same as `halfscope.doctor/1` of docs/contracts.md.
nlohmann::ordered_json doctor_json(std::string_view version);

}  // namespace halfscope
