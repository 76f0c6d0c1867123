// SPDX-License-Identifier: MIT
// The in-memory part of RunView. run_view_open.cpp fills it from a run file.
#include "analysis/run_view.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "analysis/run_schema.h"

namespace halfscope {
namespace {

/// Inserts a row in step order. Rows nearly always arrive in that order, so this is an append.
template <typename Row>
void insert_by_step(std::vector<Row>& rows, Row row) {
  const auto place =
      std::upper_bound(rows.begin(), rows.end(), row.step,
                       [](int64_t step, const Row& other) { return step < other.step; });
  rows.insert(place, std::move(row));
}

/// Inserts a row by step and site. The sites of a step may arrive in any order, so this is an
/// append or nearly one.
template <typename Row>
void insert_in_order(std::vector<Row>& rows, const Row& row) {
  const auto place =
      std::upper_bound(rows.begin(), rows.end(), row, [](const Row& a, const Row& b) {
        return std::tie(a.step, a.site) < std::tie(b.step, b.site);
      });
  rows.insert(place, row);
}

/// Returns whether `name` is site.name(), without building that string.
bool has_name(const SiteInfo& site, std::string_view name) {
  const size_t dot = site.path.size();
  return name.size() == dot + 1 + site.tensor.size() && name.starts_with(site.path) &&
         name[dot] == '.' && name.substr(dot + 1) == site.tensor;
}

}  // namespace

const char* status_name(RunStatus status) noexcept {
  switch (status) {
    case RunStatus::running:
      return "running";
    case RunStatus::complete:
      return "complete";
    case RunStatus::interrupted:
      return "interrupted";
    case RunStatus::early_stop:
      return "early_stop";
    case RunStatus::died:
      return "died";
  }
  return "unknown";
}

RunStatus status_after(RunEnd how) noexcept {
  switch (how) {
    case RunEnd::complete:
      return RunStatus::complete;
    case RunEnd::interrupted:
      return RunStatus::interrupted;
    case RunEnd::early_stop:
      return RunStatus::early_stop;
  }
  return RunStatus::interrupted;
}

RunView::RunView(RunInfo info, RunStatus status) : info_(std::move(info)), status_(status) {
  check_site_order(info_);
  lanes_.resize(info_.lanes.size());
  for (size_t lane = 0; lane < lanes_.size(); ++lane) {
    lanes_[lane].sites.resize(info_.lanes[lane].sites.size());
  }
}

void RunView::add_step(int lane, const StepRow& row) {
  insert_by_step(lanes_.at(static_cast<size_t>(lane)).steps, row);
}

void RunView::add_eval(int lane, const EvalRow& row) {
  std::vector<EvalRow>& rows = lanes_.at(static_cast<size_t>(lane)).evals;
  if (!rows.empty() && rows.back().step == row.step) rows.pop_back();
  insert_by_step(rows, row);
}

void RunView::add_window(int lane, int site, const StatsWindow& window) {
  SiteData& data = lanes_.at(static_cast<size_t>(lane)).sites.at(static_cast<size_t>(site));
  insert_by_step(data.windows, WindowRange::Entry{window.step, window.step_count, packed_.size()});
  pack_stats(window.stats, packed_);
  data.total.merge(window.stats);
}

bool RunView::add_packed_window(int64_t step, int64_t step_count, std::span<const uint8_t> stats) {
  size_t offset = packed_.size();
  packed_.insert(packed_.end(), stats.begin(), stats.end());
  for (LaneData& lane : lanes_) {
    for (SiteData& site : lane.sites) {
      if (!site.windows.empty()) {
        const WindowRange::Entry& last = site.windows.back();
        if (step - last.step < last.step_count) return false;
      }
      const size_t before = stats.size();
      int64_t n = 0;
      if (!add_stats(stats, site.total, n)) return false;
      if (n > 0) site.windows.push_back({step, step_count, offset});
      offset += before - stats.size();
    }
  }
  return stats.empty();
}

void RunView::add_error(int lane, const SiteError& error) {
  const auto key = [](const SiteError& e) { return std::tie(e.step, e.site, e.other_lane); };
  std::vector<SiteError>& errors = lanes_.at(static_cast<size_t>(lane)).errors;
  // The sites of a step may arrive in any order, so this is an append or nearly one.
  const auto place =
      std::upper_bound(errors.begin(), errors.end(), error,
                       [&key](const SiteError& a, const SiteError& b) { return key(a) < key(b); });
  errors.insert(place, error);
}

void RunView::add_sums(int lane, const SiteSums& row) {
  insert_in_order(lanes_.at(static_cast<size_t>(lane)).sums, row);
}

void RunView::add_deviation(int lane, const Deviation& row) {
  std::vector<Deviation>& rows = lanes_.at(static_cast<size_t>(lane)).deviations;
  const auto place =
      std::upper_bound(rows.begin(), rows.end(), row,
                       [](const Deviation& a, const Deviation& b) { return a.step < b.step; });
  rows.insert(place, row);
}

void RunView::add_kernel(int lane, const KernelCheck& row) {
  insert_in_order(lanes_.at(static_cast<size_t>(lane)).kernels, row);
}

void RunView::add_reduction(int lane, const ReductionError& row) {
  insert_in_order(lanes_.at(static_cast<size_t>(lane)).reductions, row);
}

void RunView::add_ranks(int lane, const RankSpread& row) {
  insert_by_step(lanes_.at(static_cast<size_t>(lane)).ranks, row);
}

void RunView::set_proof(int lane, std::string json) {
  lanes_.at(static_cast<size_t>(lane)).proof = std::move(json);
}

void RunView::set_trials(int lane, std::string json) {
  lanes_.at(static_cast<size_t>(lane)).trials = std::move(json);
}

void RunView::set_lost(int lane, FailedLane lost) {
  lanes_.at(static_cast<size_t>(lane)).lost = std::move(lost);
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

std::span<const SiteError> RunView::errors(int lane) const {
  return lanes_.at(static_cast<size_t>(lane)).errors;
}

std::span<const SiteSums> RunView::sums(int lane) const {
  return lanes_.at(static_cast<size_t>(lane)).sums;
}

std::span<const Deviation> RunView::deviations(int lane) const {
  return lanes_.at(static_cast<size_t>(lane)).deviations;
}

std::span<const KernelCheck> RunView::kernels(int lane) const {
  return lanes_.at(static_cast<size_t>(lane)).kernels;
}

std::span<const ReductionError> RunView::reductions(int lane) const {
  return lanes_.at(static_cast<size_t>(lane)).reductions;
}

std::span<const RankSpread> RunView::ranks(int lane) const {
  return lanes_.at(static_cast<size_t>(lane)).ranks;
}

const std::string& RunView::proof(int lane) const {
  return lanes_.at(static_cast<size_t>(lane)).proof;
}

const std::string& RunView::trials(int lane) const {
  return lanes_.at(static_cast<size_t>(lane)).trials;
}

const std::optional<FailedLane>& RunView::lost(int lane) const {
  return lanes_.at(static_cast<size_t>(lane)).lost;
}

WindowRange RunView::windows(int lane, int site) const {
  const LaneData& data = lanes_.at(static_cast<size_t>(lane));
  return {data.sites.at(static_cast<size_t>(site)).windows, packed_};
}

const TensorStats& RunView::total(int lane, int site) const {
  return lanes_.at(static_cast<size_t>(lane)).sites.at(static_cast<size_t>(site)).total;
}

}  // namespace halfscope
