// SPDX-License-Identifier: MIT
// SiteError rows are sorted by step, then tensor, so bisection finds the range of a step.
#include "gui/data/lane_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include "analysis/distances.h"
#include "analysis/rules/text.h"
#include "core/numeric/statistics/rates.h"

namespace halfscope::gui {
namespace {

std::span<const SiteError> rows_of(std::span<const SiteError> all, int64_t step) {
  const auto first =
      std::lower_bound(all.begin(), all.end(), step,
                       [](const SiteError& error, int64_t value) { return error.step < value; });
  const auto last =
      std::upper_bound(first, all.end(), step,
                       [](int64_t value, const SiteError& error) { return value < error.step; });
  return {first, last};
}

bool holds_lane(std::span<const SiteError> rows, int other) {
  return std::any_of(rows.begin(), rows.end(),
                     [other](const SiteError& error) { return error.other_lane == other; });
}

/// Orders errors; a non-finite one is larger than all others.
double weight(double error) noexcept {
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

}  // namespace

std::vector<int> LaneErrors::others(const RunView& run, int lane) {
  std::vector<int> lanes;
  const std::span<const SiteError> all = run.errors(lane);
  if (all.empty()) return lanes;
  // Every sampled step compares the same lanes.
  for (const SiteError& error : rows_of(all, all.front().step)) {
    if (std::find(lanes.begin(), lanes.end(), error.other_lane) == lanes.end()) {
      lanes.push_back(error.other_lane);
    }
  }
  std::sort(lanes.begin(), lanes.end());
  return lanes;
}

std::optional<LaneErrors> LaneErrors::nearest(const RunView& run, int lane, int other,
                                              int64_t step) {
  const std::span<const SiteError> all = run.errors(lane);
  if (all.empty()) return std::nullopt;
  const auto after =
      std::lower_bound(all.begin(), all.end(), step,
                       [](const SiteError& error, int64_t value) { return error.step < value; });
  int64_t best = after == all.end() ? all.back().step : after->step;
  if (after != all.begin()) {
    const int64_t before = std::prev(after)->step;
    if (after == all.end() || step - before <= best - step) best = before;
  }
  LaneErrors result;
  result.rows_ = rows_of(all, best);
  result.lane_ = lane;
  result.other_ = other;
  result.step_ = best;
  if (!holds_lane(result.rows_, other)) return std::nullopt;
  return result;
}

const SiteError* LaneErrors::find(int site) const noexcept {
  const auto found = std::find_if(rows_.begin(), rows_.end(), [&](const SiteError& error) {
    return error.site == site && error.other_lane == other_;
  });
  return found == rows_.end() ? nullptr : &*found;
}

const SiteError* LaneErrors::first_differing() const noexcept {
  const auto found = std::find_if(rows_.begin(), rows_.end(), [&](const SiteError& error) {
    return error.other_lane == other_ && error.differing > 0;
  });
  return found == rows_.end() ? nullptr : &*found;
}

std::vector<DepthError> LaneErrors::by_depth(const RunView& run, const LaneModel& model,
                                             Role role) const {
  const LaneInfo& lane = run.lane(lane_);
  std::vector<DepthError> found(model.layers.size());
  for (const SiteError& error : rows_) {
    if (error.other_lane != other_ || error.site < 0 ||
        static_cast<size_t>(error.site) >= lane.sites.size()) {
      continue;
    }
    const SiteInfo& site = lane.sites[static_cast<size_t>(error.site)];
    if (site.role != role) continue;
    const DepthError row{.layer = site.path,
                         .site = error.site,
                         .total = total_error(error),
                         .local = local_error(error),
                         .inherited = error.inherited,
                         .n = error.n,
                         .not_finite = not_finite_in_one(run, lane_, error)};
    DepthError& worst =
        found[static_cast<size_t>(model.layer_of_site[static_cast<size_t>(error.site)])];
    const auto rank = [](const DepthError& each) {
      return std::pair(share_of(each.not_finite, each.n), weight(each.total));
    };
    if (worst.site < 0 || rank(row) > rank(worst)) worst = row;
  }
  std::erase_if(found, [](const DepthError& layer) { return layer.site < 0; });
  return found;
}

namespace {

/// The last bin counts elements that are finite in one lane only. Elements that are finite in
/// neither lane are in the first bin if they are equal.
bool nothing_finite(const SiteError& error) noexcept {
  return error.n > 0 && error.ulps.back() >= error.n;
}

}  // namespace

double total_error(const SiteError& error) noexcept {
  return nothing_finite(error) ? std::numeric_limits<double>::quiet_NaN() : error.total;
}

double local_error(const SiteError& error) noexcept {
  if (nothing_finite(error)) return std::numeric_limits<double>::quiet_NaN();
  return std::isnan(error.local_fp64) ? error.local_fp32 : error.local_fp64;
}

const KernelCheck* kernel_check(const RunView& run, int lane, int site, int64_t step) noexcept {
  const KernelCheck* nearest = nullptr;
  for (const KernelCheck& check : run.kernels(lane)) {
    if (check.site != site) continue;
    const bool nearer =
        nearest == nullptr || std::abs(check.step - step) < std::abs(nearest->step - step);
    if (nearer) nearest = &check;
  }
  return nearest;
}

bool is_kernel_fault(const KernelCheck& check) noexcept {
  return check.beyond > 0 || (check.differing > 0 && check.kernel.empty());
}

std::string kernel_text(const KernelCheck& check) {
  if (check.differing == 0) return "matches the emulator bit for bit";
  const auto share = [](int64_t part, int64_t whole) {
    return percent(static_cast<double>(part) / static_cast<double>(whole));
  };
  std::string text = share(check.n - check.differing, check.n) + " match the emulator bit for bit";
  if (check.beyond > 0)
    return text + ", " + share(check.beyond, check.n) + " match no summation order";
  if (check.sampled == 0) return text;
  const bool all = check.explained == check.sampled;
  return text + fmt::format(", {} explained", all ? "all" : share(check.explained, check.sampled));
}

}  // namespace halfscope::gui
