// SPDX-License-Identifier: MIT
// Numbers as texts: in the form that is parsed again ("adam:lr=0.001"), and whole numbers for
// people.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>

namespace halfscope {

/// Returns the shortest text that parses to the same number of the same type.
template <class Real>
std::string number_text(Real value) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
}

/// Returns the number with separators of thousands: "-1,234,567".
inline std::string grouped(int64_t number) {
  std::string text = std::to_string(number);
  const size_t first = number < 0 ? 1 : 0;
  for (size_t at = text.size(); at > first + 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

}  // namespace halfscope
