// SPDX-License-Identifier: MIT
// Reduction: how the gradients of data-parallel ranks are combined, by name. It covers the order of
// additions in an all-reduce, the format of what is sent and stored between them, where the sum is
// divided by the number of ranks, and who decides whether a step is skipped. Text form
// ALGORITHM[:OPTION,...]: "ring", "tree:format=bf16", "all-to-all:average=after".
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
  enum class Average : uint8_t { before, after };  ///< relative to the additions
  enum class Vote : uint8_t {
    all,  ///< all ranks skip a step if the gradient of any of them is not finite
    one,  ///< each rank decides by its own gradient alone
  };

  Algorithm algorithm = Algorithm::ring;
  /// Format of what is sent and stored; by default the format of each gradient.
  std::optional<FloatFormat> format = std::nullopt;
  Average average = Average::before;
  Vote vote = Vote::all;

  friend bool operator==(const Reduction&, const Reduction&) = default;
};

/// Parses the text form. Throws Error (usage).
Reduction parse_reduction(std::string_view text);
/// Returns the text that parse_reduction reads: the algorithm and every option that is not the
/// default.
std::string reduction_text(const Reduction& reduction);
/// Returns "ring", "tree", "halving", "all-to-all".
std::span<const std::string> reduction_names();

/// Rank `to` adds the sum sent by rank `from` to its own.
struct RankAddition {
  int32_t to, from;
  friend bool operator==(const RankAddition&, const RankAddition&) = default;
};

/// Returns the number of parts of a tensor that are summed in different orders.
int64_t reduction_chunks(Reduction::Algorithm algorithm, int64_t ranks);
/// Returns the first element of a chunk. All have ceil(n / chunks) elements except the last ones.
int64_t chunk_begin(int64_t n, int64_t chunks, int64_t chunk);
/// Returns the ranks - 1 additions that compute an element of that chunk, in order; the sum ends up
/// in the last one's `to`.
std::vector<RankAddition> rank_additions(Reduction::Algorithm algorithm, int64_t ranks,
                                         int64_t chunk);

/// Reduces n elements. rows[r] belongs to rank r and is overwritten; `round(row, n)` rounds a row
/// to the format that is sent. `out` gets the mean over the ranks before it is stored: the caller
/// does the last rounding. Every addition and the division are computed in T.
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
