// SPDX-License-Identifier: MIT
#include "analysis/rules/rank_estimate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "analysis/rules/rank_facts.h"
#include "core/numeric/statistics/rates.h"

namespace halfscope {
namespace {

/// In a chain, a share s of lost additions adds an error of up to this many s^2: the lost terms are
/// the smallest ones, so their part of the sum grows like the square of their number. The factor
/// fits the ring in bf16 in docs/scale.md.
constexpr double kLostFactor = 2.0;

/// Shares of lost additions in docs/scale.md grow about like the square root of the ranks.
constexpr double kUsualPower = 0.5;

double lost_share(const ReductionError& row) { return share_of(row.swamped, row.additions); }

/// Error that lost additions cause, squared.
double lost_error_sq(double factor, double share) {
  const double error = factor * share * share;
  return error * error;
}

/// Returns the factor of a chain: not so much that the recorded errors would be larger.
double lost_factor(std::span<const ReductionError> rows) {
  double factor = kLostFactor;
  for (const ReductionError& row : rows) {
    const double share = lost_share(row);
    if (share > 0.0) factor = std::min(factor, row.error / (share * share));
  }
  return factor;
}

/// Returns whether sums add their terms one after the other in the format that is sent.
bool is_chain(const Reduction& how, const FloatFormat& format) {
  return how.algorithm == Reduction::Algorithm::ring ||
         (how.algorithm == Reduction::Algorithm::all_to_all && format == kFp32);
}

/// error^2 = once + each * ranks, without the error of lost additions.
struct ErrorGrowth {
  double once = 0.0, each = 0.0;
  double sq(double ranks) const { return once + each * ranks; }
};

/// Fits by least squares of relative deviations. Only chains grow. `factor` says how
/// much error lost additions add, which is not fitted.
ErrorGrowth fit_error(std::span<const ReductionError> rows, bool grows, double factor) {
  double w = 0.0, wx = 0.0, wxx = 0.0, wy = 0.0, wxy = 0.0;
  for (const ReductionError& row : rows) {
    if (row.error == 0.0) continue;
    const double sq = row.error * row.error, weight = 1.0 / (sq * sq);
    const double x = static_cast<double>(row.ranks);
    const double y = std::max(0.0, sq - lost_error_sq(factor, lost_share(row)));
    w += weight;
    wx += weight * x;
    wxx += weight * x * x;
    wy += weight * y;
    wxy += weight * x * y;
  }
  if (w == 0.0) return {};
  const double determinant = w * wxx - wx * wx;
  const ErrorGrowth constant{wy / w, 0.0};
  if (!grows || determinant <= 0.0) return constant;
  const double each = (w * wxy - wx * wy) / determinant;
  if (each <= 0.0) return constant;
  const double once = (wy - each * wx) / w;
  return once >= 0.0 ? ErrorGrowth{once, each} : ErrorGrowth{0.0, wxy / wxx};
}

/// Returns p of a share that grows like ranks^p: a straight line through the logarithms. One point
/// has no slope, so it gets the usual one.
double fit_lost_power(std::span<const ReductionError> rows) {
  double n = 0.0, sx = 0.0, sxx = 0.0, sy = 0.0, sxy = 0.0;
  for (const ReductionError& row : rows) {
    const double share = lost_share(row);
    if (share <= 0.0) continue;
    const double x = std::log2(static_cast<double>(row.ranks)), y = std::log2(share);
    n += 1.0;
    sx += x;
    sxx += x * x;
    sy += y;
    sxy += x * y;
  }
  const double determinant = n * sxx - sx * sx;
  return determinant > 0.0 ? std::clamp((n * sxy - sx * sy) / determinant, 0.0, 1.0) : kUsualPower;
}

}  // namespace

std::vector<RankEstimate> estimate_more_ranks(const Reduction& how, const FloatFormat& format,
                                              std::span<const ReductionError> rows, int64_t most) {
  std::vector<RankEstimate> estimates;
  const bool overflows = std::any_of(rows.begin(), rows.end(),
                                     [](const ReductionError& row) { return row.broken > 0; });
  if (rows.empty() || rows.back().ranks < kRanksToEstimate || overflows) return estimates;
  const bool chain = is_chain(how, format);
  const double factor = chain ? lost_factor(rows) : 0.0;
  const ErrorGrowth all = fit_error(rows, chain, 0.0), rest = fit_error(rows, chain, factor);
  const double power = chain ? fit_lost_power(rows) : 0.0;
  const double lost_now = lost_share(rows.back()), now = static_cast<double>(rows.back().ranks);
  for (int64_t ranks = 2; ranks <= most; ranks *= 2) {
    if (ranks <= rows.back().ranks) continue;
    const double many = static_cast<double>(ranks);
    RankEstimate estimate{.ranks = ranks};
    estimate.lost = std::min(1.0, lost_now * std::pow(many / now, power));
    estimate.least = std::sqrt(all.sq(many));
    const double most = std::sqrt(rest.sq(many) + lost_error_sq(factor, estimate.lost));
    estimate.most = std::max(estimate.least, most);
    estimates.push_back(estimate);
  }
  return estimates;
}

std::vector<RecordedReduction> recorded_reductions(const LaneFacts& lane) {
  const std::span<const ReductionError> all = lane.run().reductions(lane.lane());
  int64_t ranks = 0;
  for (const ReductionError& row : all) ranks = std::max(ranks, row.ranks);
  std::map<int, ReductionError> worst;  // by site
  for (const ReductionError& row : all) {
    if (row.ranks != ranks) continue;
    const auto weight = [](const ReductionError& each) {
      return std::pair(each.broken, each.error);
    };
    const auto [place, is_new] = worst.try_emplace(row.site, row);
    if (!is_new && weight(place->second) < weight(row)) place->second = row;
  }
  const Reduction how = reduction_of_lane(lane);
  std::vector<RecordedReduction> found;
  for (const auto& [site, most] : worst) {
    RecordedReduction& each = found.emplace_back(RecordedReduction{site, most.step, {}, {}});
    for (const ReductionError& row : all) {
      if (row.site == site && row.step == most.step) each.rows.push_back(row);
    }
    each.estimates = estimate_more_ranks(how, lane.site(site).format, each.rows);
  }
  return found;
}

}  // namespace halfscope
