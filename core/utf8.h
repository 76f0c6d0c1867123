// SPDX-License-Identifier: MIT
// Characters of UTF-8 (RFC 3629), and text made safe for XML and HTML.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace halfscope {

/// False for the second byte and those after it of a character of several.
constexpr bool begins_character(char byte) noexcept {
  return (static_cast<unsigned char>(byte) & 0xc0u) != 0x80u;
}

struct Utf8Character {
  size_t length = 0;   ///< bytes; 0 if the text does not begin with a character
  uint32_t point = 0;  ///< its number in Unicode
};

/// The character that the text begins with. Overlong forms, surrogates and what lies beyond
/// U+10FFFF are none.
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

/// The text for an element or an attribute of XML or HTML. What is not valid UTF-8, or no character
/// of XML 1.0 (2.2), becomes U+FFFD.
inline std::string markup_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Utf8Character next = first_character(text);
    const uint32_t point = next.point;
    const bool control = (point < 0x20 && point != '\t' && point != '\n') || point == 0x7f;
    const bool valid = next.length > 0 && !control && point != 0xfffe && point != 0xffff;
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
