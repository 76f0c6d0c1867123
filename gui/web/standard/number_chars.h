// SPDX-License-Identifier: MIT
// Decimal text of float and double with printf() and strtod(), as [charconv] describes it. These
// functions of emscripten's C library (musl) round correctly for every number of digits.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace halfscope::web {

template <class Real>
Real parsed(const char* text) {
  if constexpr (std::is_same_v<Real, float>) {
    return std::strtof(text, nullptr);
  } else {
    return std::strtod(text, nullptr);
  }
}

inline std::to_chars_result copy_chars(char* first, char* last, std::string_view text) {
  if (static_cast<size_t>(last - first) < text.size()) return {last, std::errc::value_too_large};
  return {std::copy(text.begin(), text.end(), first), std::errc()};
}

/// Returns "d.ddde+xx", correctly rounded.
template <class Real>
std::string scientific_digits(Real value, int digits) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*e", digits - 1, static_cast<double>(value));
  return text;
}

/// Returns "d.ddde+xx" with the fewest digits that read back as `value`, which is positive and
/// finite; the closest such text.
template <class Real>
std::string shortest_scientific(Real value) {
  // If some number of digits reads back, so do all larger ones.
  int low = 1, high = std::numeric_limits<Real>::max_digits10;
  while (low < high) {
    const int digits = (low + high) / 2;
    if (parsed<Real>(scientific_digits(value, digits).c_str()) == value) {
      high = digits;
    } else {
      low = digits + 1;
    }
  }
  if (high == 1) return scientific_digits(value, 1);
  // Below a power of two the neighbors are closer than above, so one digit less may be enough if
  // it is rounded up, away from the value.
  std::string shorter = scientific_digits(value, high - 1);
  char& last = shorter[shorter.find('e') - 1];
  if (last != '9') ++last;
  if (parsed<Real>(shorter.c_str()) == value) return shorter;
  return scientific_digits(value, high);
}

/// Returns the shortest text that reads back as `value`, in the shorter of the two notations.
template <class Real>
std::to_chars_result shortest_chars(char* first, char* last, Real value) {
  const std::string sign = std::signbit(value) ? "-" : "";
  if (std::isnan(value)) return copy_chars(first, last, sign + "nan");
  if (std::isinf(value)) return copy_chars(first, last, sign + "inf");
  const Real magnitude = std::fabs(value);
  if (magnitude == 0) return copy_chars(first, last, sign + "0");
  const std::string scientific = shortest_scientific(magnitude);
  const size_t mark = scientific.find('e');
  const int exponent = std::atoi(scientific.c_str() + mark + 1);
  std::string digits = scientific.substr(0, 1);
  if (mark > 1) digits += scientific.substr(2, mark - 2);
  const int count = static_cast<int>(digits.size());
  const int fixed_size = exponent < 0            ? 1 - exponent + count
                         : exponent >= count - 1 ? exponent + 1
                                                 : count + 1;
  if (fixed_size > static_cast<int>(scientific.size()))
    return copy_chars(first, last, sign + scientific);
  std::string fixed;
  if (exponent < 0) {
    fixed = "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  } else if (exponent < count - 1) {
    fixed = digits;
    fixed.insert(static_cast<size_t>(exponent) + 1, ".");
  } else {  // an integer: all of its digits
    char text[40];
    std::snprintf(text, sizeof text, "%.0f", static_cast<double>(magnitude));
    fixed = text;
  }
  return copy_chars(first, last, sign + fixed);
}

inline std::to_chars_result precise_chars(char* first, char* last, double value,
                                          std::chars_format format, int precision) {
  const char* pattern = format == std::chars_format::fixed        ? "%.*f"
                        : format == std::chars_format::scientific ? "%.*e"
                                                                  : "%.*g";
  std::string text(static_cast<size_t>(std::snprintf(nullptr, 0, pattern, precision, value)), ' ');
  std::snprintf(text.data(), text.size() + 1, pattern, precision, value);
  return copy_chars(first, last, text);
}

/// Returns the end of the number that [first, last) starts with; `first` if there is none.
inline const char* number_end(const char* first, const char* last, std::chars_format format) {
  const char* at = first;
  if (at != last && *at == '-') ++at;
  for (const std::string_view word : {"infinity", "inf", "nan"}) {
    const auto same = [](char a, char b) { return (a | 0x20) == b; };
    if (static_cast<size_t>(last - at) >= word.size() &&
        std::equal(word.begin(), word.end(), at, [&](char b, char a) { return same(a, b); })) {
      return at + word.size();
    }
  }
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const char* begin = at;
  at = std::find_if_not(at, last, is_digit);
  auto digits = at - begin;
  if (at != last && *at == '.') {
    const char* after = std::find_if_not(at + 1, last, is_digit);
    digits += after - at - 1;
    if (digits > 0) at = after;
  }
  if (digits == 0) return first;
  const bool scientific = (format & std::chars_format::scientific) != std::chars_format{};
  const bool fixed = (format & std::chars_format::fixed) != std::chars_format{};
  if (scientific && at != last && (*at == 'e' || *at == 'E')) {
    const char* exponent = at + 1;
    if (exponent != last && (*exponent == '-' || *exponent == '+')) ++exponent;
    const char* after = std::find_if_not(exponent, last, is_digit);
    if (after != exponent) return after;
  }
  return fixed ? at : first;
}

/// Reads a number in decimal. No part of HalfScope reads hexadecimal ones this way.
template <class Real>
std::from_chars_result read_chars(const char* first, const char* last, Real& value,
                                  std::chars_format format) {
  const char* end = number_end(first, last, format);
  if (end == first) return {first, std::errc::invalid_argument};
  const std::string text(first, end);
  const Real read = parsed<Real>(text.c_str());
  const std::string_view significand =
      std::string_view(text).substr(0, std::min(text.find_first_of("eE"), text.size()));
  const bool digits = (text.back() >= '0' && text.back() <= '9') || text.back() == '.';
  const bool zero = significand.find_first_of("123456789") == std::string_view::npos;
  if (digits && (std::isinf(read) || (read == 0 && !zero)))
    return {end, std::errc::result_out_of_range};
  value = read;
  return {end, std::errc()};
}

}  // namespace halfscope::web
