// SPDX-License-Identifier: MIT
// A value between two neighbours of a format, and the bits that decide between them.
#pragma once

#include <optional>
#include <string>

#include "core/numeric/formats/float_format.h"

namespace halfscope::lab {

struct RoundingPlace {
  float below = 0.0f, above = 0.0f;  ///< of the magnitude, with the sign
  double fraction = 0.0;             ///< how far it is from below to above
  std::string kept{};                ///< significand bits that stay, "1.0000000000"
  bool guard = false, round = false, sticky = false;
};
/// Returns the rounding place of a finite non-zero value; empty for others.
std::optional<RoundingPlace> rounding_place(double value, const FloatFormat& format);

}  // namespace halfscope::lab
