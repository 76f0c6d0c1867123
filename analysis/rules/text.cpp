// SPDX-License-Identifier: MIT
#include "analysis/rules/text.h"

#include <fmt/format.h>

#include <cmath>

namespace halfscope {

namespace {

/// Returns "22.4 times", "2.2e4 times": nobody reads "2.24e+06%".
std::string times(double factor) {
  if (factor < 999.5) return fmt::format("{:.3g} times", factor);
  int power = static_cast<int>(std::floor(std::log10(factor)));
  std::string digits = fmt::format("{:.1f}", factor / std::pow(10.0, power));
  if (digits == "10.0") {
    digits = "1.0";
    ++power;
  }
  if (digits.ends_with(".0")) digits.resize(digits.size() - 2);
  return fmt::format("{}e{} times", digits, power);
}

}  // namespace

std::string bytes_text(int64_t bytes) {
  const double value = static_cast<double>(bytes);
  if (std::fabs(value) < 1e3) return fmt::format("{} bytes", bytes);
  if (std::fabs(value) < 1e6) return fmt::format("{:.3g} kB", value / 1e3);
  if (std::fabs(value) < 1e9) return fmt::format("{:.3g} MB", value / 1e6);
  return fmt::format("{:.3g} GB", value / 1e9);
}

std::string area_text(double area) { return std::isnan(area) ? "-" : fmt::format("{:.4f}", area); }

std::string percent(double share) {
  const double value = 100.0 * share;
  if (value == 0.0) return "0%";
  if (!std::isfinite(value)) return fmt::format("{}%", value);
  if (share >= 10.0) return times(share);
  if (value < 0.01) return "< 0.01%";
  // 99.97 must not read as "100%": something is still left.
  if (value < 100.0 && value >= 99.95) return "> 99.9%";
  return value < 1.0 ? fmt::format("{:.2f}%", value) : fmt::format("{:.3g}%", value);
}

std::string difference_by(double share) {
  return percent(share) + (share >= 10.0 && std::isfinite(share) ? " its size" : "");
}

std::string short_number(double value) {
  if (std::isnan(value)) return "NaN";
  const double magnitude = std::fabs(value);
  if (value == std::floor(value) && magnitude < 1e6) return fmt::format("{:.0f}", value);
  if (magnitude >= 1e3 && magnitude < 999500.0) {
    const double unit = std::pow(10.0, std::floor(std::log10(magnitude)) - 2.0);
    return fmt::format("{:.0f}", std::round(value / unit) * unit);
  }
  std::string text = fmt::format("{:.3g}", value);  // "1.2e+06" becomes "1.2e6"
  const size_t exponent = text.find('e');
  if (exponent == std::string::npos) return text;
  if (text[exponent + 1] == '+') text.erase(exponent + 1, 1);
  const size_t digits = exponent + (text[exponent + 1] == '-' ? 2 : 1);
  if (text[digits] == '0') text.erase(digits, 1);
  return text;
}

std::string scale_text(double scale) {
  int exponent = 0;
  const bool power = std::isfinite(scale) && scale > 0.0 && std::frexp(scale, &exponent) == 0.5;
  if (!power) return short_number(scale);
  --exponent;  // frexp puts the fraction into [0.5, 1)
  if (exponent >= -3 && exponent <= 3) return short_number(scale);
  if (exponent > 3 && exponent <= 24) return fmt::format("{:.0f} (2^{})", scale, exponent);
  return fmt::format("2^{}", exponent);
}

std::string counted(int64_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string name_list(std::span<const std::string> names, size_t limit) {
  const size_t shown = names.size() <= limit ? names.size() : limit;
  const size_t hidden = names.size() - shown;
  std::string text;
  for (size_t i = 0; i < shown; ++i) {
    if (i > 0) text += (i + 1 == shown && hidden == 0) ? " and " : ", ";
    text += names[i];
  }
  if (hidden > 0) text += fmt::format(" and {} more", hidden);
  return text;
}

std::string shell_quoted(const std::string& argument) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
  if (!argument.empty() && argument.find_first_not_of(kPlain) == std::string::npos) return argument;
  std::string quoted = "'";
  for (const char c : argument) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace halfscope
