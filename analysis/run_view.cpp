// SPDX-License-Identifier: MIT
// The in-memory part of RunView; run_view_open.cpp fills one from a run file.
#include "analysis/run_view.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "analysis/run_schema.h"

namespace halfscope {
namespace {

/// Rows nearly always come in step order, so this is an append.
template <typename Row>
void insert_by_step(std::vector<Row>& rows, Row row) {
  const auto place = std::upper_bound(
      rows.begin(), rows.end(), row.step,
      [](int64_t step, const Row& other) { return step < other.step; });
  rows.insert(place, std::move(row));
}

/// True if `name` is site.name(), without building that string.
bool has_name(const SiteInfo& site, std::string_view name) {
  const size_t dot = site.path.size();
  return name.size() == dot + 1 + site.tensor.size() && name.starts_with(site.path) &&
         name[dot] == '.' && name.substr(dot + 1) == site.tensor;
}

}  // namespace

const char* status_name(RunStatus status) noexcept {
  switch (status) {
    case RunStatus::running: return "running";
    case RunStatus::complete: return "complete";
    case RunStatus::interrupted: return "interrupted";
  }
  return "unknown";
}

RunView::RunView(RunInfo info, RunStatus status) : info_(std::move(info)), status_(status) {
  check_site_order(info_);
  lanes_.resize(info_.lanes.size());
  for (size_t lane = 0; lane < lanes_.size(); ++lane) {
    lanes_[lane].windows.resize(info_.lanes[lane].sites.size());
  }
}

void RunView::add_step(int lane, const StepRow& row) {
  insert_by_step(lanes_.at(static_cast<size_t>(lane)).steps, row);
}

void RunView::add_eval(int lane, const EvalRow& row) {
  insert_by_step(lanes_.at(static_cast<size_t>(lane)).evals, row);
}

void RunView::add_window(int lane, int site, StatsWindow window) {
  LaneData& data = lanes_.at(static_cast<size_t>(lane));
  insert_by_step(data.windows.at(static_cast<size_t>(site)), std::move(window));
}

std::optional<int> RunView::find_lane(const std::string& name) const {
  for (int lane = 0; lane < lane_count(); ++lane) {
    if (this->lane(lane).name == name) return lane;
  }
  return std::nullopt;
}

std::optional<int> RunView::find_site(int lane, const std::string& name) const {
  for (const SiteInfo& site : this->lane(lane).sites) {
    if (has_name(site, name)) return site.order;
  }
  return std::nullopt;
}

std::span<const StepRow> RunView::steps(int lane) const {
  return lanes_.at(static_cast<size_t>(lane)).steps;
}

std::span<const EvalRow> RunView::evals(int lane) const {
  return lanes_.at(static_cast<size_t>(lane)).evals;
}

std::span<const StatsWindow> RunView::windows(int lane, int site) const {
  return lanes_.at(static_cast<size_t>(lane)).windows.at(static_cast<size_t>(site));
}

TensorStats RunView::total(int lane, int site) const {
  TensorStats sum;
  for (const StatsWindow& window : windows(lane, site)) sum.merge(window.stats);
  return sum;
}

}  // namespace halfscope
