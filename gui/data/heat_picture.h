// SPDX-License-Identifier: MIT
// A HeatGrid as pixels can show it: rows of one or several tensors, and of each pixel column the
// worst of all columns that fall on it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gui/data/run_model.h"

namespace halfscope::gui {

/// A row of the heatmap: a layer, or one tensor of it.
struct HeatRow {
  int layer = -1;
  int site = -1;  ///< SiteInfo::order; -1: all tensors of the layer that the role shows
  friend bool operator==(const HeatRow&, const HeatRow&) = default;
};

/// The tensors that a row stands for.
std::vector<int> sites_of(const RunModel& run, int lane, const HeatRow& row, RoleView role);

/// Columns [first, last) of a run. What no column holds belongs to the one before.
struct ColumnSpan {
  int first = 0, last = 0;
  friend bool operator==(const ColumnSpan&, const ColumnSpan&) = default;
};
/// Those that meet the steps [from, to).
ColumnSpan columns_between(std::span<const Column> columns, double from, double to) noexcept;

struct HeatPicture {
  size_t rows = 0, width = 0;
  std::vector<Heat> heats{};     ///< pixel column after pixel column
  std::vector<Spread> spread{};  ///< of NaN and infinities
  Heat heat(size_t row, size_t x) const { return heats[x * rows + row]; }
  Spread spread_at(size_t row, size_t x) const { return spread[x * rows + row]; }
};
/// The steps [from, to) on `width` pixels.
HeatPicture make_heat_picture(const RunModel& run, int lane, Metric metric, RoleView role,
                              std::span<const HeatRow> rows, double from, double to, size_t width);

/// The worst cell of a row within some columns; site is -1 if nothing was measured.
struct HeatCell {
  int site = -1, column = -1;
  Heat heat = kNotMeasured;
  Spread spread = Spread::none;
};
HeatCell worst_cell(const RunModel& run, int lane, Metric metric, RoleView role, const HeatRow& row,
                    ColumnSpan columns);

}  // namespace halfscope::gui
