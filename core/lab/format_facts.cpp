// SPDX-License-Identifier: MIT
#include "core/lab/format_facts.h"

#include <cmath>
#include <limits>

#include "core/numeric/elementary/elementary.h"
#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/statistics/ulp.h"

namespace halfscope::lab {
namespace {

constexpr double kLog2 = 0.6931471805599453, kLog10 = 2.302585092994046;  // natural logarithms

}  // namespace

FormatFacts facts_of(const FloatFormat& format) {
  FormatFacts facts{.largest = format.max_finite(),
                    .smallest_normal = format.min_normal(),
                    .smallest = format.flush_out ? format.min_normal() : format.min_subnormal(),
                    .epsilon = ulp_size(1.0, format)};
  const int64_t fractions = int64_t{1} << format.mantissa_bits;
  facts.codes = int64_t{1} << format.bits();
  if (format.encoding == Encoding::ieee) {
    facts.infinities = 2;
    facts.nans = 2 * (fractions - 1);
  } else if (format.encoding == Encoding::finite_nan) {
    facts.nans = 2;
  } else if (format.encoding == Encoding::fnuz) {
    facts.nans = 1;
  }
  facts.values = facts.codes - facts.infinities - facts.nans;
  if (format.has_negative_zero()) --facts.values;
  if (format.flush_out) facts.values -= 2 * (fractions - 1);
  facts.decibels = 20.0 / kLog10 * elementary::log(facts.largest / facts.smallest);
  facts.digits = (format.mantissa_bits + 1) * kLog2 / kLog10;
  return facts;
}

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
