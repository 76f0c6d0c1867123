// SPDX-License-Identifier: MIT
// HeatGrid: one byte per site and window, for pictures of a whole run. Shares are stored on a
// logarithmic scale, since everything from one in a million up matters. Exactly zero and "not
// measured" have their own codes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace halfscope::gui {

/// Code of a share. 0: not measured. 1: zero. 2..255: log10(share) from kHeatFloor to 0, evenly.
using Heat = uint8_t;
inline constexpr Heat kNotMeasured = 0, kZeroHeat = 1;
inline constexpr double kHeatFloor = -6.0;  ///< smaller shares count as this one, not as zero

inline Heat heat_of(double share) noexcept {
  if (!(share > 0.0)) return kZeroHeat;
  const double level = std::clamp(1.0 - std::log10(share) / kHeatFloor, 0.0, 1.0);
  return static_cast<Heat>(2 + std::lround(level * 253.0));
}
/// Returns 0 for a share of 10^kHeatFloor, 1 for 100%, and a negative number for zero or no value.
inline double heat_level(Heat heat) noexcept { return (static_cast<double>(heat) - 2.0) / 253.0; }
/// Returns the share of a level: the inverse of heat_of() and heat_level().
inline double heat_share(double level) noexcept {
  return std::pow(10.0, kHeatFloor * (1.0 - level));
}

class HeatGrid {
 public:
  HeatGrid() = default;
  HeatGrid(size_t rows, size_t columns)
      : rows_(rows), columns_(columns), cells_(rows * columns, kNotMeasured) {}

  size_t rows() const noexcept { return rows_; }
  size_t columns() const noexcept { return columns_; }
  /// Cells column by column, so that a maximum over neighbouring columns reads memory in order.
  std::span<const Heat> column(size_t column) const {
    return std::span(cells_).subspan(column * rows_, rows_);
  }
  Heat at(size_t row, size_t column) const { return cells_[column * rows_ + row]; }
  void set(size_t row, size_t column, Heat heat) { cells_[column * rows_ + row] = heat; }

  /// Computes each row's largest value in columns [first, last), so that one bad step stays visible
  /// in a pixel that covers several columns. `out` has rows() elements; an empty range gives
  /// kNotMeasured.
  void worst(size_t first, size_t last, std::span<Heat> out) const {
    std::fill(out.begin(), out.end(), kNotMeasured);
    // Bytes may alias everything: keep the loop's variables in locals, or it is ten times slower.
    Heat* to = out.data();
    const size_t rows = rows_, end = std::min(last, columns_);
    for (size_t c = first; c < end; ++c) {
      const Heat* from = cells_.data() + c * rows;
      for (size_t r = 0; r < rows; ++r) to[r] = std::max(to[r], from[r]);
    }
  }

 private:
  size_t rows_ = 0, columns_ = 0;
  std::vector<Heat> cells_;
};

}  // namespace halfscope::gui
