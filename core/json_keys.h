// SPDX-License-Identifier: MIT
// Keys of JSON objects. JSON parsers keep the last of several equal keys, so the first one would be
// ignored silently.
#pragma once

#include <string>
#include <string_view>

namespace halfscope {

/// Returns a key that an object of the text contains twice; "" if there is none, or if the text is
/// not JSON.
std::string repeated_key(std::string_view json);

}  // namespace halfscope
