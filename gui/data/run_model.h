// SPDX-License-Identifier: MIT
// RunModel: a run prepared for drawing. The loader's thread builds it from one snapshot of the run
// file, and it never changes. The user interface reads it and never touches files or SQLite.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "analysis/plans/decisions.h"
#include "analysis/report/report.h"
#include "analysis/run_view.h"
#include "gui/data/heat_grid.h"
#include "gui/data/metric.h"
#include "gui/data/spread.h"

namespace halfscope::gui {

/// A window of the run file: steps that share one column in every picture.
struct Column {
  int64_t step = 0, step_count = 1;
  int64_t last() const noexcept { return step + step_count - 1; }
};

/// A layer of a lane and its recorded tensors.
struct LayerModel {
  std::string path{}, op{};
  std::vector<int> sites{};         ///< SiteInfo::order, in execution order
  const LayerInfo* info = nullptr;  ///< null if not a forward operator ("input", "loss")
  int decision = -1;  ///< index into LaneModel::decisions; -1 if not a forward operator
  /// Severity of the worst finding that names the layer; empty without one.
  std::optional<Severity> severity{};
  std::vector<int> findings{};  ///< indices into Report::findings
};

struct LaneModel {
  std::vector<LayerModel> layers;       ///< in the order in which their nodes run
  std::vector<int> layer_of_site;       ///< by SiteInfo::order
  std::vector<NodeDecision> decisions;  ///< of the plan, in execution order
  /// Rows: sites; columns: RunModel::columns(). With a reference lane, the share in excess of the
  /// reference's tensor of the same name in the same column.
  std::array<HeatGrid, kMetrics.size()> grids;
  HeatGrid spread;  ///< the same cells, of Spread
  const HeatGrid& grid(Metric metric) const { return grids[static_cast<size_t>(metric)]; }
  Spread spread_at(int site, int column) const {
    return static_cast<Spread>(spread.at(static_cast<size_t>(site), static_cast<size_t>(column)));
  }
};

class RunModel {
 public:
  /// Builds the model. Pictures alone are quick. Rules and report take longer on large runs, so a
  /// model without them (`report() == nullptr`) is shown first.
  static std::shared_ptr<const RunModel> make(std::string file, std::shared_ptr<const RunView> view,
                                              bool with_report);
  static std::shared_ptr<const RunModel> open(const std::string& file);

  const std::string& file() const noexcept { return file_; }
  const RunView& view() const noexcept { return *view_; }
  std::shared_ptr<const RunView> shared_view() const noexcept { return view_; }
  const Report* report() const noexcept { return report_ ? &*report_ : nullptr; }
  bool live() const noexcept { return view_->status() == RunStatus::running; }

  int lane_count() const noexcept { return view_->lane_count(); }
  const LaneModel& lane(int lane) const { return lanes_.at(static_cast<size_t>(lane)); }
  /// Returns the full-precision lane that the heatmap subtracts; -1 without one and for the
  /// reference itself.
  int reference_of(int lane) const noexcept { return lane == reference_ ? -1 : reference_; }
  /// Returns the lane to show first: the most affected one, else the first that is not a reference.
  int first_lane() const noexcept { return first_lane_; }

  std::span<const Column> columns() const noexcept { return columns_; }
  /// Returns the column that contains `step`, else the last one that begins before it; -1 without
  /// columns.
  int column_of(int64_t step) const noexcept;
  /// Returns the number of trained steps, with or without statistics.
  int64_t step_count() const noexcept { return step_count_; }

  /// Returns an index into lane(lane).layers; -1 without a layer of that path.
  int find_layer(int lane, std::string_view path) const noexcept;
  /// Returns unpacked statistics of a site at a column; empty if nothing was measured.
  std::optional<TensorStats> stats(int lane, int site, int column) const;
  /// Returns the rates of a site at a column, or of the whole run if `column` is -1; empty if
  /// nothing was measured.
  std::optional<Rates> rates(int lane, int site, int column) const;
  /// Returns the row of that step; null without one.
  const StepRow* step_row(int lane, int64_t step) const noexcept;
  /// Returns the layer's worst tensor in that role: by the heatmap at `column`, or by its rate over
  /// the whole run if `column` is -1. Returns the first if all are equal, and -1 without any.
  int worst_site(int lane, int layer, RoleView role, Metric metric, int column) const;
  /// Returns the rate of that tensor over the whole run; 0 without one.
  double worst_share(int lane, int layer, RoleView role, Metric metric) const;

 private:
  RunModel(std::string file, std::shared_ptr<const RunView> view, bool with_report);
  void add_lane(int lane);
  void add_heat(int lane_index, LaneModel& lane) const;
  void add_findings();

  std::string file_;
  std::shared_ptr<const RunView> view_;
  std::optional<Report> report_;
  std::vector<Column> columns_;
  std::vector<LaneModel> lanes_;
  std::vector<std::unordered_map<std::string_view, int>> layer_index_;
  int64_t step_count_ = 0;
  int first_lane_ = -1, reference_ = -1;
};

}  // namespace halfscope::gui
