// SPDX-License-Identifier: MIT
#include "analysis/packed_stats.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <limits>

namespace halfscope {
namespace {

static_assert(std::endian::native == std::endian::little, "reals are stored as they lie in memory");

constexpr int kLargestLeb128 = 9;                    // bytes of a number of 63 bits
constexpr int64_t kLargestTotal = int64_t{1} << 62;  // no honest sum of counts gets near
constexpr size_t kReals = 2 * sizeof(float) + 2 * sizeof(double);

/// TensorStats with only the used part of the histogram. The rest is never touched, which makes
/// this fast.
struct Record {
  TensorCounts counts;
  float max_abs = 0.0f;
  float min_abs = std::numeric_limits<float>::infinity();
  double sum = 0.0, sum_sq = 0.0;
  size_t first_bin = 0, bin_count = 0;
  std::array<int64_t, kExponentBins> bins;  // [first_bin, first_bin + bin_count) is set
};

constexpr int64_t TensorCounts::*kCounters[] = {&TensorCounts::zero,      &TensorCounts::pos_inf,
                                                &TensorCounts::neg_inf,   &TensorCounts::nan,
                                                &TensorCounts::overflow,  &TensorCounts::underflow,
                                                &TensorCounts::subnormal, &TensorCounts::lost};

constexpr size_t kLargestRecord =
    kLargestLeb128 * (1 + std::size(kCounters) + 2 + kExponentBins) + kReals;

uint8_t* put(uint64_t value, uint8_t* to) noexcept {
  while (value >= 0x80) {
    *to++ = static_cast<uint8_t>(value | 0x80);
    value >>= 7;
  }
  *to++ = static_cast<uint8_t>(value);
  return to;
}

template <typename Real>
uint8_t* put_real(Real value, uint8_t* to) noexcept {
  std::memcpy(to, &value, sizeof value);
  return to + sizeof value;
}

/// Reads numbers from the front of the remaining bytes. Uses plain pointers, because it runs for
/// every number of every window.
struct Source {
  const uint8_t* at;
  const uint8_t* end;

  explicit Source(std::span<const uint8_t> bytes)
      : at(bytes.data()), end(bytes.data() + bytes.size()) {}

  bool take(int64_t& value) noexcept {
    if (at == end) return false;
    uint64_t sum = *at++;
    if (sum < 0x80) {  // most numbers have one byte
      value = static_cast<int64_t>(sum);
      return true;
    }
    sum &= 0x7f;
    for (int shift = 7; shift < 7 * kLargestLeb128 && at != end; shift += 7) {
      const uint64_t byte = *at++;
      sum |= (byte & 0x7f) << shift;
      if (byte < 0x80) {
        value = static_cast<int64_t>(sum);
        return true;
      }
    }
    return false;
  }

  /// The bytes must be there.
  template <typename Real>
  void take_real(Real& value) noexcept {
    std::memcpy(&value, at, sizeof value);
    at += sizeof value;
  }

