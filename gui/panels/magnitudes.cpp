// SPDX-License-Identifier: MIT
// The selected tensor over steps: its largest, typical and smallest magnitude and the range of its
// format. Gradients are recorded times the loss scale. "Unscaled" shows where they would be without
// it, which explains the purpose of the scale.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "analysis/rules/text.h"
#include "core/numeric/formats/float_format.h"
#include "gui/panels/step_plot.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

enum Series : size_t { kMax, kRms, kMin, kSeries };
constexpr std::array<const char*, kSeries> kNames{"max", "rms", "min (non-zero)"};
constexpr std::array<const char*, kSeries> kPaths{"steps/magnitudes/max", "steps/magnitudes/rms",
                                                  "steps/magnitudes/min"};
constexpr std::array<const char*, kSeries> kMeanings{"The largest finite magnitude.",
                                                     "Root mean square: a typical magnitude.",
                                                     "The smallest non-zero magnitude."};

struct Sample {
  int64_t step = 0, step_count = 1;
  std::array<double, kSeries> log2{};  // NaN: not measured, or there is none
  double scale_log2 = 0.0;             // of the loss scale at `step`
  double middle() const { return static_cast<double>(step) + static_cast<double>(step_count) / 2; }
};

/// All windows of a tensor, unpacked once, since that takes too long for every frame.
struct Samples {
  std::weak_ptr<const RunView> view{};
  int lane = -1, site = -1;
  std::vector<Sample> list{};
  bool scaled = false;  // some loss scale is not 1
};

double log2_or_nan(double value) {
  return value > 0.0 && std::isfinite(value) ? std::log2(value) : std::nan("");
}

const Samples& samples_of(const Frame& frame) {
  Samples& samples = frame.caches.get<Samples>();
  const std::shared_ptr<const RunView> view = frame.run.shared_view();
  const bool same = !samples.view.owner_before(view) && !view.owner_before(samples.view) &&
                    samples.lane == frame.at.lane && samples.site == frame.at.site;
  if (same) return samples;
  samples = {.view = view, .lane = frame.at.lane, .site = frame.at.site};
  for (const StatsWindow& window : view->windows(frame.at.lane, frame.at.site)) {
    const TensorStats& stats = window.stats;
    Sample sample{.step = window.step, .step_count = window.step_count};
    const double finite = static_cast<double>(stats.n - stats.non_finite());
    sample.log2 = {log2_or_nan(static_cast<double>(stats.max_abs)),
                   log2_or_nan(finite > 0.0 ? std::sqrt(stats.sum_sq / finite) : 0.0),
                   log2_or_nan(static_cast<double>(stats.min_abs))};
    const StepRow* row = frame.run.step_row(frame.at.lane, window.step);
    if (row != nullptr && row->loss_scale > 0.0 && std::isfinite(row->loss_scale)) {
      sample.scale_log2 = std::log2(row->loss_scale);
    }
    samples.scaled |= sample.scale_log2 != 0.0;
    samples.list.push_back(sample);
  }
  return samples;
}

bool is_gradient(const SiteInfo& site) {
  return site.role == Role::activation_grad || site.role == Role::weight_grad;
}

double shown_log2(const Sample& sample, size_t series, bool unscaled) {
  return sample.log2[series] - (unscaled ? sample.scale_log2 : 0.0);
}

/// Edges of a format's range, as powers of 2.
struct FormatZones {
  double overflow = 0.0, normal = 0.0, flush = 0.0;
};
FormatZones zones_of(const FloatFormat& format) {
  // Half of the smallest value is the largest that rounds to zero.
  return {.overflow = std::log2(format.max_finite()),
          .normal = std::log2(format.min_normal()),
          .flush = std::log2(format.flush_out ? format.min_normal() : format.min_subnormal()) -
                   (format.flush_out ? 0.0 : 1.0)};
}

void draw_zones(const Frame& frame, Plot& plot, const FormatZones& zones) {
  const Theme& theme = frame.theme;
  plot.band(zones.overflow, HUGE_VAL, theme.bad_soft);
  plot.band(zones.flush, zones.normal, theme.zone_subnormal);
  plot.band(-HUGE_VAL, zones.flush, theme.zone_lost);
  // Redraw the grid, which the zones have covered, and draw their edges.
  for (const Tick& tick : ticks_of(plot.y(), 20.0)) {
    plot.h_line(tick.value, with_alpha(theme.ink, 0.06f));
  }
  plot.h_line(zones.overflow, with_alpha(theme.bad, 0.6f));
  plot.h_line(zones.normal, with_alpha(theme.subnormal, 0.5f));
  plot.h_line(zones.flush, with_alpha(theme.lost, 0.6f));
}

