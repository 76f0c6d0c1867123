// SPDX-License-Identifier: MIT
// Resamples a HeatGrid for pixels: a row is one or several tensors, and a pixel column shows the
// worst of all columns that it covers.
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

/// Returns the tensors that a row shows.
std::vector<int> sites_of(const RunModel& run, int lane, const HeatRow& row, RoleView role);

/// Columns [first, last) of a run. Steps between two columns belong to the earlier one.
struct ColumnSpan {
  int first = 0, last = 0;
  friend bool operator==(const ColumnSpan&, const ColumnSpan&) = default;
};
/// Returns the columns that overlap the steps [from, to).
ColumnSpan columns_between(std::span<const Column> columns, double from, double to) noexcept;

struct HeatPicture {
  size_t rows = 0, width = 0;
  std::vector<Heat> heats{};     ///< pixel column after pixel column
  std::vector<Spread> spread{};  ///< of NaN and infinities
  Heat heat(size_t row, size_t x) const { return heats[x * rows + row]; }
  Spread spread_at(size_t row, size_t x) const { return spread[x * rows + row]; }
};
/// Resamples the steps [from, to) to `width` pixels.
HeatPicture make_heat_picture(const RunModel& run, int lane, Metric metric, RoleView role,
                              std::span<const HeatRow> rows, double from, double to, size_t width);

/// Returns the worst cell of a row in `columns`; its site is -1 if nothing was measured.
struct HeatCell {
  int site = -1, column = -1;
  Heat heat = kNotMeasured;
  Spread spread = Spread::none;
};
HeatCell worst_cell(const RunModel& run, int lane, Metric metric, RoleView role, const HeatRow& row,
                    ColumnSpan columns);

}  // namespace halfscope::gui
