// SPDX-License-Identifier: MIT
// Numbers in the JSON of reports. JSON has no infinities and no NaN; the contract writes them as
// words.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

namespace halfscope::report {

inline nlohmann::ordered_json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0.0 ? "inf" : "-inf";
  return value;
}

/// Returns null for an empty value, which means "not measured".
inline nlohmann::ordered_json number(const std::optional<double>& value) {
  return value ? number(*value) : nlohmann::ordered_json(nullptr);
}

}  // namespace halfscope::report
