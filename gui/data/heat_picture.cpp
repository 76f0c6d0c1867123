// SPDX-License-Identifier: MIT
// Column by column: first the maximum over windows, in memory order, then over tensors of a row.
#include "gui/data/heat_picture.h"

#include <algorithm>
#include <tuple>

namespace halfscope::gui {

std::vector<int> sites_of(const RunModel& run, int lane, const HeatRow& row, RoleView role) {
  if (row.site >= 0) return {row.site};
  std::vector<int> sites;
  const std::vector<SiteInfo>& all = run.view().lane(lane).sites;
  for (const int site : run.lane(lane).layers.at(static_cast<size_t>(row.layer)).sites) {
    if (shows(role, all[static_cast<size_t>(site)].role)) sites.push_back(site);
  }
  return sites;
}

ColumnSpan columns_between(std::span<const Column> columns, double from, double to) noexcept {
  const auto after = std::upper_bound(
      columns.begin(), columns.end(), from,
      [](double step, const Column& column) { return step < static_cast<double>(column.step); });
  const auto end = std::lower_bound(
      columns.begin(), columns.end(), to,
      [](const Column& column, double step) { return static_cast<double>(column.step) < step; });
  const int first = std::max(0, static_cast<int>(after - columns.begin()) - 1);
  return {first, std::max(first, static_cast<int>(end - columns.begin()))};
}

HeatPicture make_heat_picture(const RunModel& run, int lane, Metric metric, RoleView role,
                              std::span<const HeatRow> rows, double from, double to, size_t width) {
  HeatPicture picture{.rows = rows.size(), .width = width};
  picture.heats.assign(rows.size() * width, kNotMeasured);
  picture.spread.assign(rows.size() * width, Spread::none);
  std::vector<int> sites;    // of all rows
  std::vector<size_t> ends;  // of each row, in `sites`
  for (const HeatRow& row : rows) {
    for (const int site : sites_of(run, lane, row, role)) sites.push_back(site);
    ends.push_back(sites.size());
  }
  const HeatGrid& grid = run.lane(lane).grid(metric);
  const HeatGrid& spread_grid = run.lane(lane).spread;
  std::vector<Heat> worst(grid.rows()), worst_spread(grid.rows());
  const double per_pixel = (to - from) / static_cast<double>(width);
  ColumnSpan before{-1, -1};
  for (size_t x = 0; x < width; ++x) {
    const double begin = from + static_cast<double>(x) * per_pixel;
    const ColumnSpan columns = columns_between(run.columns(), begin, begin + per_pixel);
    const size_t cells = x * rows.size();
    if (columns == before) {  // zoomed in: one column on many pixels
      std::copy_n(picture.heats.begin() + static_cast<ptrdiff_t>(cells - rows.size()), rows.size(),
                  picture.heats.begin() + static_cast<ptrdiff_t>(cells));
      std::copy_n(picture.spread.begin() + static_cast<ptrdiff_t>(cells - rows.size()), rows.size(),
                  picture.spread.begin() + static_cast<ptrdiff_t>(cells));
      continue;
    }
    before = columns;
    const auto first = static_cast<size_t>(columns.first);
    const auto last = static_cast<size_t>(columns.last);
    grid.worst(first, last, worst);
    spread_grid.worst(first, last, worst_spread);
    // Bytes may alias everything: keep the loop's variables in locals.
    const Heat *worst_of = worst.data(), *spread_of = worst_spread.data();
    const int* site = sites.data();
    const size_t* end_of = ends.data();
    Heat* heats = picture.heats.data() + cells;
    Spread* spreads = picture.spread.data() + cells;
    for (size_t row = 0, count = rows.size(); row < count; ++row) {
      Heat heat = kNotMeasured, spread = 0;
      for (const int* end = sites.data() + end_of[row]; site != end; ++site) {
        heat = std::max(heat, worst_of[*site]);
        spread = std::max(spread, spread_of[*site]);
      }
      heats[row] = heat;
      spreads[row] = static_cast<Spread>(spread);
    }
  }
  return picture;
}

HeatCell worst_cell(const RunModel& run, int lane, Metric metric, RoleView role, const HeatRow& row,
                    ColumnSpan columns) {
  HeatCell cell;
  const HeatGrid& grid = run.lane(lane).grid(metric);
  const HeatGrid& non_finite = run.lane(lane).grid(Metric::non_finite);
  const int last = std::min(columns.last, static_cast<int>(grid.columns()));
  Heat broken = kNotMeasured;  // breaks ties: more NaN and infinities win
  for (const int site : sites_of(run, lane, row, role)) {
    for (int column = columns.first; column < last; ++column) {
      const Heat heat = grid.at(static_cast<size_t>(site), static_cast<size_t>(column));
      const Heat nans = non_finite.at(static_cast<size_t>(site), static_cast<size_t>(column));
      const Spread spread = run.lane(lane).spread_at(site, column);
      if (std::tie(heat, spread, nans) <= std::tie(cell.heat, cell.spread, broken)) continue;
      cell = {site, column, heat, spread};
      broken = nans;
    }
  }
  return cell;
}

}  // namespace halfscope::gui
