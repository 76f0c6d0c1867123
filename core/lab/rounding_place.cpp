// SPDX-License-Identifier: MIT
#include "core/lab/rounding_place.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/lab/number_text.h"

namespace halfscope::lab {

std::optional<RoundingPlace> rounding_place(double value, const FloatFormat& format) {
  if (!std::isfinite(value) || value == 0.0) return std::nullopt;
  const int exponent = exponent_of(value);
  if (exponent > std::min(format.max_exponent() + 1, 127)) return std::nullopt;
  const int quantum = std::max(exponent, format.min_exponent()) - format.mantissa_bits;
  const double scaled = std::ldexp(std::fabs(value), -quantum);  // exact, or far below one
  const double kept = std::floor(scaled);
  const double sign = value < 0.0 ? -1.0 : 1.0;
  RoundingPlace place;
  const double above = std::ldexp(kept + 1.0, quantum);
  const bool is_float = above <= static_cast<double>(std::numeric_limits<float>::max());
  place.below = static_cast<float>(sign * std::ldexp(kept, quantum));
  place.above = static_cast<float>(sign) *
                (is_float ? static_cast<float>(above) : std::numeric_limits<float>::infinity());
  place.fraction = scaled - kept;
  double rest = 2.0 * place.fraction;
  place.guard = rest >= 1.0;
  rest = 2.0 * (rest - (place.guard ? 1.0 : 0.0));
  place.round = rest >= 1.0;
  place.sticky = rest != (place.round ? 1.0 : 0.0);
  const uint32_t bits = static_cast<uint32_t>(kept);
  for (int bit = format.mantissa_bits; bit >= 0; --bit) {
    place.kept += (bits >> bit & 1) != 0 ? '1' : '0';
    if (bit == format.mantissa_bits && bit > 0) place.kept += '.';
  }
  return place;
}

}  // namespace halfscope::lab
