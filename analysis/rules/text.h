// SPDX-License-Identifier: MIT
// Numbers in sentences: short, and the same in every rule and every report. Files that programs
// read print round-trip numbers instead.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace halfscope {

/// What the rates of core/numeric/statistics/rates.h are shares of, in words.
inline constexpr const char* kOfAllValues = "of all values";
inline constexpr const char* kOfNonZeroValues = "of non-zero values";
inline constexpr const char* kOfNonZeroUpdates = "of non-zero updates";

/// "12.3%", "< 0.01%", "0%"; from ten times on "22.4 times", "2.2e4 times".
std::string percent(double share);
std::string bytes_text(int64_t bytes);  // "1.5 kB", decimal
/// Three or four significant digits: "65504", "1.2e+05", "NaN".
std::string short_number(double value);
/// "65536 (2^16)"; a plain number if it is no power of two.
std::string scale_text(double scale);
/// "1 step", "3 steps".
std::string counted(int64_t count, const std::string& noun);
/// "a", "a and b", "a, b and c"; beyond `limit` names: "a, b and 7 more".
std::string name_list(std::span<const std::string> names, size_t limit = 6);

/// The argument as a shell takes it, quoted where needed.
std::string shell_quoted(const std::string& argument);

}  // namespace halfscope
