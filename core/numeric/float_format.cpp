// SPDX-License-Identifier: MIT
// Names of formats: the table behind parse_format and format_name. A named format is one row; the
// first name of a format is the one that is printed.
#include "core/numeric/float_format.h"

#include <charconv>

namespace halfscope {
namespace {

struct NamedFormat {
  std::string_view name;
  FloatFormat format;
};

constexpr NamedFormat kNames[] = {
    {"fp16", kFp16},     {"float16", kFp16}, {"half", kFp16}, {"bf16", kBf16},
    {"bfloat16", kBf16}, {"tf32", kTf32},    {"fp32", kFp32}, {"float32", kFp32},
    {"e4m3fn", kE4m3fn}, {"e5m2", kE5m2},
};

/// An IEEE-like format of the given widths (IEEE 754-2019, 3.3).
constexpr FloatFormat ieee_format(int exponent_bits, int mantissa_bits) {
  return {.exponent_bits = exponent_bits,
          .mantissa_bits = mantissa_bits,
          .bias = (1 << (exponent_bits - 1)) - 1,
          .encoding = Encoding::ieee};
}

/// A decimal number without sign or leading zero.
std::optional<int> parse_width(std::string_view text) {
  int width = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, width);
  if (error != std::errc() || stop != end || text[0] < '1' || text[0] > '9') return std::nullopt;
  return width;
}

}  // namespace

std::optional<FloatFormat> parse_format(std::string_view text) {
  for (const NamedFormat& each : kNames) {
    if (text == each.name) return each.format;
  }
  const size_t m = text.find('m');
  if (!text.starts_with('e') || m == std::string_view::npos) return std::nullopt;
  const std::optional<int> exponent_bits = parse_width(text.substr(1, m - 1));
  const std::optional<int> mantissa_bits = parse_width(text.substr(m + 1));
  if (!exponent_bits || *exponent_bits < 2 || *exponent_bits > 8) return std::nullopt;
  if (!mantissa_bits || *mantissa_bits < 1 || *mantissa_bits > 23) return std::nullopt;
  return ieee_format(*exponent_bits, *mantissa_bits);
}

std::string format_name(const FloatFormat& format) {
  for (const NamedFormat& each : kNames) {
    if (format == each.format) return std::string(each.name);
  }
  std::string name = "e";
  name.append(std::to_string(format.exponent_bits)).append("m");
  name.append(std::to_string(format.mantissa_bits));
  // Formats outside the naming scheme exist only as values in code; say what sets them apart.
  if (format.encoding == Encoding::finite_nan) name += "fn";
  if (format.bias != ieee_format(format.exponent_bits, 1).bias) {
    name.append("b").append(std::to_string(format.bias));
  }
  return name;
}

}  // namespace halfscope
