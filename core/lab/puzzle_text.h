// SPDX-License-Identifier: MIT
// Short texts about puzzles that the terminal, pages and the viewer share.
#pragma once

#include <cstdint>
#include <string>

#include "core/lab/puzzle.h"

namespace halfscope::lab {

/// Returns the number as people see it: "0.333", "37 ", "infinity".
std::string number_text(const PuzzleNumber& number, double value);
/// Returns "66.7%", or what is not finite.
std::string error_text(const zoo::Truth& truth);
/// Returns the score of a solved level: "at par (16 bits)", "12 times par (196 bits)".
std::string score_text(int64_t bits, int64_t par);
/// Returns one sentence about the bits of an answer that solves a level.
std::string verdict_of_bits(int64_t bits, int64_t par);
/// Returns one sentence that says what is still wrong.
std::string why_not(const PuzzleAnswer& answer);
/// Returns the network, a node per line: "mean  ReduceMean(activations)  [1, 1]".
std::string network_text(const Puzzle& puzzle);

}  // namespace halfscope::lab
