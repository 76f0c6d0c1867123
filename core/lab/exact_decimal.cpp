// SPDX-License-Identifier: MIT
#include "core/lab/exact_decimal.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <vector>

namespace halfscope::lab {
namespace {

constexpr int64_t kMostExponent = 400;              ///< far beyond all formats
constexpr int64_t kAnyExponent = int64_t{1} << 40;  ///< larger ones count as this one

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Returns the digits padded with leading zeros.
std::string widened(const std::string& digits, size_t length) {
  return std::string(length - digits.size(), '\0') + digits;
}

}  // namespace

void ExactDecimal::trim() {
  while (decimals_ > 0 && !digits_.empty() && digits_.back() == 0) {
    digits_.pop_back();
    --decimals_;
  }
  digits_.erase(0, std::min(digits_.find_first_not_of('\0'), digits_.size()));
  if (digits_.empty()) {
    decimals_ = 0;
    negative_ = false;
  }
}

ExactDecimal::ExactDecimal(double x) {
  if (!std::isfinite(x) || x == 0.0) return;
  // A multiple of 2^-k has at most k decimals; a double is one of 2^-1074 and of its last bit.
  int exponent = 0;
  std::frexp(x, &exponent);
  const int decimals = std::clamp(53 - exponent, 0, 1074);
  std::array<char, 1500> text;
  const auto [end, error] =
      std::to_chars(text.data(), text.data() + text.size(), x, std::chars_format::fixed, decimals);
  *this = parse(std::string_view(text.data(), static_cast<size_t>(end - text.data())))
              .value_or(ExactDecimal());
}

/// A decimal as written.
struct ExactDecimal::Scanned {
  ExactDecimal mantissa{};  ///< without exponent
  int64_t exponent = 0;
  int64_t top = 0;  ///< the magnitude is below 10^top, by a factor of 10 at most

  /// Returns whether the digits can be written out: the exponent is small, or makes up for zeros.
  bool near() const noexcept {
    return mantissa.zero() || std::abs(exponent) <= kMostExponent || std::abs(top) <= kMostExponent;
  }
};

std::optional<ExactDecimal::Scanned> ExactDecimal::scan(std::string_view text) {
  Scanned scanned;
  ExactDecimal& result = scanned.mantissa;
  if (text.starts_with('-') || text.starts_with('+')) {
    result.negative_ = text[0] == '-';
    text.remove_prefix(1);
  }
  bool point = false, any = false;
  size_t at = 0;
  for (; at < text.size() && (is_digit(text[at]) || (text[at] == '.' && !point)); ++at) {
    if (text[at] == '.') {
      point = true;
      continue;
    }
    any = true;
    result.digits_ += static_cast<char>(text[at] - '0');
    result.decimals_ += point ? 1 : 0;
  }
  if (!any) return std::nullopt;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    std::string_view rest = text.substr(at + 1);
    if (rest.starts_with('+')) rest.remove_prefix(rest.starts_with("+-") ? rest.size() : 1);
    const char* const last = rest.data() + rest.size();
    const auto [end, error] = std::from_chars(rest.data(), last, scanned.exponent);
    if (error == std::errc::invalid_argument || end != last) return std::nullopt;
    if (error == std::errc::result_out_of_range || std::abs(scanned.exponent) > kAnyExponent) {
      scanned.exponent = rest.starts_with('-') ? -kAnyExponent : kAnyExponent;
    }
    at = text.size();
  }
  if (at != text.size()) return std::nullopt;
  result.trim();
  scanned.top = static_cast<int64_t>(result.digits_.size()) -
                static_cast<int64_t>(result.decimals_) + scanned.exponent;
  return scanned;
}

