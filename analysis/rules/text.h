// SPDX-License-Identifier: MIT
// Numbers in sentences: short, and the same in every rule and report. Machine-readable files
// contain round-trip numbers instead.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace halfscope {

/// Words for the denominators of the rates in core/numeric/statistics/rates.h.
inline constexpr const char* kOfAllValues = "of all values";
inline constexpr const char* kOfNonZeroValues = "of non-zero values";
inline constexpr const char* kOfNonZeroUpdates = "of non-zero updates";

/// Returns "12.3%", "< 0.01%", "0%"; from ten times on "22.4 times", "2.2e4 times".
std::string percent(double share);
/// Returns an area under a curve as "0.9876", and NaN as "-".
std::string area_text(double area);
/// Returns the same for "differs by ...": "12.3%", "22.4 times its size".
std::string difference_by(double share);
std::string bytes_text(int64_t bytes);  // "1.5 kB", decimal
/// Returns three significant digits, or all digits of an integer below a million: "65504", "1.2e6".
std::string short_number(double value);
/// Returns "65536 (2^16)", or a plain number if it is not a power of two.
std::string scale_text(double scale);
/// Returns "1 step", "3 steps".
std::string counted(int64_t count, const std::string& noun);
/// Returns "a", "a and b", "a, b and c"; beyond `limit` names: "a, b and 7 more".
std::string name_list(std::span<const std::string> names, size_t limit = 6);

/// Returns the argument quoted for a shell where needed.
std::string shell_quoted(const std::string& argument);

}  // namespace halfscope
