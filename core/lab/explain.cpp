// SPDX-License-Identifier: MIT
#include "core/lab/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/lab/number_text.h"
#include "core/lab/rounding_place.h"
#include "core/numeric/elementary/elementary.h"
#include "core/numeric/formats/codes.h"
#include "core/numeric/statistics/ulp.h"

namespace halfscope::lab {
namespace {

std::string shortest_text(double value) {
  const bool whole = value == std::floor(value) && std::fabs(value) < 1e15;
  return whole ? fmt::format("{:.0f}", value) : fmt::format("{}", value);
}

/// Returns the number with at most six digits after rounding, or all of them if they are few. Works
/// beyond the range of double, too.
std::string short_text(const ExactDecimal& number) {
  const std::string all = number.text();
  if (all.size() <= 14) return all;
  const double near = number.approximate();
  if (near != 0.0 && std::isfinite(near)) return fmt::format("{:.6g}", near);
  const std::string digits = all.substr(all.starts_with('-') ? 1 : 0);
  const size_t first = digits.find_first_of("123456789"), point = digits.find('.');
  const size_t whole = point == std::string::npos ? digits.size() : point;
  const auto exponent =
      static_cast<int64_t>(whole) - static_cast<int64_t>(first) - (first < whole ? 1 : 0);
  return fmt::format("{}{}e{:+03d}", number.negative() ? "-" : "", digits[first], exponent);
}

ExactDecimal magnitude(const ExactDecimal& x) { return x.negative() ? -x : x; }

std::string too_large(const ExactDecimal& exact, const std::string& number, float stored,
                      const FloatFormat& format) {
  const std::string name = format_name(format);
  const std::string largest = shortest_text(format.max_finite());
  const char* than = exact.negative() ? "below -" : "above ";
  const std::string why =
      fmt::format("{} is {}{}, the largest {} number", number, than, largest, name);
  if (std::isnan(stored)) return why + ". This format has no infinity, so it becomes NaN.";
  if (std::isinf(stored)) {
    const double most = format.max_finite();
    const double step = std::ldexp(1.0, std::ilogb(most) - format.mantissa_bits);
    const double size = std::fabs(exact.approximate());
    if (!(size < most + step)) return why + ", so it overflows to infinity.";
    return fmt::format(
        "{} is at least halfway from {}, the largest {} number, to {}, so it overflows to "
        "infinity.",
        number, (exact.negative() ? "-" : "") + largest, name,
        (exact.negative() ? "-" : "") + shortest_text(most + step));
  }
  return why + ", so it is clipped to " + value_text(stored, format) + ".";
}

}  // namespace

std::string power_or_number(double value) {
  int exponent = 0;
  if (value > 0.0 && std::isfinite(value) && std::frexp(value, &exponent) == 0.5) {
    --exponent;
    if (exponent < -3 || exponent > 16) return fmt::format("2^{}", exponent);
  }
  return shortest_text(value);
}

std::string explain_rounding(const ExactDecimal& exact, float stored, const FloatFormat& format,
                             const std::string& words) {
  const std::string name = format_name(format);
  const std::string number = words.empty() ? short_text(exact) : words;
  const double near = exact.approximate();
  const bool beyond = (ExactDecimal(format.max_finite()) - magnitude(exact)).negative();
  if (!std::isfinite(stored) || (beyond && format.saturates())) {
    return too_large(exact, number, stored, format);
  }
  const double value = static_cast<double>(stored);
  if (stored == 0.0f) {
    if (exact.zero()) return fmt::format("{} represents 0 exactly.", name);
    const double smallest = format.flush_out ? format.min_normal() : format.min_subnormal();
    if (format.flush_out) {
      return fmt::format(
          "{} is below {}, the smallest normal {} number, and results below it are "
          "flushed to 0.",
          number, power_or_number(smallest), name);
    }
    return fmt::format("{} is at most half of {}, the smallest {} number, so it underflows to 0.",
                       number, power_or_number(smallest), name);
  }
  const ExactDecimal error = ExactDecimal(value) - exact;
  const int exponent = exponent_of(std::fabs(value));
  std::string few;
  if (std::fabs(value) < format.min_normal() && format.mantissa_bits > 0 &&
      !format.evenly_spaced()) {
    const int left = exponent - (format.min_exponent() - format.mantissa_bits) + 1;
    few = fmt::format(" It is subnormal (below {}), where only {} of {} significant bits {} left.",
                      power_or_number(format.min_normal()), left, format.mantissa_bits + 1,
                      left == 1 ? "is" : "are");
  }
  if (error.zero()) return fmt::format("{} represents {} exactly.", name, number) + few;
  const float other = error.negative() == exact.negative()
                          ? neighbour(stored, stored > 0 ? -1 : 1, format)
                          : neighbour(stored, stored > 0 ? 1 : -1, format);
  const bool away = error.negative() == exact.negative();  // the stored magnitude is larger
  const float below = away ? other : stored, above = away ? stored : other;
  const double step = ulp_size(near, format);
  const ExactDecimal from = ExactDecimal(std::fabs(static_cast<double>(below)));
  const ExactDecimal beyond_below = magnitude(exact) - from;
  const double part = std::clamp(beyond_below.approximate() / step, 0.0, 1.0);
  const bool tie = beyond_below + beyond_below == ExactDecimal(step);
  // Past the largest number, the next one is where it would be if the format went on.
  const bool next_exists = std::isfinite(above) && above != below;
  const std::string upper =
      next_exists
          ? distinct_text(above, format)
          : shortest_text(std::copysign(std::fabs(static_cast<double>(below)) + step, value));
  const std::string head =
      fmt::format("The {} numbers near {} are {} apart.", name, number, power_or_number(step));
  const std::string between = fmt::format("{} and {}", distinct_text(below, format), upper);
  if (tie) {
    return fmt::format("{} {} is halfway between {}; {}.", head, number, between,
                       format.mantissa_bits == 0
                           ? "with one significant bit, ties go away from zero"
                           : "ties go to the one whose last bit is 0") +
           few;
  }
  const bool near_tie = std::fabs(part - 0.5) < 0.0005;
  const std::string share = near_tie ? std::string(away ? "just over half" : "just under half")
                                     : fmt::format("{:.3g}%", 100.0 * part);
  return fmt::format("{} {} is {} of the way from {} to {}, so it rounds to {}.", head, number,
                     share, distinct_text(below, format), upper, distinct_text(stored, format)) +
         few;
}

FormatFacts format_facts(const FloatFormat& format) {
  FormatFacts facts{.largest = format.max_finite(),
                    .smallest_normal = format.min_normal(),
                    .smallest = format.min_subnormal()};
  for (const Binade& each : binades(format)) {
    facts.values += 2 * each.count;
    if (each.first <= 1.0 && 1.0 <= each.last) {
      facts.epsilon = std::fmod(1.0, each.step) == 0.0 ? each.step : 0.0;
    }
    if (each.step <= 1.0) facts.last_whole = std::max(facts.last_whole, each.last);
  }
  ++facts.values;  // zero
  // The last binade with a step of 1 ends one step before the next power of two, which is still a
  // value if the format goes on.
  if (facts.last_whole < facts.largest && facts.last_whole > 0.0) facts.last_whole += 1.0;
  facts.last_whole = std::floor(facts.last_whole);
  const int64_t codes = int64_t{1} << format.bits();
  const int64_t infinities = format.has_infinity() ? 2 : 0;
  const int64_t zeros = format.has_negative_zero() ? 2 : 1;
  facts.nans = static_cast<int>(codes - infinities - zeros - (facts.values - 1));
  facts.decibels = 20.0 * elementary::log(facts.largest / facts.smallest) / elementary::log(10.0);
  return facts;
}

std::vector<Binade> binades(const FloatFormat& format) {
  std::vector<Binade> list;
  const int m = format.mantissa_bits;
  const auto at = [&](int exponent, double significand) {
    return std::ldexp(significand, exponent - m);
  };
  if (m > 0) {
    const int64_t count = (int64_t{1} << m) - 1;
    list.push_back({.exponent = format.min_exponent(),
                    .subnormal = true,
                    .first = format.min_subnormal(),
                    .last = at(format.min_exponent(), static_cast<double>(count)),
                    .step = format.min_subnormal(),
                    .count = count,
                    .first_code = 1});
  }
  const double whole = static_cast<double>(int64_t{1} << m);
  for (int e = format.min_exponent(); e <= format.max_exponent(); ++e) {
    const bool top = e == format.max_exponent();
    const double last = top ? static_cast<double>(format.max_significand()) : 2.0 * whole - 1.0;
    list.push_back({.exponent = e,
                    .first = at(e, whole),
                    .last = at(e, last),
                    .step = at(e, 1.0),
                    .count = static_cast<int64_t>(last - whole) + 1,
                    .first_code = static_cast<uint32_t>(e + format.bias) << m});
  }
  return list;
}

}  // namespace halfscope::lab
