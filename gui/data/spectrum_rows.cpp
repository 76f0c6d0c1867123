// SPDX-License-Identifier: MIT
#include "gui/data/spectrum_rows.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "analysis/spectrum/lens_text.h"

namespace halfscope::gui {
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
    ranges_[index(chart)] = fit_range(totals_.spectrum, chart, request.lens, window);
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
