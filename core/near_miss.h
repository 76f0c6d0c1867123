// SPDX-License-Identifier: MIT
// "did you mean ...?": finds the known word that a misspelt one was probably meant to be. Used in
// hints of errors about names that people type.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace halfscope {

/// Returns the number of insertions, deletions, substitutions and swaps of neighbours that turn one
/// word into the other. No place is edited twice (optimal string alignment). ASCII case is ignored.
size_t edit_distance(std::string_view a, std::string_view b);

/// Returns the candidate nearest to `word` (the first one if several are equally near), or "" if
/// none is within a third of the longer word's length. At least one edit is always allowed.
std::string closest(std::string_view word, std::span<const std::string> candidates);

/// Returns "did you mean mixed_float16?", or `otherwise` if no candidate is near.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates,
                         std::string otherwise = "");

/// Returns "a, b, c", for hints that list the known names.
std::string comma_list(std::span<const std::string> words);

}  // namespace halfscope
