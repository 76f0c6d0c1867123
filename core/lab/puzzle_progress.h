// SPDX-License-Identifier: MIT
// Solved puzzles, kept in a small file of the user's that the terminal and the viewer share.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "core/lab/puzzle.h"

namespace halfscope::lab {

struct SolvedPuzzle {
  int64_t bits = 0;  ///< of the cheapest answer so far
  int64_t par = 0;
  int64_t tries = 0;  ///< answers tried before the first that solved it, and that one
  bool solved = false;
};
using PuzzleProgress = std::map<std::string, SolvedPuzzle>;  ///< by name of the level

/// Returns $HALFSCOPE_PROGRESS, or $XDG_DATA_HOME/halfscope/puzzles.json, or
/// ~/.local/share/halfscope/puzzles.json. Empty, so that nothing is kept, if none of them is
/// defined or HALFSCOPE_PROGRESS is empty.
std::filesystem::path progress_file();

/// Returns the progress; empty if there is no file, or none that is valid.
PuzzleProgress read_progress(const std::filesystem::path& file);
/// Counts a try of a level, and keeps its answer if it is the cheapest that solves it. `par` is
/// only read for answers that do.
void note_try(PuzzleProgress& progress, const std::string& level, const PuzzleAnswer& answer,
              int64_t par);
/// Replaces the file. Returns false if it cannot be written: progress is not worth an error.
bool write_progress(const std::filesystem::path& file, const PuzzleProgress& progress);

}  // namespace halfscope::lab
