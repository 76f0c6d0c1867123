// SPDX-License-Identifier: MIT
// Fuzzy search: the letters of a pattern in their order, anywhere in a text.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace halfscope::gui {

struct FuzzyMatch {
  int score = 0;                  ///< larger is better
  std::vector<size_t> letters{};  ///< positions in the text, ascending
};

/// Returns the best match, without regard to case and to blanks in the pattern; nothing if the text
/// lacks a letter. Starts of words and runs of letters score, gaps cost. An empty pattern matches.
std::optional<FuzzyMatch> fuzzy_match(std::string_view text, std::string_view pattern);

}  // namespace halfscope::gui
