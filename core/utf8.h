// SPDX-License-Identifier: MIT
// What is valid UTF-8 (RFC 3629).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace halfscope {

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
    if ((byte(i) & 0xc0u) != 0x80u) return {};
    point = point << 6 | (byte(i) & 0x3fu);
  }
  constexpr std::array<uint32_t, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = point >= 0xd800 && point <= 0xdfff;
  if (point < kLeast[length] || surrogate || point > 0x10ffff) return {};
  return {length, point};
}

}  // namespace halfscope
