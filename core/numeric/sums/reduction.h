// SPDX-License-Identifier: MIT
// Reduction: how the gradients of data-parallel ranks become one, by name: the order of the
// additions of an all-reduce, the format of what is sent and stored between them, where the sum is
// divided by the number of ranks, and who decides whether a step is skipped.
// Text form ALGORITHM[:OPTION,...]: "ring", "tree:format=bf16", "all-to-all:average=after".
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/numeric/formats/float_format.h"

namespace halfscope {

struct Reduction {
  enum class Algorithm : uint8_t {
    ring,        ///< chunk c goes around the ring from rank c + 1 to rank c
    tree,        ///< neighbours first, then pairs of pairs: a binary tree
    halving,     ///< recursive halving: the other half of the ranks first, then quarters
    all_to_all,  ///< one chain in fp32 over all ranks, ascending, stored once
  };
  enum class Average : uint8_t { before, after };  ///< the additions
  enum class Vote : uint8_t {
    all,  ///< all ranks skip a step if the gradient of any of them is not finite
    one,  ///< each rank decides by its own gradient alone
  };

  Algorithm algorithm = Algorithm::ring;
  /// Of what is sent and stored; by default the format of each gradient.
  std::optional<FloatFormat> format = std::nullopt;
  Average average = Average::before;
  Vote vote = Vote::all;

  friend bool operator==(const Reduction&, const Reduction&) = default;
};

/// Throws Error (usage).
Reduction parse_reduction(std::string_view text);
/// The form that parse_reduction reads: the algorithm and every option that is not the default.
std::string reduction_text(const Reduction& reduction);
/// "ring", "tree", "halving", "all-to-all".
std::span<const std::string> reduction_names();

/// Rank `to` adds to its own sum the one that rank `from` sends.
struct RankAddition {
  int32_t to, from;
  friend bool operator==(const RankAddition&, const RankAddition&) = default;
};

/// Parts of a tensor whose elements are summed in orders of their own.
int64_t reduction_chunks(Reduction::Algorithm algorithm, int64_t ranks);
/// First element of a chunk: all have ceil(n / chunks) elements but the last ones.
int64_t chunk_begin(int64_t n, int64_t chunks, int64_t chunk);
/// The additions that make an element of that chunk, in their order, ranks - 1 of them; the last
/// one's `to` has the sum.
std::vector<RankAddition> rank_additions(Reduction::Algorithm algorithm, int64_t ranks,
                                         int64_t chunk);

/// Reduces n elements. rows[r] are those of rank r, and are overwritten; `round(row, n)` brings a
/// row to the format that is sent. `out` gets the mean over the ranks as it is before it is stored:
/// its last rounding is left to the caller. Every addition and the division are those of T.
template <class T, class Round>
void reduce_rows(const Reduction& how, std::span<const RankAddition> additions,
                 std::span<T* const> rows, int64_t n, const Round& round, T* out) {
  const T ranks = static_cast<T>(rows.size());
  const bool after = how.average == Reduction::Average::after;
  const bool stores_each = how.algorithm != Reduction::Algorithm::all_to_all;
  for (T* const row : rows) {
    round(row, n);
    if (after) continue;
    for (int64_t i = 0; i < n; ++i) row[i] /= ranks;
    round(row, n);
  }
  for (size_t k = 0; k < additions.size(); ++k) {
    T* const to = rows[static_cast<size_t>(additions[k].to)];
    const T* const from = rows[static_cast<size_t>(additions[k].from)];
    for (int64_t i = 0; i < n; ++i) to[i] += from[i];
    if (stores_each && (after || k + 1 < additions.size())) round(to, n);
  }
  const T* const sum = rows[static_cast<size_t>(additions.empty() ? 0 : additions.back().to)];
  for (int64_t i = 0; i < n; ++i) out[i] = after ? sum[i] / ranks : sum[i];
}

}  // namespace halfscope