std::optional<ExactDecimal> ExactDecimal::parse(std::string_view text) {
  std::optional<Scanned> scanned = scan(text);
  if (!scanned || !scanned->near()) return std::nullopt;
  ExactDecimal& result = scanned->mantissa;
  if (result.zero()) return result;
  if (scanned->exponent > 0) {
    const size_t up = static_cast<size_t>(scanned->exponent);
    result.digits_.append(up - std::min(up, result.decimals_), '\0');
    result.decimals_ -= std::min(up, result.decimals_);
  } else {
    result.decimals_ += static_cast<size_t>(-scanned->exponent);
  }
  result.trim();
  return result;
}

std::optional<ExactDecimal> ExactDecimal::parse_far(std::string_view text) {
  const std::optional<Scanned> scanned = scan(text);
  if (!scanned || scanned->near()) return std::nullopt;
  ExactDecimal result;
  result.negative_ = scanned->mantissa.negative_;
  result.digits_ = '\1';
  if (scanned->top > 0) {
    result.digits_.append(kMostExponent, '\0');
  } else {
    result.decimals_ = kMostExponent;
  }
  return result;
}

std::string ExactDecimal::text() const {
  if (zero()) return "0";
  std::string digits = widened(digits_, std::max(digits_.size(), decimals_ + 1));
  for (char& digit : digits) digit = static_cast<char>(digit + '0');
  if (decimals_ > 0) digits.insert(digits.size() - decimals_, ".");
  return (negative_ ? "-" : "") + digits;
}

double ExactDecimal::approximate() const { return std::strtod(text().c_str(), nullptr); }

double ExactDecimal::rounding_input() const {
  const double near = approximate();
  if (zero() || (std::isfinite(near) && near != 0.0)) return near;
  using Limits = std::numeric_limits<double>;
  return std::copysign(near == 0.0 ? Limits::denorm_min() : Limits::max(), negative_ ? -1.0 : 1.0);
}

ExactDecimal ExactDecimal::operator-() const {
  ExactDecimal result = *this;
  result.negative_ = !zero() && !negative_;
  return result;
}

ExactDecimal operator+(const ExactDecimal& a, const ExactDecimal& b) {
  ExactDecimal result;
  result.decimals_ = std::max(a.decimals_, b.decimals_);
  std::string x = a.digits_ + std::string(result.decimals_ - a.decimals_, '\0');
  std::string y = b.digits_ + std::string(result.decimals_ - b.decimals_, '\0');
  const size_t length = std::max(x.size(), y.size()) + 1;
  x = widened(x, length);
  y = widened(y, length);
  const bool same = a.negative_ == b.negative_;
  const bool swapped = !same && x < y;  // the larger magnitude first
  if (swapped) std::swap(x, y);
  result.negative_ = swapped ? b.negative_ : a.negative_;
  result.digits_.assign(length, '\0');
  int carry = 0;
  for (size_t i = length; i-- > 0;) {
    int digit = x[i] + carry + (same ? y[i] : -y[i]);
    carry = digit < 0 ? -1 : digit / 10;
    if (digit < 0) digit += 10;
    result.digits_[i] = static_cast<char>(digit % 10);
  }
  result.trim();
  return result;
}

ExactDecimal operator*(const ExactDecimal& a, const ExactDecimal& b) {
  ExactDecimal result;
  result.negative_ = a.negative_ != b.negative_;
  result.decimals_ = a.decimals_ + b.decimals_;
  std::vector<int> sums(a.digits_.size() + b.digits_.size(), 0);
  for (size_t i = a.digits_.size(); i-- > 0;) {
    for (size_t j = b.digits_.size(); j-- > 0;) {
      sums[i + j + 1] += a.digits_[i] * b.digits_[j];
    }
    // Carried after every row, so that no sum grows beyond an int.
    for (size_t k = sums.size(); k-- > 1;) {
      sums[k - 1] += sums[k] / 10;
      sums[k] %= 10;
    }
  }
  for (const int digit : sums) result.digits_ += static_cast<char>(digit);
  result.trim();
  return result;
}

}  // namespace halfscope::lab
