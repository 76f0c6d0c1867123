// SPDX-License-Identifier: MIT
// Sentences about numbers and formats: why a value became what it is, for people who learn.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/lab/exact_decimal.h"
#include "core/numeric/formats/float_format.h"

namespace halfscope::lab {

/// Explains in one or two sentences why a format stores `exact` as `stored`, rounded to nearest
/// even. `stored` is a value of the format. `words` names the number if its digits do not.
std::string explain_rounding(const ExactDecimal& exact, float stored, const FloatFormat& format,
                             const std::string& words = "");

/// Range, precision and special codes of a format.
struct FormatFacts {
  double largest = 0.0, smallest_normal = 0.0, smallest = 0.0;
  double epsilon = 0.0;     ///< distance from 1 to the next value; 0 without 1
  double last_whole = 0.0;  ///< up to here every whole number is a value
  int64_t values = 0;       ///< different finite values; +0 and -0 count once
  int nans = 0;             ///< codes that are NaN
  double decibels = 0.0;    ///< dynamic range, 20 log10(largest / smallest)
};
FormatFacts format_facts(const FloatFormat& format);

/// The values of one exponent, which are equally far apart. Only positive ones.
struct Binade {
  int exponent = 0;
  bool subnormal = false;
  double first = 0.0, last = 0.0, step = 0.0;
  int64_t count = 0;
  uint32_t first_code = 0;
};
/// Returns the binades from the smallest values to the largest.
std::vector<Binade> binades(const FloatFormat& format);

/// Returns "2^-24" for powers of two, otherwise the shortest decimal.
std::string power_or_number(double value);

}  // namespace halfscope::lab
