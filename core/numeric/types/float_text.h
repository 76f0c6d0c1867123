// SPDX-License-Identifier: MIT
// Float<F> as text. Writes the shortest decimal that reads back in the format, by the rule of
// std::to_chars: fewest characters, and among these the closest to the value ("448", not "450").
// Reads decimals with a single rounding, to nearest even, however many digits they have.
#pragma once

#include <istream>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/types/float_value.h"

namespace halfscope {
namespace detail {

/// Returns a value of `format` as text; "inf", "nan", "-nan".
std::string shortest_decimal(float value, const FloatFormat& format);

struct ParsedDecimal {
  float value;  ///< rounded to the format
  bool negative;
  bool representable;  ///< false for overflow, and for a NaN if the format has none
};

/// Reads [+-]digits[.digits][e[+-]digits], inf, infinity or nan, in any case. The whole text must
/// match.
std::optional<ParsedDecimal> parse_decimal(std::string_view text, const FloatFormat& format);

/// Extracts from the stream the characters of such a number.
std::string take_decimal(std::istream& in);

/// Writes `text` with the stream's showpos, uppercase, width and fill.
std::ostream& write_decimal(std::ostream& out, std::string text);

}  // namespace detail

template <FloatFormat F>
std::string to_string(Float<F> x) {
  return detail::shortest_decimal(x.value(), F);
}

/// Returns the number, or nothing if the text is not one. "inf" and "nan" become the format's
/// replacements for them.
template <class T>
std::optional<T> from_string(std::string_view text) {
  const std::optional<detail::ParsedDecimal> number = detail::parse_decimal(text, T::kFormat);
  if (!number) return std::nullopt;
  return T::from_bits(
      static_cast<typename T::Code>(detail::code_of_value(number->value, T::kFormat)));
}

/// Writes the shortest decimal. With std::fixed, std::scientific or std::hexfloat it writes what a
/// double prints at the stream's precision.
template <FloatFormat F>
std::ostream& operator<<(std::ostream& out, Float<F> x) {
  if ((out.flags() & std::ios_base::floatfield) != std::ios_base::fmtflags{}) {
    return out << static_cast<double>(x);
  }
  return detail::write_decimal(out, to_string(x));
}

/// Reads a number as for float: if there is none, fails with zero; beyond the largest, fails with
/// that. Also reads inf and nan.
template <FloatFormat F>
std::istream& operator>>(std::istream& in, Float<F>& x) {
  const std::istream::sentry ready(in);
  if (!ready) return in;
  const std::optional<detail::ParsedDecimal> number =
      detail::parse_decimal(detail::take_decimal(in), F);
  const bool good = number && number->representable;
  const float value = good ? number->value : number ? detail::largest(number->negative, F) : 0.0f;
  x = Float<F>::from_bits(static_cast<typename Float<F>::Code>(detail::code_of_value(value, F)));
  if (!good) in.setstate(std::ios_base::failbit);
  return in;
}

}  // namespace halfscope