  std::span<const uint8_t> rest() const noexcept { return {at, end}; }
};

bool is_magnitude(float value) noexcept {
  return value >= 0.0f && value <= std::numeric_limits<float>::max();
}

/// The numbers of [first, first + count) of `bins` follow the scalars.
void append(const TensorCounts& counts, float max_abs, float min_abs, double sum, double sum_sq,
            const int64_t* bins, size_t first, size_t count, std::vector<uint8_t>& bytes) {
  std::array<uint8_t, kLargestRecord> buffer;
  uint8_t* end = put(static_cast<uint64_t>(counts.n), buffer.data());
  if (counts.n > 0) {
    for (const auto counter : kCounters) end = put(static_cast<uint64_t>(counts.*counter), end);
    end = put_real(max_abs, end);
    end = put_real(min_abs, end);
    end = put_real(sum, end);
    end = put_real(sum_sq, end);
    end = put(first, end);
    end = put(count, end);
    for (size_t bin = first; bin < first + count; ++bin) {
      end = put(static_cast<uint64_t>(bins[bin]), end);
    }
  }
  bytes.insert(bytes.end(), buffer.data(), end);
}

bool take_numbers(Source& source, TensorCounts& counts) noexcept {
  counts = {};
  if (!source.take(counts.n)) return false;
  if (counts.n == 0) return true;
  // Often all counters are 0: eight zeros of one byte each.
  static_assert(std::size(kCounters) == sizeof(uint64_t));
  uint64_t eight = 1;
  if (source.end - source.at >= static_cast<std::ptrdiff_t>(sizeof eight)) {
    std::memcpy(&eight, source.at, sizeof eight);
  }
  if (eight == 0) {
    source.at += sizeof eight;
    return true;
  }
  for (const auto counter : kCounters) {
    if (!source.take(counts.*counter) || counts.*counter > counts.n) return false;
  }
  return true;
}

bool take(Source& source, Record& record) noexcept {
  if (!take_numbers(source, record.counts)) return false;
  if (record.counts.n == 0) return true;
  if (source.end - source.at < static_cast<std::ptrdiff_t>(kReals)) return false;
  source.take_real(record.max_abs);
  source.take_real(record.min_abs);
  source.take_real(record.sum);
  source.take_real(record.sum_sq);
  if (!is_magnitude(record.max_abs)) return false;
  if (!is_magnitude(record.min_abs) && !(std::isinf(record.min_abs) && record.min_abs > 0)) {
    return false;
  }
  int64_t first = 0;
  int64_t count = 0;
  if (!source.take(first) || !source.take(count)) return false;
  if (first >= kExponentBins || count > kExponentBins - first) return false;
  if (count == 0 && first != 0) return false;
  record.first_bin = static_cast<size_t>(first);
  record.bin_count = static_cast<size_t>(count);
  const size_t end = record.first_bin + record.bin_count;
  for (size_t bin = record.first_bin; bin < end; ++bin) {
    if (!source.take(record.bins[bin]) || record.bins[bin] > record.counts.n) return false;
  }
  return count == 0 || (record.bins[record.first_bin] != 0 && record.bins[end - 1] != 0);
}

/// Merges records like TensorStats::merge. `target` must not be empty.
void merge(Record& target, const Record& other) noexcept {
  target.counts.n += other.counts.n;
  for (const auto counter : kCounters) target.counts.*counter += other.counts.*counter;
  target.max_abs = std::max(target.max_abs, other.max_abs);
  target.min_abs = std::min(target.min_abs, other.min_abs);
  target.sum += other.sum;
  target.sum_sq += other.sum_sq;
  if (other.bin_count == 0) return;
  if (target.bin_count == 0) {
    target.first_bin = other.first_bin;
    target.bins[target.first_bin] = 0;
    target.bin_count = 1;
  }
  while (target.first_bin > other.first_bin) {
    target.bins[--target.first_bin] = 0;
    ++target.bin_count;
  }
  const size_t other_end = other.first_bin + other.bin_count;
  while (target.first_bin + target.bin_count < other_end) {
    target.bins[target.first_bin + target.bin_count++] = 0;
  }
  for (size_t bin = other.first_bin; bin < other_end; ++bin) target.bins[bin] += other.bins[bin];
}

void append(const Record& r, std::vector<uint8_t>& bytes) {
  append(r.counts, r.max_abs, r.min_abs, r.sum, r.sum_sq, r.bins.data(), r.first_bin, r.bin_count,
         bytes);
}

TensorCounts counts_of(const TensorStats& s) noexcept {
  return {s.n, s.zero, s.pos_inf, s.neg_inf, s.nan, s.overflow, s.underflow, s.subnormal, s.lost};
}

}  // namespace

void append_leb128(uint64_t value, std::vector<uint8_t>& bytes) {
  std::array<uint8_t, kLargestLeb128 + 1> buffer;
  bytes.insert(bytes.end(), buffer.data(), put(value, buffer.data()));
}

bool take_leb128(std::span<const uint8_t>& bytes, int64_t& value) noexcept {
  Source source(bytes);
  const bool taken = source.take(value);
  bytes = source.rest();
  return taken;
}

void pack_stats(const TensorStats& stats, std::vector<uint8_t>& bytes) {
  const auto used = [](int64_t count) { return count != 0; };
  const auto begin = stats.exponents.begin();
  const auto first = std::find_if(begin, stats.exponents.end(), used);
  const auto end = std::find_if(stats.exponents.rbegin(), std::make_reverse_iterator(first), used);
  const auto count = static_cast<size_t>(end.base() - first);
  append(counts_of(stats), stats.max_abs, stats.min_abs, stats.sum, stats.sum_sq,
         stats.exponents.data(), count == 0 ? 0 : static_cast<size_t>(first - begin), count, bytes);
}

bool read_counts(std::span<const uint8_t> bytes, TensorCounts& counts) noexcept {
  Source source(bytes);
  return take_numbers(source, counts);
}

bool take_stats(std::span<const uint8_t>& bytes, TensorStats& stats) noexcept {
  stats = {};
  int64_t n = 0;
  return add_stats(bytes, stats, n);
}

bool add_stats(std::span<const uint8_t>& bytes, TensorStats& total, int64_t& n) noexcept {
  Record record;
  Source source(bytes);
  if (!take(source, record)) return false;
  bytes = source.rest();
  const TensorCounts& counts = record.counts;
  n = counts.n;
  if (n == 0) return true;
  if (n > kLargestTotal - total.n) return false;  // then all counters fit, as none is above n
  total.n += counts.n;
  total.zero += counts.zero;
  total.pos_inf += counts.pos_inf;
  total.neg_inf += counts.neg_inf;
  total.nan += counts.nan;
  total.overflow += counts.overflow;
  total.underflow += counts.underflow;
  total.subnormal += counts.subnormal;
  total.lost += counts.lost;
  total.max_abs = std::max(total.max_abs, record.max_abs);
  total.min_abs = std::min(total.min_abs, record.min_abs);
  total.sum += record.sum;
  total.sum_sq += record.sum_sq;
  const size_t end = record.first_bin + record.bin_count;
  for (size_t bin = record.first_bin; bin < end; ++bin) total.exponents[bin] += record.bins[bin];
  return true;
}

bool merge_packed(std::span<const uint8_t> a, std::span<const uint8_t> b,
                  std::vector<uint8_t>& merged) {
  merged.clear();
  Record first;
  Record second;
  Source from_a(a);
  Source from_b(b);
  while (from_a.at != from_a.end && from_b.at != from_b.end) {
    if (!take(from_a, first) || !take(from_b, second)) return false;
    if (second.counts.n > 0 && first.counts.n > 0) merge(first, second);
    append(first.counts.n > 0 ? first : second, merged);
  }
  return from_a.at == from_a.end && from_b.at == from_b.end;
}

}  // namespace halfscope