void name_zones(const Frame& frame, Plot& plot, const FormatZones& zones, const FloatFormat& format,
                bool unscaled) {
  const std::string where = format_name(format) + (unscaled ? " without the loss scale" : "");
  plot.band_label(zones.overflow, HUGE_VAL, frame.theme.bad, "overflows " + where);
  plot.band_label(zones.flush, zones.normal, frame.theme.warn, "subnormal in " + where);
  plot.band_label(-HUGE_VAL, zones.flush, frame.theme.bad, "flushes to zero in " + where);
}

Axis magnitude_axis(const std::array<Trace, kSeries>& traces, const std::vector<bool>& shown,
                    const FormatZones& zones) {
  double low = HUGE_VAL, high = -HUGE_VAL;
  for (size_t i = 0; i < traces.size(); ++i) {
    if (!shown[i] || traces[i].empty()) continue;
    low = std::min(low, traces[i].low);
    high = std::max(high, traces[i].high);
  }
  if (low <= high) {
    // Include a nearby edge of the format.
    constexpr double kNear = 6.0;
    if (zones.overflow > high && zones.overflow < high + kNear) high = zones.overflow + 1.0;
    if (zones.normal < low && zones.normal > low - kNear) low = zones.normal - 1.0;
    if (zones.flush < low && zones.flush > low - kNear) low = zones.flush - 1.0;
    const double least = 8.0 - (high - low);
    if (least > 0.0) {
      low -= least / 2.0;
      high += least / 2.0;
    }
  } else {
    low = zones.flush - 2.0;
    high = zones.overflow + 2.0;
  }
  const ValueRange range = padded(AxisScale::exponent, low, high, 0.06);
  return {.scale = AxisScale::exponent, .low = range.low, .high = range.high};
}

std::array<ImU32, kSeries> colors_of(const Theme& theme) {
  return {theme.lines[2], theme.lines[4], theme.lines[1]};
}

void show_tip(const Frame& frame, const Samples& samples, int64_t step, bool unscaled) {
  const auto after =
      std::upper_bound(samples.list.begin(), samples.list.end(), step,
                       [](int64_t value, const Sample& sample) { return value < sample.step; });
  if (after == samples.list.begin()) return;
  const Sample& sample = *(after - 1);
  PlotTip tip(frame.site_info()->name());
  std::string when = steps_text(sample.step, sample.step + sample.step_count - 1);
  if (is_gradient(*frame.site_info()) && samples.scaled) {
    when += unscaled ? ", without the loss scale" : ", times the loss scale";
  }
  tip.note(when);
  const std::array<ImU32, kSeries> colors = colors_of(frame.theme);
  for (size_t i = 0; i < kSeries; ++i) {
    const double log2 = shown_log2(sample, i, unscaled);
    tip.row(kNames[i], std::isnan(log2) ? "none" : magnitude_text(frame, std::exp2(log2)),
            colors[i]);
  }
  if (samples.scaled) tip.row("loss scale", scale_text(std::exp2(sample.scale_log2)));
  tip.show(look_of(frame), "steps/magnitudes/tip");
}

PlotTable table_of(const Samples& samples, const Axis& x, bool unscaled) {
  PlotTable table("step");
  std::vector<const Sample*> list;
  for (const Sample& sample : samples.list) {
    if (sample.middle() >= x.low && sample.middle() <= x.high) list.push_back(&sample);
  }
  for (size_t series = 0; series < kSeries; ++series) {
    static constexpr std::array<const char*, kSeries> kColumns{"max_abs", "rms", "min_abs"};
    table.add(kColumns[series], list.size(), [&](size_t i) {
      return PlotPoint{static_cast<double>(list[i]->step),
                       std::exp2(shown_log2(*list[i], series, unscaled))};
    });
  }
  return table;
}

