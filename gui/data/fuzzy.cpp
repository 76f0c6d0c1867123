// SPDX-License-Identifier: MIT
#include "gui/data/fuzzy.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace halfscope::gui {
namespace {

constexpr int kLetter = 4, kRun = 12, kWordStart = 10, kGap = -1;
constexpr int kImpossible = -1'000'000;

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }
char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

/// Returns the score of a letter for where it stands.
int place_score(std::string_view text, size_t at) {
  const bool starts = at == 0 || (is_word(text[at]) && !is_word(text[at - 1]));
  return kLetter + (starts ? kWordStart : 0);
}

}  // namespace

std::optional<FuzzyMatch> fuzzy_match(std::string_view text, std::string_view pattern) {
  std::string wanted;
  for (const char c : pattern) {
    if (c != ' ') wanted += lower(c);
  }
  if (wanted.empty()) return FuzzyMatch{};
  const size_t rows = wanted.size(), columns = text.size();
  // best[i][j]: score of the first i + 1 letters with the last of them at j; from[i][j]: where the
  // letter before stands.
  std::vector<int> best(rows * columns, kImpossible);
  std::vector<size_t> from(rows * columns, 0);
  for (size_t i = 0; i < rows; ++i) {
    int earlier = kImpossible;  // best score of letter i - 1 before j - 1, gaps included
    size_t earlier_at = 0;
    for (size_t j = i; j < columns; ++j) {
      if (i > 0 && j > 1) {
        earlier += kGap;
        if (best[(i - 1) * columns + j - 2] > earlier) {
          earlier = best[(i - 1) * columns + j - 2];
          earlier_at = j - 2;
        }
      }
      if (lower(text[j]) != wanted[i]) continue;
      const int here = place_score(text, j);
      int& score = best[i * columns + j];
      if (i == 0) {
        score = here;
        continue;
      }
      const int next_to = best[(i - 1) * columns + j - 1];
      const bool runs = next_to > kImpossible / 2 && next_to + kRun >= earlier;
      const int before = runs ? next_to + kRun : earlier;
      if (before < kImpossible / 2) continue;
      score = before + here;
      from[i * columns + j] = runs ? j - 1 : earlier_at;
    }
  }
  const auto last = std::max_element(best.end() - static_cast<std::ptrdiff_t>(columns), best.end());
  if (columns == 0 || *last < kImpossible / 2) return std::nullopt;
  FuzzyMatch match{.score = *last, .letters = std::vector<size_t>(rows)};
  auto at = static_cast<size_t>(last - (best.end() - static_cast<std::ptrdiff_t>(columns)));
  for (size_t i = rows; i-- > 0; at = from[i * columns + at]) match.letters[i] = at;
  return match;
}

}  // namespace halfscope::gui
