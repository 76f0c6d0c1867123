// SPDX-License-Identifier: MIT
// Mistakes in a JSON text, in words. JSON parsers keep the last of several equal keys, so
// the first one would be ignored silently.
#pragma once

#include <string>
#include <string_view>

namespace halfscope {

/// Returns a key that an object of the text contains twice; "" if there is none, or if the text is
/// not JSON.
std::string repeated_key(std::string_view json);

/// The hint of errors with json_problem().
inline constexpr const char* kJsonHint =
    "put names and texts in \"double quotes\", and separate items with commas";
/// Returns why a text is not JSON, with the place: "line 4, column 1: unexpected }"; "" if it is.
std::string json_problem(std::string_view text);

}  // namespace halfscope
