// SPDX-License-Identifier: MIT
// Puzzles as one HTML file that works without a network or a server. All answers are run when it is
// made.
#pragma once

#include <span>
#include <string>

#include "core/lab/puzzle.h"

namespace halfscope::lab {

/// Returns a page with these levels. `version` is HalfScope's.
std::string puzzle_html(std::span<const Puzzle> levels, zoo::Backends backends,
                        const std::string& version);

}  // namespace halfscope::lab
