// SPDX-License-Identifier: MIT
#include "gui/data/spectrum_rows.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "analysis/spectrum/lens_text.h"

namespace halfscope::gui {
namespace {

constexpr double kRoom = 2.0;         ///< powers of two beside the values
constexpr double kFarEdge = 14.0;     ///< a window's edge further away is not shown
constexpr double kLeastWidth = 24.0;  ///< powers of two
constexpr float kThinTail = 1e-4f;    ///< share of a tensor's values that may be off the chart

/// Widens the range to all but the thin tails of the ridge.
void include(const Ridge& ridge, double& low, double& high) {
  float below = 0.0f, above = 0.0f;
  size_t first = 0, last = ridge.shares.size();
  while (first < last && below + ridge.shares[first] < kThinTail) below += ridge.shares[first++];
  while (last > first && above + ridge.shares[last - 1] < kThinTail) above += ridge.shares[--last];
  if (first == last) return;
  low = std::min(low, static_cast<double>(ridge.low) + static_cast<double>(first));
  high = std::max(high, static_cast<double>(ridge.low) + static_cast<double>(last));
}

}  // namespace

bool SpectrumRows::Source::update(const LaneSteps& steps, const SpectrumRequest& request) {
  if (steps == key && request.layers == layers && request.charts == charts) return false;
  key = steps;
  layers = request.layers;
  charts = request.charts;
  spectrum = steps.run
                 ? make_spectrum(*steps.run, steps.lane, layers, charts, steps.first, steps.last)
                 : Spectrum{};
  return true;
}

RidgeTable SpectrumRows::ridges_of(const Spectrum& spectrum, const SpectrumRequest& request) const {
  RidgeTable table;
  if (spectrum.layers.empty()) return table;
  for (const SpectrumChart chart : request.charts) {
    std::vector<Ridge>& ridges = table[index(chart)];
    ridges.reserve(rows_.size());
    for (const LayerRow& row : rows_) {
      ridges.push_back(make_ridge(spectrum, row.layers, chart, request.lens, request.shift));
    }
  }
  return table;
}

void SpectrumRows::fit_ranges(const SpectrumRequest& request) {
  const ExponentWindow window = exponent_window(format_);
  for (const SpectrumChart chart : request.charts) {
    double low = 1e9, high = -1e9;
    for (size_t layer = 0; layer < totals_.spectrum.layers.size(); ++layer) {
      const int one[] = {static_cast<int>(layer)};
      include(make_ridge(totals_.spectrum, one, chart, request.lens, 0.0), low, high);
    }
    if (low > high) {
      low = std::max(window.flush, -30.0);
      high = std::min(window.overflow, 20.0);
    }
    // The edges of the window explain the picture, unless they are far from all values.
    for (const double edge : {window.flush - kRoom, window.overflow + kRoom}) {
      if (edge < low && low - edge < kFarEdge) low = edge;
      if (edge > high && edge - high < kFarEdge) high = edge;
    }
    const double missing = std::max(0.0, kLeastWidth - (high - low));
    ranges_[index(chart)] = {low - kRoom - missing / 2.0, high + kRoom + missing / 2.0};
  }
}

void SpectrumRows::update(const SpectrumRequest& request) {
  if (last_ == request) return;
  LaneSteps all = request.steps;
  all.first = 0;
  all.last = -1;
  const bool new_totals = totals_.update(all, request);
  const bool new_steps = steps_.update(request.steps, request);
  const bool new_reference = reference_source_.update(request.reference, request);
  const bool new_fixed = fixed_source_.update(request.fixed, request);
  const auto differs = [&](auto member) {
    return !last_ || !((*last_).*member == request.*member);
  };
  const bool new_charts = differs(&SpectrumRequest::charts);
  const bool new_lens = differs(&SpectrumRequest::lens);
  const bool new_shift = differs(&SpectrumRequest::shift);
  const bool new_rows = new_totals || differs(&SpectrumRequest::most_rows) ||
                        differs(&SpectrumRequest::opened) || differs(&SpectrumRequest::closed);
  if (new_rows) {
    rows_ = fold_layers(request.layers, request.most_rows, request.opened, request.closed);
  }
  const bool new_view = new_rows || new_charts || new_lens || new_shift;
  if (new_totals || new_lens) {
    format_ = request.lens.format ? *request.lens.format : main_format(totals_.spectrum);
  }
  if (new_totals || new_lens || new_charts) fit_ranges(request);
  if (new_steps || new_view) {
    ridges_ = ridges_of(steps_.spectrum, request);
    for (const SpectrumChart chart : request.charts) {
      total_[index(chart)] = total_loss(steps_.spectrum, chart, request.lens, request.shift);
      recorded_[index(chart)] = total_loss(steps_.spectrum, chart, request.lens, 0.0);
    }
  }
  if (new_reference || new_view) reference_ = ridges_of(reference_source_.spectrum, request);
  if (new_fixed || new_view) {
    fixed_ = ridges_of(fixed_source_.spectrum, request);
    fixed_format_ =
        request.lens.format ? *request.lens.format : main_format(fixed_source_.spectrum);
  }
  if (new_steps || new_lens) best_shift_.reset();
  if (new_totals || new_charts) whole_run_.clear();
  last_ = request;
}

const SpectrumRows::WholeRun& SpectrumRows::whole_run(const Lens& lens) {
  const auto found = std::find_if(whole_run_.begin(), whole_run_.end(),
                                  [&](const auto& each) { return each.first == lens; });
  if (found != whole_run_.end()) return found->second;
  WholeRun answer;
  const std::vector<SpectrumChart> charts = last_ ? last_->charts : std::vector<SpectrumChart>{};
  for (const SpectrumChart chart : charts) {
    answer.lost.add(total_loss(totals_.spectrum, chart, lens, 0.0));
  }
  answer.text = lens_answer(totals_.spectrum, charts, lens);
  return whole_run_.emplace_back(lens, std::move(answer)).second;
}

int SpectrumRows::worst_site() const {
  const Ridge* worst = nullptr;
  for (const std::vector<Ridge>& ridges : ridges_) {
    for (const Ridge& ridge : ridges) {
      if (!ridge.measured()) continue;
      if (worst == nullptr || ridge.lost.share() > worst->lost.share()) worst = &ridge;
    }
  }
  return worst == nullptr ? -1 : worst->worst;
}

int SpectrumRows::best_shift() {
  if (!best_shift_) {
    best_shift_ = last_ ? best_loss_scale_shift(steps_.spectrum, last_->lens) : 0;
  }
  return *best_shift_;
}

}  // namespace halfscope::gui
