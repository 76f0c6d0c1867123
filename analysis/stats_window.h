// SPDX-License-Identifier: MIT
// The statistics of one site over neighbouring steps. RunView keeps them packed, since a run of
// 2,048 windows and 500 sites has a million of them. A PackedWindow is cheap to skip and unpacks on
// request.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>

#include "analysis/packed_stats.h"
#include "core/numeric/statistics/tensor_stats.h"

namespace halfscope {

/// Statistics of one site, merged exactly over the recorded steps among the `step_count` steps
/// from `step` on.
struct StatsWindow {
  int64_t step = 0;
  int64_t step_count = 1;
  TensorStats stats;
};

/// A StatsWindow as RunView keeps it; valid as long as its RunView lives unchanged.
struct PackedWindow {
  int64_t step = 0;
  int64_t step_count = 1;
  std::span<const uint8_t> record{};  ///< packed statistics, then other records

  /// Returns the counters, in a few nanoseconds.
  TensorCounts counts() const noexcept {
    TensorCounts counts;
    read_counts(record, counts);
    return counts;
  }
  TensorStats stats() const noexcept {
    TensorStats stats;
    std::span<const uint8_t> bytes = record;
    take_stats(bytes, stats);
    return stats;
  }
  /// Lets a loop use unpacked windows.
  operator StatsWindow() const noexcept { return {step, step_count, stats()}; }  // NOLINT
};

/// The windows of one site, ascending; they do not overlap.
class WindowRange {
 public:
  /// Position of a window's record in `bytes`.
  struct Entry {
    int64_t step = 0;
    int64_t step_count = 1;
    size_t offset = 0;
  };

  class Iterator {
   public:
    using value_type = PackedWindow;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::input_iterator_tag;

    Iterator() = default;
    Iterator(const WindowRange* range, size_t index) : range_(range), index_(index) {}
    PackedWindow operator*() const { return (*range_)[index_]; }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    Iterator operator++(int) { return {range_, index_++}; }
    friend bool operator==(const Iterator&, const Iterator&) = default;

   private:
    const WindowRange* range_ = nullptr;
    size_t index_ = 0;
  };

  WindowRange(std::span<const Entry> entries, std::span<const uint8_t> bytes)
      : entries_(entries), bytes_(bytes) {}

  size_t size() const noexcept { return entries_.size(); }
  bool empty() const noexcept { return entries_.empty(); }
  PackedWindow operator[](size_t index) const {
    const Entry& entry = entries_[index];
    // The windows of a site are far apart in memory, and most loops continue with the next ones. A
    // large run does not fit in the cache, and waiting for memory would take longer than unpacking.
    constexpr size_t kAhead = 8;
    if (index + kAhead < entries_.size()) {
      __builtin_prefetch(bytes_.data() + entries_[index + kAhead].offset);
    }
    return {entry.step, entry.step_count, bytes_.subspan(entry.offset)};
  }
  PackedWindow front() const { return (*this)[0]; }
  PackedWindow back() const { return (*this)[entries_.size() - 1]; }
  /// Returns the window that starts at `step`.
  std::optional<PackedWindow> find(int64_t step) const {
    const auto place =
        std::lower_bound(entries_.begin(), entries_.end(), step,
                         [](const Entry& entry, int64_t value) { return entry.step < value; });
    if (place == entries_.end() || place->step != step) return std::nullopt;
    return (*this)[static_cast<size_t>(place - entries_.begin())];
  }
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, entries_.size()}; }

 private:
  std::span<const Entry> entries_;
  std::span<const uint8_t> bytes_;
};

}  // namespace halfscope