void draw_samples(const Frame& frame, const StepArea& area, const Samples& samples, bool unscaled) {
  ViewState& view = frame.view;
  const FloatFormat format =
      parse_format(view.lens).value_or(frame.site_info()->format);  // "" is no name
  std::array<Trace, kSeries> traces;
  std::vector<bool> shown;
  for (size_t series = 0; series < kSeries; ++series) {
    traces[series] = reduce(area.x, samples.list.size(), [&](size_t i) {
      return PlotPoint{samples.list[i].middle(), shown_log2(samples.list[i], series, unscaled)};
    });
    shown.push_back(!is_hidden(view.hidden_series, kPaths[series]));
  }
  const FormatZones zones = zones_of(format);
  Plot plot(look_of(frame), {.path = "steps/magnitudes",
                             .min = area.min,
                             .max = area.max,
                             .x = area.x,
                             .y = magnitude_axis(traces, shown, zones)});
  draw_zones(frame, plot, zones);
  const std::array<ImU32, kSeries> colors = colors_of(frame.theme);
  for (size_t series = kSeries; series-- > 0;) {
    if (!shown[series]) continue;
    plot.name(kPaths[series]);
    plot.line(traces[series], colors[series], line_width(area.x, traces[series], series == kRms));
  }
  plot.name("steps/magnitudes/zones");
  name_zones(frame, plot, zones, format, unscaled);
  if (traces[kMax].empty() && traces[kMin].empty()) {
    plot.message("Only zeros, NaN or infinities in these steps.");
  }
  steer_steps(frame, plot);
  draw_step_lines(frame, plot);
  if (plot.hovered() && !plot.panning()) {
    show_tip(frame, samples, pointed_step(frame, plot), unscaled);
  }
  if (plot.action() != PlotAction::none) {
    hand_out(frame, plot.action(), table_of(samples, area.x, unscaled), "magnitudes",
             PanelPicture::magnitudes);
  }
}

}  // namespace

void draw_magnitudes(const Frame& frame) {
  const PlotLook look = look_of(frame);
  ViewState& view = frame.view;
  const SiteInfo* site = frame.at.lane >= 0 ? frame.site_info() : nullptr;
  panel_title(frame, "steps/magnitudes/title",
              site == nullptr ? "Magnitudes" : "Magnitudes of " + site->name());
  if (site == nullptr || samples_of(frame).list.empty()) {
    const StepArea area = step_area(frame, kStepLabels);
    {
      PlotSpec spec = empty_plot("steps/magnitudes", area);
      spec.x_labels = frame.run.step_count() > 0;
      Plot plot(look, spec);
      plot.message(site == nullptr ? "Select a layer to see its largest and smallest values."
                                   : "No statistics of this tensor were recorded.");
      steer_steps(frame, plot);
    }
    take_area(area);
    return;
  }
  const Samples& samples = samples_of(frame);
  const bool can_unscale = is_gradient(*site) && samples.scaled;
  if (can_unscale && frame.picture == nullptr) {
    ImGui::SameLine();
    if (ui::segment("steps/magnitudes/scaled", "As trained", !view.unscaled)) {
      view.unscaled = false;
    }
    ui::tip("Gradients times the loss scale: the values that the format must represent.");
    ImGui::SameLine(0.0f, 1.0f);
    if (ui::segment("steps/magnitudes/unscaled", "Unscaled", view.unscaled)) view.unscaled = true;
    ui::tip("Gradients divided by the loss scale: where they would be without it.");
  }
  ImGui::SameLine();
  const ImVec2 legend_at = ImGui::GetCursorScreenPos();
  const float legend_right = legend_at.x + ImGui::GetContentRegionAvail().x - look.px(2.0f);
  ImGui::NewLine();
  const StepArea area = step_area(frame, kStepLabels);
  draw_samples(frame, area, samples, can_unscale && view.unscaled);
  ImGui::SetCursorScreenPos({legend_at.x, legend_at.y + ImGui::GetStyle().FramePadding.y});
  std::vector<LegendEntry> legend;
  const std::array<ImU32, kSeries> colors = colors_of(frame.theme);
  for (size_t i = 0; i < kSeries; ++i) {
    legend.push_back(
        {.path = kPaths[i], .label = kNames[i], .color = colors[i], .meaning = kMeanings[i]});
  }
  draw_legend(look, legend, legend_right, view.hidden_series);
  take_area(area);
}

}  // namespace halfscope::gui
