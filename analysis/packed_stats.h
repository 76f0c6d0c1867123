// SPDX-License-Identifier: MIT
// TensorStats in about a hundred bytes instead of 2.3 kB: how the run file stores them
// (docs/reference/files.md) and how RunView keeps them in memory. Two packed windows
// are merged without unpacking them, because the recorder does so in every step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/numeric/statistics/tensor_stats.h"

namespace halfscope {

/// The counters of TensorStats without its histogram.
struct TensorCounts {
  int64_t n = 0, zero = 0, pos_inf = 0, neg_inf = 0, nan = 0;
  int64_t overflow = 0, underflow = 0, subnormal = 0, lost = 0;

  int64_t non_finite() const noexcept { return pos_inf + neg_inf + nan; }
};

/// Appends one number, seven bits per byte, lowest first.
void append_leb128(uint64_t value, std::vector<uint8_t>& bytes);
/// Removes one number from the front. Returns false if it is truncated or does not fit in 63 bits.
bool take_leb128(std::span<const uint8_t>& bytes, int64_t& value) noexcept;

/// The packed form of statistics with n == 0 (not measured): one byte.
inline constexpr uint8_t kPackedNothing = 0;

/// Appends the packed form.
void pack_stats(const TensorStats& stats, std::vector<uint8_t>& bytes);

/// Reads the counters of the record at the front of `bytes`. Returns false if it is malformed.
bool read_counts(std::span<const uint8_t> bytes, TensorCounts& counts) noexcept;

/// Removes one record from the front of `bytes`. Returns false if it is truncated or malformed: a
/// counter above n, an invalid magnitude, a histogram that begins or ends with an empty bin.
bool take_stats(std::span<const uint8_t>& bytes, TensorStats& stats) noexcept;
/// Removes one record likewise and merges it into `total`, as TensorStats::merge would. Returns
/// false also if the counts do not fit. `n` receives the record's own count.
bool add_stats(std::span<const uint8_t>& bytes, TensorStats& total, int64_t& n) noexcept;

/// Replaces `merged` by the records of `a` and `b` merged one by one, as TensorStats::merge would.
/// Returns false if a record is malformed or the numbers of records differ.
bool merge_packed(std::span<const uint8_t> a, std::span<const uint8_t> b,
                  std::vector<uint8_t>& merged);

}  // namespace halfscope
