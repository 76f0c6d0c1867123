// SPDX-License-Identifier: MIT
// UTF-8 characters (RFC 3629), and escaping of text for XML and HTML.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace halfscope {

/// Returns false for the continuation bytes of a multi-byte character.
constexpr bool begins_character(char byte) noexcept {
  return (static_cast<unsigned char>(byte) & 0xc0u) != 0x80u;
}

struct Utf8Character {
  size_t length = 0;   ///< bytes; 0 if the text does not begin with a valid character
  uint32_t point = 0;  ///< Unicode code point
};

/// Returns the first character of the text. Overlong forms, surrogates and code points above
/// U+10FFFF are invalid.
constexpr Utf8Character first_character(std::string_view text) noexcept {
  const auto byte = [&](size_t i) -> uint32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const uint32_t first = byte(0);
  if (text.empty() || (first >= 0x80 && (first < 0xc2 || first > 0xf4))) return {};
  if (first < 0x80) return {1, first};
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  uint32_t point = first & (0xffu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if (i >= text.size() || begins_character(text[i])) return {};
    point = point << 6 | (byte(i) & 0x3fu);
  }
  constexpr std::array<uint32_t, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = point >= 0xd800 && point <= 0xdfff;
  if (point < kLeast[length] || surrogate || point > 0x10ffff) return {};
  return {length, point};
}

/// Returns whether the character can be printed where a line must stay as it is. Control characters
/// move the cursor, and those for the direction of text (Unicode's Bidi_Control) and for new lines
/// move other characters. False if it is invalid.
constexpr bool keeps_the_line(const Utf8Character& next) noexcept {
  const uint32_t point = next.point;
  const bool control = point < 0x20 || (point >= 0x7f && point < 0xa0);
  const bool separator = point == 0x2028 || point == 0x2029;
  const bool direction = point == 0x061c || point == 0x200e || point == 0x200f ||
                         (point >= 0x202a && point <= 0x202e) ||
                         (point >= 0x2066 && point <= 0x2069);
  return next.length > 0 && !control && !separator && !direction;
}

/// Returns the text escaped for an element or attribute of XML or HTML. Invalid UTF-8 and
/// characters that XML 1.0 (2.2) forbids become U+FFFD, as do those for the direction of text.
inline std::string markup_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Utf8Character next = first_character(text);
    const uint32_t point = next.point;
    const bool blank = point == '\t' || point == '\n';
    const bool valid = (blank || keeps_the_line(next)) && point != 0xfffe && point != 0xffff;
    switch (text[0]) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += valid ? text.substr(0, next.length) : std::string_view("\xef\xbf\xbd");
    }
    text.remove_prefix(next.length > 0 ? next.length : 1);
  }
  return out;
}

}  // namespace halfscope
