// SPDX-License-Identifier: MIT
#include "core/near_miss.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace halfscope {
namespace {

char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  // Rows of the dynamic programme for prefixes of `a`: two rows ago, the previous one, the current
  // one.
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0u : 1u)});
      const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                           lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string closest(std::string_view word, std::span<const std::string> candidates) {
  constexpr size_t kLongest = 200;  // no name is that long; `word` may be a whole file
  if (word.empty() || word.size() > kLongest) return "";
  std::string best;
  size_t best_distance = 0;
  for (const std::string& candidate : candidates) {
    const size_t longer = std::max(word.size(), candidate.size());
    const size_t shorter = std::min(word.size(), candidate.size());
    const size_t distance = edit_distance(word, candidate);
    // Words with no letter in common are not near, however short they are.
    if (distance > std::max<size_t>(1, longer / 3) || distance >= shorter) continue;
    if (!best.empty() && distance >= best_distance) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates,
                         std::string otherwise) {
  const std::string near = closest(word, candidates);
  return near.empty() ? std::move(otherwise) : "did you mean " + near + "?";
}

std::string comma_list(std::span<const std::string> words) {
  std::string list;
  for (const std::string& word : words) list += (list.empty() ? "" : ", ") + word;
  return list;
}

}  // namespace halfscope
