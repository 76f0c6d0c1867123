// SPDX-License-Identifier: MIT
// "did you mean ...?": the known word that a misspelt one was probably meant to be. For the
// hints of errors about names that people type.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace halfscope {

/// Insertions, deletions, substitutions and swaps of neighbours that turn one word into the other,
/// no place being edited twice (optimal string alignment); ASCII letters of either case are equal.
size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to `word`, the first of several; "" if none is within a third of the
/// longer word's length (and at least one edit is always allowed).
std::string closest(std::string_view word, std::span<const std::string> candidates);

/// "did you mean mixed_float16?", or `otherwise` if no candidate is near.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates,
                         std::string otherwise = "");

/// "a, b, c": for hints that list what is known.
std::string comma_list(std::span<const std::string> words);

}  // namespace halfscope
