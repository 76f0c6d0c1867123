// SPDX-License-Identifier: MIT
#include "core/lab/same_number.h"

#include <cmath>
#include <limits>

#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/statistics/ulp.h"

namespace halfscope::lab {
const char* fate_name(Fate fate) noexcept {
  switch (fate) {
    case Fate::exact:
      return "exact";
    case Fate::rounded:
      return "rounded";
    case Fate::subnormal:
      return "subnormal";
    case Fate::underflow:
      return "underflow";
    case Fate::overflow:
      return "overflow";
    case Fate::saturated:
      return "saturates";
    case Fate::special:
      return "special";
  }
  return "unknown";
}

std::vector<NumberIn> same_number(double number) {
  std::vector<NumberIn> result;
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  for (const NamedFormat& each : named_formats()) {
    const FloatFormat& format = each.format;
    const Rounded<double> rounded = round_to_format(number, format);
    NumberIn in{.name = each.name, .format = format, .value = static_cast<float>(rounded.value)};
    in.code = detail::code_of_value(in.value, format);
    in.error_ulps = in.error = kNone;
    if (!std::isfinite(number)) {
      in.fate = Fate::special;
    } else if (!std::isfinite(in.value)) {
      in.fate = Fate::overflow;
    } else {
      in.error_ulps = (rounded.value - number) / ulp_size(number, format);
      in.error = number == 0.0 ? 0.0 : (rounded.value - number) / std::fabs(number);
      if ((rounded.flags & kOverflow) != 0) {
        in.fate = Fate::saturated;
      } else if (rounded.value == number) {
        in.fate = Fate::exact;
      } else if (rounded.value == 0.0) {
        in.fate = Fate::underflow;
      } else if (std::fabs(rounded.value) < format.min_normal() && !format.evenly_spaced()) {
        in.fate = Fate::subnormal;
      } else {
        in.fate = Fate::rounded;
      }
    }
    result.push_back(in);
  }
  return result;
}

}  // namespace halfscope::lab
