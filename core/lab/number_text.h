// SPDX-License-Identifier: MIT
// Numbers of a format as people read and type them: all digits, codes, bits, neighbors. Meant for
// showing and teaching, not for computing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/numeric/formats/float_format.h"

namespace halfscope::lab {

/// Returns the code of a text: a number, rounded once, or a code. Empty if it is neither, with the
/// reason in `problem`.
std::optional<uint32_t> read_number(std::string_view text, const FloatFormat& format,
                                    std::string& problem);
/// Parses a decimal or a hexadecimal float as a double.
std::optional<double> read_double(const std::string& text);
/// Returns the text without blanks at its ends.
std::string_view trimmed(std::string_view text);

/// Returns the code with all bits set.
uint32_t all_codes(const FloatFormat& format);
/// Returns floor(log2 |x|) of a finite non-zero x.
int exponent_of(double x);
/// Returns the value `by` ulps further; NaN for NaN. Stops at the last value.
float neighbour(float value, int64_t by, const FloatFormat& format) noexcept;

std::string value_text(float value, const FloatFormat& format);  ///< shortest that reads back
std::string exact_text(float value);                             ///< all digits, "infinity", "NaN"
/// Returns all digits if they are few, else enough to distinguish the value from its neighbours.
std::string distinct_text(float value, const FloatFormat& format);
/// Returns at most `digits` significant digits, "infinity" or "NaN", for sentences.
std::string brief_text(double value, int digits = 5);
std::string hex_float(double value);                              ///< "0x1.998p-4"
std::string code_text(uint32_t code, const FloatFormat& format);  ///< "0x2e66"
/// Returns "+ 1.599609375 x 2^-4", with a times sign that fonts without Unicode have, too.
std::string formula_text(float value, const FloatFormat& format);
/// Returns what the exponent field says: "11 - 15 = -4".
std::string exponent_text(uint32_t code, const FloatFormat& format);
std::string kind_text(float value, const FloatFormat& format);  ///< "normal", "infinity" ...
std::string flags_text(uint8_t flags);                          ///< "inexact, underflow"; "exact"

}  // namespace halfscope::lab
