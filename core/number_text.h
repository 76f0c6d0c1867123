// SPDX-License-Identifier: MIT
// Numbers in texts that are read back, such as "adam:lr=0.001".
#pragma once

#include <charconv>
#include <string>

namespace halfscope {

/// The shortest text that reads back as the same number of the same type.
template <class Real>
std::string number_text(Real value) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
}

}  // namespace halfscope
