// SPDX-License-Identifier: MIT
// Float<F> as text. Written is the shortest decimal that reads back in the format, by the rule of
// std::to_chars: fewest characters, of these the closest to the value ("448", not "450"). Decimals
// are read with a single rounding, to nearest even, however many digits they have.
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

/// A value of `format` as text; "inf", "nan", "-nan".
std::string shortest_decimal(float value, const FloatFormat& format);

struct ParsedDecimal {
  float value;  ///< rounded to the format
  bool negative;
  bool representable;  ///< false for overflow, and for a NaN that the format has not
};

/// Reads [+-]digits[.digits][e[+-]digits], inf, infinity or nan, in any case; all of the text.
std::optional<ParsedDecimal> parse_decimal(std::string_view text, const FloatFormat& format);

/// Takes from the stream what may be such a number.
std::string take_decimal(std::istream& in);

/// `text` with the stream's showpos, uppercase, width and fill.
std::ostream& write_decimal(std::ostream& out, std::string text);

}  // namespace detail

template <FloatFormat F>
std::string to_string(Float<F> x) {
  return detail::shortest_decimal(x.value(), F);
}

/// The number, or nothing if the text is none. "inf" and "nan" become what the format makes of
/// them.
template <class T>
std::optional<T> from_string(std::string_view text) {
  const std::optional<detail::ParsedDecimal> number = detail::parse_decimal(text, T::kFormat);
  if (!number) return std::nullopt;
  return T::from_bits(
      static_cast<typename T::Code>(detail::code_of_value(number->value, T::kFormat)));
}

/// The shortest decimal; with std::fixed, std::scientific or std::hexfloat what a double prints, at
/// the stream's precision.
template <FloatFormat F>
std::ostream& operator<<(std::ostream& out, Float<F> x) {
  if ((out.flags() & std::ios_base::floatfield) != std::ios_base::fmtflags{}) {
    return out << static_cast<double>(x);
  }
  return detail::write_decimal(out, to_string(x));
}

/// As for float: no number fails with zero, one beyond the largest fails with that. Reads inf and
/// nan, too.
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
