// SPDX-License-Identifier: MIT
// Decimals of a format. Reading: the nearest double; if that may be a value or a midpoint of the
// format, a comparison of the text with its exact digits; then one rounding. Writing: more and more
// digits until the text reads back.
#include "core/numeric/types/float_text.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <streambuf>

namespace halfscope::detail {
namespace {

/// 0.DIGITS * 10^exponent, without leading and trailing zeros; zero has no digits.
struct Decimal {
  std::string digits;
  int64_t exponent = 0;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

/// Reads all of `text`, which has no sign.
std::optional<Decimal> split_decimal(std::string_view text) {
  constexpr int64_t kHuge = 1000000;  // beyond all exponents; larger ones are clamped to it
  Decimal result;
  bool any = false, point = false;
  size_t at = 0;
  for (; at < text.size() && (is_digit(text[at]) || (text[at] == '.' && !point)); ++at) {
    if (text[at] == '.') {
      point = true;
      continue;
    }
    any = true;
    const bool leading = result.digits.empty() && text[at] == '0';
    if (!leading) result.digits += text[at];
    result.exponent += (point ? 0 : 1) - (leading ? 1 : 0);
  }
  if (!any) return std::nullopt;
  if (at < text.size() && lower(text[at]) == 'e') {
    const bool negative = at + 1 < text.size() && text[at + 1] == '-';
    at += 1 + (at + 1 < text.size() && (text[at + 1] == '-' || text[at + 1] == '+') ? 1 : 0);
    if (at == text.size()) return std::nullopt;
    int64_t exponent = 0;
    for (; at < text.size() && is_digit(text[at]); ++at) {
      exponent = std::min(kHuge, 10 * exponent + (text[at] - '0'));
    }
    result.exponent += negative ? -exponent : exponent;
  }
  if (at != text.size()) return std::nullopt;
  while (!result.digits.empty() && result.digits.back() == '0') result.digits.pop_back();
  if (result.digits.empty()) result.exponent = 0;
  return result;
}

/// Returns a positive double in scientific notation with `digits` digits.
std::string scientific(double x, int digits) {
  std::array<char, 64> text;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), x,
                                          std::chars_format::scientific, digits - 1);
  return std::string(text.data(), end);
}

/// Returns all digits of a positive normal double: an integer times 2^-n has n decimals.
Decimal exact_decimal(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const int lowest = static_cast<int>(bits >> 52) - 1075 +
                     std::countr_zero(bits | uint64_t{1} << 52);  // x is a multiple of 2^lowest
  std::array<char, 1500> text;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), x,
                                          std::chars_format::fixed, std::max(0, -lowest));
  return *split_decimal(std::string_view(text.data(), static_cast<size_t>(end - text.data())));
}

/// Returns a double on the same side of all values and midpoints of a format as the decimal. These
/// have up to 25 bits, so if more bits are set the nearest double is enough. Otherwise the decimal
/// is rounded to odd: truncated, with the last bit set if that was inexact.
double stand_in(const Decimal& decimal) {
  if (decimal.digits.empty()) return 0;
  // Far beyond fp32's range only the side matters, not the value.
  if (decimal.exponent > 300) return std::numeric_limits<double>::max();
  if (decimal.exponent < -300) return std::numeric_limits<double>::denorm_min();
  const std::string text = "0." + decimal.digits + "e" + std::to_string(decimal.exponent);
  double nearest = 0;
  std::from_chars(text.data(), text.data() + text.size(), nearest);
  constexpr uint64_t kBeyond25Bits = (uint64_t{1} << 28) - 1;
  if ((std::bit_cast<uint64_t>(nearest) & kBeyond25Bits) != 0) return nearest;
  const Decimal exact = exact_decimal(nearest);
  int order = decimal.exponent < exact.exponent ? -1 : decimal.exponent > exact.exponent ? 1 : 0;
  if (order == 0) order = decimal.digits.compare(exact.digits);
  if (order == 0) return nearest;
  const uint64_t bits = std::bit_cast<uint64_t>(nearest) - (order < 0 ? 1 : 0);
  return std::bit_cast<double>(bits | 1);
}

Rounded<float> round_decimal(bool negative, double odd, const FloatFormat& format) {
  return round_bits<uint64_t, 52>(std::bit_cast<uint64_t>(negative ? -odd : odd),
                                  format.without_options(), Rounding{});
}

