// SPDX-License-Identifier: MIT
#include "core/lab/number_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "core/lab/exact_decimal.h"
#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/statistics/ulp.h"
#include "core/numeric/types/float_text.h"

namespace halfscope::lab {
namespace {

bool is_hex_float(std::string_view text) {
  return text.find_first_of("pP.") != std::string_view::npos &&
         text.find_first_of("xX") != std::string_view::npos;
}

}  // namespace

int exponent_of(double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  return exponent - 1;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

uint32_t all_codes(const FloatFormat& format) {
  return static_cast<uint32_t>((uint64_t{1} << format.bits()) - 1);
}

std::optional<double> read_double(const std::string& text) {
  const std::string word(trimmed(text));
  if (word.empty()) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);
  if (end != word.c_str() + word.size()) return std::nullopt;
  return value;
}

std::optional<uint32_t> read_number(std::string_view text, const FloatFormat& format,
                                    std::string& problem) {
  problem.clear();
  text = trimmed(text);
  if (is_hex_float(text)) {
    if (const std::optional<double> value = read_double(std::string(text))) {
      return detail::code_of_value(static_cast<float>(round_to_format(*value, format).value),
                                   format);
    }
  }
  const bool hex = text.starts_with("0x") || text.starts_with("0X");
  const bool binary = text.starts_with("0b") || text.starts_with("0B");
  if (hex || binary) {
    uint32_t code = 0;
    const char* const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data() + 2, last, code, hex ? 16 : 2);
    if (error == std::errc() && end == last) {
      if (code <= all_codes(format)) return code;
      problem = fmt::format("{} has only {} bits", format_name(format), format.bits());
      return std::nullopt;
    }
  } else if (const auto number = detail::parse_decimal(text, format)) {
    return detail::code_of_value(number->value, format);
  }
  problem =
      text.empty() ? "enter a number" : fmt::format("'{}' is neither a number nor a code", text);
  return std::nullopt;
}

float neighbour(float value, int64_t by, const FloatFormat& format) noexcept {
  if (std::isnan(value)) return std::numeric_limits<float>::quiet_NaN();
  const int64_t last = int64_t{detail::magnitude_code(detail::largest(false, format), format)} +
                       (format.has_infinity() ? 1 : 0);
  const int64_t place = std::clamp(detail::ulp_place(value, format) + by, -last, last);
  const uint32_t sign = place < 0 ? uint32_t{1} << (format.bits() - 1) : 0;
  return decode(sign | static_cast<uint32_t>(std::abs(place)), format);
}

std::string value_text(float value, const FloatFormat& format) {
  return detail::shortest_decimal(value, format);
}

std::string exact_text(float value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "infinity" : "-infinity";
  if (value == 0.0f) return std::signbit(value) ? "-0" : "0";
  return ExactDecimal(static_cast<double>(value)).text();
}

std::string distinct_text(float value, const FloatFormat& format) {
  constexpr size_t kLongest = 17;
  if (std::string exact = exact_text(value); exact.size() <= kLongest) return exact;
  // A few more digits than the significand carries: the rest is far below an ulp.
  const int kept = static_cast<int>((format.mantissa_bits + 1) * 0.30103) + 4;  // log10(2)
  return fmt::format("{:.{}g}", static_cast<double>(value), kept);
}

std::string brief_text(double value, int digits) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0.0 ? "infinity" : "-infinity";
  return fmt::format("{:.{}g}", value, digits);
}

std::string hex_float(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  return fmt::format("{:a}", value);
}

std::string code_text(uint32_t code, const FloatFormat& format) {
  return fmt::format("0x{:0{}x}", code, (format.bits() + 3) / 4);
}

std::string formula_text(float value, const FloatFormat& format) {
  if (!std::isfinite(value) || value == 0.0f) return exact_text(value);
  const double magnitude = std::fabs(static_cast<double>(value));
  const int exponent = std::max(exponent_of(magnitude), format.min_exponent());
  const ExactDecimal significand(std::ldexp(magnitude, -exponent));
  return fmt::format("{} {} \u00d7 2^{}", std::signbit(value) ? "-" : "+", significand.text(),
                     exponent);
}

std::string exponent_text(uint32_t code, const FloatFormat& format) {
  const uint32_t field = code >> format.mantissa_bits & ((1u << format.exponent_bits) - 1);
  const std::string kind = kind_text(decode(code, format), format);
  if (kind == "infinity" || kind == "NaN") return fmt::format("{}, reserved for {}", field, kind);
  if (field == 0) return fmt::format("0: no implicit 1, exponent {}", format.min_exponent());
  return fmt::format("{} - {} = {}", field, format.bias, static_cast<int>(field) - format.bias);
}

std::string kind_text(float value, const FloatFormat& format) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return "infinity";
  if (value == 0.0f) return "zero";
  return std::fabs(static_cast<double>(value)) < format.min_normal() ? "subnormal" : "normal";
}

std::string flags_text(uint8_t flags) {
  constexpr std::array<std::pair<uint8_t, const char*>, 7> kNames{
      std::pair{kInexact, "inexact"},
      std::pair{kOverflow, "overflow"},
      std::pair{kUnderflow, "underflow"},
      std::pair{kSubnormal, "subnormal"},
      std::pair{kFlushed, "becomes 0"},
      std::pair{kInvalid, "invalid"},
      std::pair{kDivideByZero, "division by zero"}};
  std::string text;
  for (const auto& [flag, name] : kNames) {
    if ((flags & flag) == 0) continue;
    if (!text.empty()) text += ", ";
    text += name;
  }
  return text.empty() ? "exact" : text;
}

}  // namespace halfscope::lab
