// SPDX-License-Identifier: MIT
// The pages of `halfscope float`: numbers, arithmetic, sums and blocks in a format, as text or
// JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/terminal/output.h"
#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/rounding.h"

namespace halfscope::lab {

/// Numbers are rounded in this way; stochastic rounding draws from the seed.
struct FloatChoice {
  RoundingMode mode = RoundingMode::nearest_even;
  uint64_t seed = 1;
  bool json = false;
  TextStyle style{};
};

/// Returns the format of that name. Throws Error (usage) that says why it is none.
FloatFormat read_format(const std::string& text);

/// Prints one number or expression in a format.
void show_number(const FloatFormat& format, const std::string& text, const FloatChoice& choice);
/// Prints a number or expression in every named format.
void show_compared(const std::string& text, const FloatChoice& choice);
/// Prints what a format can represent, with all its values if they are few.
void show_format(const FloatFormat& format, const FloatChoice& choice);
/// Prints sums of the terms in several formats and ways.
void show_sums(const FloatFormat& format, const std::string& terms, const FloatChoice& choice);
/// Prints numbers that share a block's scale.
void show_block(const std::string& format, const std::string& rule,
                const std::vector<std::string>& numbers, const FloatChoice& choice);

}  // namespace halfscope::lab