/// Returns the decimal closest to x among those with the fewest digits that read back; x is
/// positive.
Decimal shortest(float x, const FloatFormat& format) {
  const auto reads_back = [&](const Decimal& decimal) {
    const Rounded<float> read = round_decimal(false, stand_in(decimal), format);
    return read.value == x && (read.flags & kOverflow) == 0;
  };
  const double value = static_cast<double>(x);
  Decimal nearest;
  for (int count = 1; count <= std::numeric_limits<float>::max_digits10; ++count) {
    const std::string text = scientific(value, count);
    nearest = *split_decimal(text);
    if (reads_back(nearest)) return nearest;
    // At a power of two the gap below is half of the gap above. The decimal on the far side may be
    // nearest to no other value although it is farther away.
    Decimal other = nearest;
    other.digits.resize(static_cast<size_t>(count), '0');
    char& last = other.digits.back();
    if (last == '9') continue;
    ++last;
    if (reads_back(other)) return other;
  }
  return nearest;
}

}  // namespace

std::string shortest_decimal(float value, const FloatFormat& format) {
  const bool negative = std::signbit(value);
  if (std::isnan(value)) return negative ? "-nan" : "nan";
  const std::string sign = negative ? "-" : "";
  if (std::isinf(value)) return sign + "inf";
  if (value == 0) return sign + "0";

  const float magnitude = std::fabs(value);
  const auto [digits, point] = shortest(magnitude, format);
  const int64_t count = static_cast<int64_t>(digits.size());
  std::string exponent = std::to_string(std::abs(point - 1));
  if (exponent.size() < 2) exponent.insert(0, "0");
  std::string scientific_text = digits.substr(0, 1);
  if (count > 1) scientific_text += "." + digits.substr(1);
  scientific_text += (point < 1 ? "e-" : "e+") + exponent;

  std::string plain;
  if (point <= 0) {
    plain = "0." + std::string(static_cast<size_t>(-point), '0') + digits;
  } else if (point < count) {
    plain = digits.substr(0, static_cast<size_t>(point)) + "." +
            digits.substr(static_cast<size_t>(point));
  } else {  // all digits of an integer; correct ones take no more space
    std::array<char, 64> text;
    const auto [end, error] =
        std::to_chars(text.data(), text.data() + text.size(), static_cast<double>(magnitude),
                      std::chars_format::fixed, 0);
    plain.assign(text.data(), end);
  }
  return sign + (plain.size() <= scientific_text.size() ? plain : scientific_text);
}

std::optional<ParsedDecimal> parse_decimal(std::string_view text, const FloatFormat& format) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  std::string word(text);
  std::transform(word.begin(), word.end(), word.begin(), lower);
  Rounded<float> result;
  if (word == "inf" || word == "infinity") {
    result = round_infinity(negative, format);
  } else if (word == "nan") {
    result = round_nan(0x7fc00000u | (negative ? kSignBit : 0u), format);
  } else {
    const std::optional<Decimal> decimal = split_decimal(word);
    if (!decimal) return std::nullopt;
    const double odd = stand_in(*decimal);
    result = round_bits<uint64_t, 52>(std::bit_cast<uint64_t>(negative ? -odd : odd), format,
                                      Rounding{});
  }
  return ParsedDecimal{.value = result.value,
                       .negative = negative,
                       .representable = (result.flags & (kOverflow | kInvalid)) == 0};
}

std::string take_decimal(std::istream& in) {
  // The buffer itself: a second peek() at the end of the stream would set failbit.
  constexpr int kEnd = std::char_traits<char>::eof();
  std::streambuf& buffer = *in.rdbuf();
  std::string text;
  const auto next = [&buffer] {
    const int c = buffer.sgetc();
    return c == kEnd ? '\0' : static_cast<char>(c);
  };
  const auto next_is_letter = [&] { return std::isalpha(static_cast<unsigned char>(next())) != 0; };
  const auto take = [&] { text += static_cast<char>(buffer.sbumpc()); };
  if (next() == '-' || next() == '+') take();
  if (next_is_letter()) {
    while (next_is_letter()) take();
  } else {
    while (is_digit(next()) || next() == '.') take();
    if (lower(next()) == 'e') {
      take();
      if (next() == '-' || next() == '+') take();
      while (is_digit(next())) take();
    }
  }
  if (buffer.sgetc() == kEnd) in.setstate(std::ios_base::eofbit);
  return text;
}

std::ostream& write_decimal(std::ostream& out, std::string text) {
  if ((out.flags() & std::ios_base::showpos) != 0 && text[0] != '-') text.insert(0, "+");
  if ((out.flags() & std::ios_base::uppercase) != 0) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  }
  return out << text;
}

}  // namespace halfscope::detail
