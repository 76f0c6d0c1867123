// SPDX-License-Identifier: MIT
// The pages of `halfscope puzzle`, as text or JSON.
#pragma once

#include <string>
#include <vector>

#include "cli/terminal/output.h"
#include "core/lab/puzzle.h"
#include "core/lab/puzzle_progress.h"

namespace halfscope::lab {

/// Reads "b", "a,c" or "ac" as a set of choices. Throws Error (usage) for other letters.
uint32_t read_choices(const Puzzle& puzzle, const std::string& text);

std::string list_text(const PuzzleProgress& progress);
/// Returns the level with its choices, `number` being its place in the list (0: a file).
std::string level_text(PuzzleDesk& desk, size_t number, const TextStyle& style);
/// Returns the result of an answer, and the lesson if it solves the level.
std::string answer_text(PuzzleDesk& desk, uint32_t choices, const TextStyle& style);
/// Returns a table of all single choices, and of the cheapest answer that solves the level.
std::string solution_text(PuzzleDesk& desk);

Json list_json(const PuzzleProgress& progress);
Json level_json(PuzzleDesk& desk);
Json answer_json(PuzzleDesk& desk, uint32_t choices);

}  // namespace halfscope::lab
