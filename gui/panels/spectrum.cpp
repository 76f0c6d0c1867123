// SPDX-License-Identifier: MIT
// The Spectrum: every layer is a ridge over exponents, with the window of a format behind it.
// Dragging a chart of gradients slides the loss scale.
#include "gui/panels/spectrum.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "analysis/rules/text.h"
#include "core/number_text.h"
#include "gui/data/loss_scale.h"
#include "gui/panels/spectrum_plot.h"
#include "gui/panels/step_plot.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr double kFarthestShift = 48.0;
constexpr float kLeastPitch = 4.5f, kMostPitch = 56.0f;     ///< between rows, unscaled
constexpr float kNameColumn = 138.0f, kLossColumn = 50.0f;  ///< columns beside the charts
constexpr float kPicturePitch = 3.5f;                       ///< in pictures

/// Sizes of the last frame: how many rows fit is known only after the layout.
struct SpectrumState {
  SpectrumRows rows;
  size_t most_rows = 40;
};

std::vector<std::string> layers_of(const Frame& frame, const std::vector<SpectrumChart>& charts) {
  std::vector<std::string> paths;
  const std::vector<SiteInfo>& sites = frame.lane_info().sites;
  for (const LayerModel& layer : frame.lane().layers) {
    const bool shown = std::any_of(layer.sites.begin(), layer.sites.end(), [&](int site) {
      const SpectrumChart chart = chart_of(sites[static_cast<size_t>(site)].role);
      return std::find(charts.begin(), charts.end(), chart) != charts.end();
    });
    if (shown && passes_filter(layer.path, frame.view.filter)) paths.push_back(layer.path);
  }
  return paths;
}

/// Returns the steps that the view shows of a run, in that run's own windows.
LaneSteps steps_of(const Frame& frame, const RunModel& run, int lane) {
  LaneSteps steps{.run = run.shared_view(), .lane = lane};
  if (frame.view.merge_steps) {
    const StepRange& range = frame.view.range;
    steps.first = range.all() ? 0 : static_cast<int64_t>(range.first);
    steps.last =
        range.all() ? std::max<int64_t>(run.step_count(), 1) - 1 : static_cast<int64_t>(range.last);
    return steps;
  }
  const int column = run.column_of(frame.at.step);
  if (column < 0) return {};
  steps.first = steps.last = run.columns()[static_cast<size_t>(column)].step;
  return steps;
}

/// Returns the row that contains the layer; -1 without one.
int row_of(const std::vector<LayerRow>& rows, const Spectrum& spectrum, const std::string& path) {
  if (path.empty()) return -1;
  for (size_t row = 0; row < rows.size(); ++row) {
    for (const int layer : rows[row].layers) {
      if (spectrum.layers[static_cast<size_t>(layer)].path == path) return static_cast<int>(row);
    }
  }
  return -1;
}

/// Everything that the charts of one frame have in common.
struct Shown {
  const Frame& frame;
  SpectrumRows& rows;
  RowScale scale{};
  int lit = -1, selected = -1;
  std::vector<std::optional<Severity>> severity{};  ///< by row
};

const LayerModel* layer_at(const Shown& shown, int layer) {
  const std::string& path = shown.rows.spectrum().layers[static_cast<size_t>(layer)].path;
  const int found = shown.frame.run.find_layer(shown.frame.at.lane, path);
  return found < 0 ? nullptr : &shown.frame.lane().layers[static_cast<size_t>(found)];
}

std::string loss_text(const LossCount& lost) {
  if (lost.high <= 0.0) return "0";
  return (lost.estimate && lost.low != lost.high ? "~" : "") + percent(lost.share());
}

/// Writes the losses at the end of the rows, the largest first where they do not all fit.
void draw_losses(Canvas& canvas, const Shown& shown, const std::vector<Ridge>& ridges,
                 const SpectrumPlot& plot) {
  const Frame& frame = shown.frame;
  ImFont& font = *frame.fonts.small;
  const float line = text_size(font, "0").y;
  std::vector<double> weights;
  std::vector<bool> spreads;  // NaN and infinities that full precision does not have
  size_t wanted = 0;
  for (size_t row = 0; row < ridges.size(); ++row) {
    const double share = ridges[row].lost.share();
    const bool has_reference = plot.reference != nullptr && row < plot.reference->size();
    spreads.push_back(
        ridges[row].non_finite > 0.0 &&
        !intended_non_finite(ridges[row], has_reference ? &(*plot.reference)[row] : nullptr));
    const bool bad = share >= kShownLoss || spreads[row];
    wanted += bad;
    const bool pointed = static_cast<int>(row) == shown.lit;
    weights.push_back(bad ? share + 1e-3 + ridges[row].non_finite + (pointed ? 10.0 : 0.0) : 0.0);
  }
  const Report* report = frame.run.report();
  const bool calm = report != nullptr && report->lanes[static_cast<size_t>(frame.at.lane)].state ==
                                             Verdict::State::healthy;
  const std::vector<int> written = rows_to_label(weights, shown.scale.pitch, line * 0.9f);
  for (const int row : written) {
    const float base = shown.scale.base(row);
    if (base < plot.min.y + line / 2 || base > plot.max.y + 1.0f) continue;
    const Ridge& ridge = ridges[static_cast<size_t>(row)];
    const bool spread = spreads[static_cast<size_t>(row)];
    const std::string text =
        spread && ridge.lost.share() < kShownLoss ? "NaN/Inf" : loss_text(ridge.lost);
    canvas.text(font, {plot.max.x + 6.0f * frame.scale, base - line * 0.8f},
                calm     ? frame.theme.soft
                : spread ? frame.theme.bad
                         : frame.theme.lost,
                text);
  }
  if (written.size() >= wanted || frame.picture != nullptr) return;
  // Say so where numbers are left out.
  const std::string rest = fmt::format("+{}", wanted - written.size());
  canvas.text(font, {plot.max.x + 6.0f * frame.scale, plot.max.y + 5.0f * frame.scale},
              frame.theme.soft, rest);
}

/// Slides the loss scale while a chart of gradients is dragged. The chart is the item before.
void slide(const Shown& shown, const SpectrumPlot& plot, const std::string& path) {
  ImGui::PushID(path.c_str());
  ImGuiStorage& storage = *ImGui::GetStateStorage();
  const ImGuiID start = ImGui::GetID("start");
  ImGui::PopID();
  ViewState& view = shown.frame.view;
  if (ImGui::IsItemActivated()) storage.SetFloat(start, static_cast<float>(view.scale_shift));
  if (ImGui::IsItemHovered() || ImGui::IsItemActive())
    ImGui::SetMouseCursor(ImGuiMouseCursor_ResizeEW);
  if (ImGui::IsItemActive() && ImGui::IsMouseDragging(0)) {
    // The window moves with the pointer: to the left, where smaller values fit, the scale grows.
    const double moved = static_cast<double>(ImGui::GetMouseDragDelta(0).x);
    const double shift =
        static_cast<double>(storage.GetFloat(start)) - moved / plot.pixels_per_power();
    view.scale_shift = within_slide(ImGui::GetIO().KeyAlt ? shift : std::round(shift));
  }
}

void show_row_tip(const Shown& shown, const std::vector<Ridge>& ridges, SpectrumChart chart,
                  int row) {
  const Frame& frame = shown.frame;
  const LayerRow& layers = shown.rows.rows()[static_cast<size_t>(row)];
  const Ridge& ridge = ridges[static_cast<size_t>(row)];
  PlotTip tip(layers.folded
                  ? fmt::format("{} ({})", layers.name,
                                counted(static_cast<int64_t>(layers.layers.size()), "layer"))
                  : layers.name);
  if (!ridge.measured()) {
    tip.note("Nothing was measured here in these steps.");
  } else {
    const SiteInfo& site = frame.lane_info().sites[static_cast<size_t>(ridge.worst)];
    tip.row(layers.layers.size() > 1 ? "worst tensor" : "tensor", site.name());
    tip.row("recorded in", format_name(site.format));
    const CountBounds bounds{static_cast<int64_t>(std::floor(ridge.lost.low)),
                             static_cast<int64_t>(std::ceil(ridge.lost.high))};
    tip.row("lost", fmt::format("{} of {} non-zero values", share_text(bounds, ridge.lost.values),
                                grouped(ridge.lost.values)));
    if (ridge.lost.overflow > 0.0)
      tip.row("of these, overflow",
              percent(ridge.lost.overflow / static_cast<double>(ridge.lost.values)));
    if (ridge.non_finite > 0.0)
      tip.row("NaN or infinite before rounding", percent(ridge.non_finite));
    if (ridge.lost.estimate)
      tip.note("Estimated from histograms; training would change the values.");
  }
  tip.note(layers.folded ? "Click to open." : "Click to select, double-click for all details.");
  tip.show(look_of(frame), fmt::format("spectrum/{}/tip", spectrum_chart_name(chart)));
}

void use_row(const Shown& shown, const std::vector<Ridge>& ridges, int row) {
  const Frame& frame = shown.frame;
  const LayerRow& layers = shown.rows.rows()[static_cast<size_t>(row)];
  if (layers.folded) return open_group(frame.view, layers.name);
  const int worst = ridges[static_cast<size_t>(row)].worst;
  if (worst >= 0) {
    frame.select_site(worst);
  } else if (const LayerModel* layer = layer_at(shown, layers.layers[0])) {
    frame.view.layer = layer->path;
    frame.view.site.clear();
  }
}

/// Draws the context menu of a chart: folds the group around the row that was clicked.
void offer_folding(const Shown& shown, const std::string& path, int row) {
  ImGui::PushID((path + "/menu").c_str());
  ImGuiStorage& storage = *ImGui::GetStateStorage();
  const ImGuiID clicked = ImGui::GetID("row");
  const bool inside = row >= 0 && row < static_cast<int>(shown.rows.rows().size());
  if (ImGui::IsItemHovered() && ImGui::IsMouseReleased(ImGuiMouseButton_Right) && inside &&
      !shown.rows.rows()[static_cast<size_t>(row)].groups.empty()) {
    storage.SetInt(clicked, row);
    ImGui::OpenPopup("##menu");
  }
  if (ImGui::BeginPopup("##menu")) {
    const int chosen = storage.GetInt(clicked, 0);
    if (chosen < static_cast<int>(shown.rows.rows().size())) {
      const LayerRow& each = shown.rows.rows()[static_cast<size_t>(chosen)];
      const std::string text = "Fold " + each.groups.back();
      if (ui::menu_item(path + "/fold", text.c_str(), "G")) fold_around(shown.frame.view, each);
    }
    ImGui::EndPopup();
  }
  ImGui::PopID();
}

/// Returns the sentence at the right end of a chart's title.
std::string chart_note(const Shown& shown, SpectrumChart chart) {
  const Frame& frame = shown.frame;
  const Lens lens = lens_of(frame.view);
  if (lens.scale == LensScale::tensor) return "every tensor is scaled";
  if (lens.scale == LensScale::block)
    return fmt::format("every block of {} values is scaled", lens.block_size);
  const bool scales = has_loss_scale(frame);
  if (frame.picture != nullptr) return "";
  if (chart == SpectrumChart::gradients && scales)
    return "drag: the window slides with the loss scale";
  return scales ? "the loss scale does not reach them" : "";
}

void draw_title(Canvas& canvas, const Shown& shown, SpectrumChart chart, ImVec2 at, float right) {
  const Frame& frame = shown.frame;
  ImFont &bold = *frame.fonts.bold, &small = *frame.fonts.small;
  const std::string name = spectrum_chart_name(chart);
  canvas.text(bold, at, frame.theme.ink, name, true);
  float left = at.x + text_size(bold, name).x + 10.0f * frame.scale;
  const LossCount &now = shown.rows.total(chart), &recorded = shown.rows.recorded_total(chart);
  const bool moved = frame.view.scale_shift != 0.0 && chart == SpectrumChart::gradients &&
                     lens_of(frame.view).scale == LensScale::none;
  const bool none_finite =
      now.values == 0 &&
      std::any_of(shown.rows.ridges(chart).begin(), shown.rows.ridges(chart).end(),
                  [](const Ridge& ridge) { return ridge.non_finite > 0.0; });
  std::string lost = none_finite ? "only NaN and infinities" : loss_text(now) + " lost";
  if (moved) {
    lost = fmt::format("{} lost {} {}", loss_text(recorded), arrow(frame.fonts), loss_text(now));
  }
  ImFont& font = moved ? *frame.fonts.large : bold;
  if (left + text_size(font, lost).x > right) lost = loss_text(now);  // the next chart begins there
  const bool better = moved && now.high < recorded.high;
  const ImU32 color = none_finite                 ? frame.theme.bad
                      : better                    ? frame.theme.good
                      : now.share() >= kShownLoss ? frame.theme.lost
                                                  : frame.theme.soft;
  canvas.text(font, {left, at.y - (moved ? 4.0f * frame.scale : 0.0f)}, color, lost, !moved);
  if (frame.picture == nullptr) {
    track_rect(fmt::format("spectrum/{}/lost", name), {left, at.y},
               {left + text_size(font, lost).x, at.y + text_size(font, lost).y}, lost);
  }
  left += text_size(font, lost).x + 12.0f * frame.scale;
  const std::string note = chart_note(shown, chart);
  const float width = text_size(small, note).x;
  if (left + width <= right) {
    canvas.text(small, {right - width, at.y + 2.0f * frame.scale}, frame.theme.soft, note);
  }
}

void draw_names(Canvas& canvas, const Shown& shown, float left, float right, float top,
                float bottom) {
  const Frame& frame = shown.frame;
  ImFont& font = *frame.fonts.small;
  const float line = text_size(font, "0").y;
  const std::vector<LayerRow>& rows = shown.rows.rows();
  std::vector<double> weights(rows.size(), 1e-6);
  for (size_t row = 0; row < rows.size(); ++row) {
    const int index = static_cast<int>(row);
    for (const SpectrumChart chart : shown_charts(frame)) {
      const std::vector<Ridge>& ridges = shown.rows.ridges(chart);
      if (row < ridges.size() && ridges[row].lost.share() >= kShownLoss)
        weights[row] += ridges[row].lost.share();
    }
    if (shown.severity[row]) weights[row] += 2.0 + static_cast<double>(*shown.severity[row]);
    if (index == shown.selected) weights[row] += 10.0;
    if (index == shown.lit) weights[row] += 20.0;
  }
  const std::vector<int> named = rows_to_label(weights, shown.scale.pitch, line * 0.95f);
  for (const int row : named) {
    const float base = shown.scale.base(row);
    if (base < top + line / 2 || base > bottom + 1.0f) continue;
    const LayerRow& each = rows[static_cast<size_t>(row)];
    const std::optional<Severity>& severity = shown.severity[static_cast<size_t>(row)];
    const bool pointed = row == shown.lit || row == shown.selected;
    const ImU32 color = severity && *severity != Severity::info ? frame.theme.severity(*severity)
                        : pointed                               ? frame.theme.ink
                                                                : frame.theme.soft;
    const char* sign = !each.folded ? "" : frame.fonts.unicode ? "\u25b8 " : "+ ";
    const std::string text = fitted(sign + each.name, &font, right - left);
    canvas.text(font, {right - text_size(font, text).x, base - line * 0.8f}, color, text, pointed);
  }
  if (frame.picture != nullptr || named.size() == rows.size()) return;
  const std::string rest = fmt::format("{} of {} named", named.size(), rows.size());
  canvas.text(font, {right - text_size(font, rest).x, bottom + 5.0f * frame.scale},
              frame.theme.faint, rest);
}

/// Lets the pointer drag the line between both runs, also in from the chart's right edge. Comes
/// before the chart, which would take the pointer otherwise.
void drag_wipe(const Frame& frame, const std::string& path, ImVec2 min, ImVec2 max) {
  if (fixed_lane(frame).run == nullptr) return;
  double& wipe = frame.view.wipe;
  const float half = 5.0f * frame.scale, width = max.x - min.x;
  const float x = min.x + static_cast<float>(wipe) * width;
  ImGui::SetCursorScreenPos({x - half, min.y});
  ImGui::PushID(path.c_str());
  ImGui::InvisibleButton("##wipe", {2 * half, max.y - min.y});
  ImGui::PopID();
  track_item(path + "/wipe", fmt::format("{:.2f}", wipe));
  if (ImGui::IsItemActive()) {
    const auto place = static_cast<double>((ImGui::GetIO().MousePos.x - min.x) / width);
    wipe = std::clamp(place, 0.0, 1.0);
  }
  if (ImGui::IsItemHovered() || ImGui::IsItemActive()) {
    ImGui::SetMouseCursor(ImGuiMouseCursor_ResizeEW);
    ImGui::GetWindowDrawList()->AddLine({x, min.y}, {x, max.y}, frame.theme.accent,
                                        2.0f * frame.scale);
  }
}

void draw_chart(Shown& shown, SpectrumChart chart, ImVec2 min, ImVec2 max) {
  const Frame& frame = shown.frame;
  const std::vector<Ridge>& ridges = shown.rows.ridges(chart);
  const std::string name = spectrum_chart_name(chart), path = "spectrum/" + name;
  const bool slides = chart == SpectrumChart::gradients && has_loss_scale(frame) &&
                      lens_of(frame.view).scale == LensScale::none;
  const double shift = slides ? frame.view.scale_shift : 0.0;
  ExponentWindow window = exponent_window(shown.rows.format());
  window = {window.flush - shift, window.normal - shift, window.overflow - shift};
  SpectrumPlot plot{
      .min = min,
      .max = max,
      .scale = shown.scale,
      .range = shown.rows.range(chart),
      .window = window,
      .window_shift = shift,
      .format = shown.rows.format(),
      .ridges = &ridges,
      .reference = &shown.rows.reference(chart),
      .reference_shift = chart == SpectrumChart::gradients ? reference_shift(frame) : 0.0,
      .lit = shown.lit,
      .selected = shown.selected};
  Canvas canvas(frame.picture);
  if (frame.picture == nullptr) {
    drag_wipe(frame, path, min, max);
    ImGui::SetCursorScreenPos(min);
    ImGui::PushID(path.c_str());
    const bool pressed = ImGui::InvisibleButton("##chart", {max.x - min.x, max.y - min.y});
    ImGui::PopID();
    track_item(path, fmt::format("{:g}", shift));
    take_wheel();
    if (slides) slide(shown, plot, path);
    if (ImGui::IsItemHovered()) {
      const int row = shown.scale.row_at(ImGui::GetIO().MousePos.y);
      if (row >= 0 && row < static_cast<int>(ridges.size())) {
        const LayerRow& layers = shown.rows.rows()[static_cast<size_t>(row)];
        if (!layers.folded) frame.view.hovered_layer = layers.name;
        plot.lit = row;
        const bool dragged =
            ImGui::IsMouseDragging(0) || std::fabs(ImGui::GetMouseDragDelta(0).x) > 0.0f;
        if (pressed && !dragged) use_row(shown, ridges, row);
        if (ImGui::IsMouseDoubleClicked(0) && !layers.folded) {
          frame.view.screen = Screen::details;
        }
        if (!ImGui::IsItemActive()) show_row_tip(shown, ridges, chart, row);
      }
      const float wheel = ImGui::GetIO().MouseWheel;
      if (wheel != 0.0f) frame.view.spectrum_scroll -= 3.0 * static_cast<double>(wheel);
    }
  }
  if (frame.picture == nullptr) offer_folding(shown, path, plot.lit);
  canvas.begin_group("spectrum/" + name);
  const float split = min.x + static_cast<float>(frame.view.wipe) * (max.x - min.x);
  const std::vector<Ridge>& fixed = shown.rows.fixed(chart);
  const bool wiped = frame.view.wipe < 1.0 && !fixed.empty();
  const auto draw_side = [&](SpectrumPlot side, float from, float to) {
    side.shown_from = from;
    side.shown_to = to;
    // Labels are above and below the chart.
    canvas.push_clip({from, min.y - 30.0f * frame.scale}, {to, max.y + 30.0f * frame.scale});
    draw_window(canvas, side, frame.theme, frame.fonts, frame.scale);
    draw_ridges(canvas, side, frame.theme, frame.scale);
    canvas.pop_clip();
  };
  const float outside = 30.0f * frame.scale;
  if (wiped) {
    draw_side(plot, min.x - outside, split);
    SpectrumPlot after = plot;
    after.ridges = &fixed;
    after.window = exponent_window(shown.rows.fixed_format());
    after.window_shift = 0.0;
    after.format = shown.rows.fixed_format();
    draw_side(after, split, max.x + outside);
    canvas.line({split, min.y}, {split, max.y}, frame.theme.cursor, 2.0f * frame.scale);
  } else {
    draw_side(plot, min.x - outside, max.x + outside);
  }
  if (!shown.rows.spectrum().any(chart)) {
    const std::string text = "Nothing was recorded here in these steps.";
    const ImVec2 size = text_size(*frame.fonts.text, text);
    canvas.text(*frame.fonts.text, {(min.x + max.x - size.x) / 2, (min.y + max.y - size.y) / 2},
                frame.theme.soft, text);
  }
  draw_losses(canvas, shown, wiped ? fixed : ridges, plot);
  canvas.end_group();
}

}  // namespace

Lens lens_of(const ViewState& view) { return parse_lens(view.window).value_or(Lens{}); }

bool has_loss_scale(const Frame& frame) {
  const std::vector<SiteInfo>& sites = frame.lane_info().sites;
  return std::any_of(sites.begin(), sites.end(), [&](const SiteInfo& site) {
    return loss_scale_reaches(frame.run.view().info(), site);
  });
}

std::vector<SpectrumChart> recorded_charts(const Frame& frame) {
  const std::vector<SiteInfo>& sites = frame.lane_info().sites;
  std::vector<SpectrumChart> charts;
  for (const SpectrumChart chart : kAllSpectrumCharts) {
    const bool recorded = std::any_of(sites.begin(), sites.end(), [chart](const SiteInfo& site) {
      return chart_of(site.role) == chart;
    });
    if (recorded) charts.push_back(chart);
  }
  return charts;
}

std::vector<SpectrumChart> shown_charts(const Frame& frame) {
  const std::vector<SpectrumChart> recorded = recorded_charts(frame);
  const std::vector<SpectrumChart>& wanted = frame.view.charts;
  std::vector<SpectrumChart> charts;
  std::copy_if(recorded.begin(), recorded.end(), std::back_inserter(charts), [&](auto chart) {
    return std::find(wanted.begin(), wanted.end(), chart) != wanted.end();
  });
  if (charts.empty() && !recorded.empty()) charts.push_back(recorded.front());
  return charts;
}

FixedLane fixed_lane(const Frame& frame) {
  if (frame.baseline != nullptr && frame.baseline->lane_count() > 0) {
    const int lane = frame.baseline->first_lane();
    return {frame.baseline, lane, frame.baseline->view().lane(lane).name, true};
  }
  if (frame.run.report() == nullptr) return {};
  const std::vector<int> siblings = healthy_siblings(*frame.run.report(), frame.at.lane);
  if (siblings.empty()) return {};
  return {&frame.run, siblings[0], frame.run.view().lane(siblings[0]).name};
}

double reference_shift(const Frame& frame) {
  const int reference = frame.run.reference_of(frame.at.lane);
  if (reference < 0) return 0.0;
  const RunView& run = frame.run.view();
  const LossScale own = loss_scale_of(run, frame.at.lane, frame.at.step, frame.at.step);
  const LossScale other = loss_scale_of(run, reference, frame.at.step, frame.at.step);
  return own.known && other.known ? own.log2 - other.log2 : 0.0;
}

void open_group(ViewState& view, const std::string& group) {
  std::erase(view.closed, group);
  view.opened.push_back(group);
}

double within_slide(double shift) noexcept {
  return std::clamp(shift, -kFarthestShift, kFarthestShift);
}

void fold_selected(const Frame& frame) {
  const SpectrumRows& rows = spectrum_rows(frame);
  const int row = row_of(rows.rows(), rows.spectrum(), frame.view.layer);
  if (row < 0) return;
  const LayerRow& here = rows.rows()[static_cast<size_t>(row)];
  here.folded ? open_group(frame.view, here.name) : fold_around(frame.view, here);
}

void fold_group(ViewState& view, const std::string& group) {
  std::erase(view.opened, group);
  view.closed.push_back(group);
}

void fold_around(ViewState& view, const LayerRow& row) {
  if (!row.groups.empty()) fold_group(view, row.groups.back());
}

SpectrumRows& spectrum_rows(const Frame& frame) {
  SpectrumState& state = frame.caches.get<SpectrumState>();
  const int reference = frame.run.reference_of(frame.at.lane);
  const FixedLane fixed = fixed_lane(frame);
  const bool slides = lens_of(frame.view).scale == LensScale::none;
  const std::vector<SpectrumChart> charts = shown_charts(frame);
  SpectrumRequest request{
      .steps = steps_of(frame, frame.run, frame.at.lane),
      .reference = reference < 0 ? LaneSteps{} : steps_of(frame, frame.run, reference),
      .fixed = fixed.run == nullptr || frame.view.wipe >= 1.0
                   ? LaneSteps{}
                   : steps_of(frame, *fixed.run, fixed.lane),
      .layers = layers_of(frame, charts),
      .charts = charts,
      .lens = lens_of(frame.view),
      .shift = slides ? frame.view.scale_shift : 0.0,
      .most_rows = state.most_rows,
      .opened = frame.view.opened,
      .closed = frame.view.closed};
  if (!request.steps.run) {
    request.steps = {.run = frame.run.shared_view(), .lane = frame.at.lane};
  }
  state.rows.update(request);
  return state.rows;
}

void draw_spectrum(const Frame& frame) {
  SpectrumState& state = frame.caches.get<SpectrumState>();
  const float unit = frame.scale;
  const ImVec2 at = ImGui::GetCursorScreenPos(), room = ImGui::GetContentRegionAvail();
  const float line = text_size(*frame.fonts.small, "0").y;
  const float head = text_size(*frame.fonts.bold, "0").y + 6.0f * unit + line + 4.0f * unit;
  const float top = at.y + head, bottom = at.y + room.y - line - 8.0f * unit;
  const float height = std::max(bottom - top, 40.0f * unit);
  const float least = (frame.picture != nullptr ? kPicturePitch : kLeastPitch) * unit;
  const float peak = std::clamp(height * 0.14f, 24.0f * unit, 64.0f * unit);
  state.most_rows = static_cast<size_t>(std::max(1.0f, (height - peak) / least) + 1);
  Shown shown{.frame = frame, .rows = spectrum_rows(frame)};
  const std::vector<LayerRow>& rows = shown.rows.rows();
  const auto count = static_cast<double>(std::max<size_t>(rows.size(), 1));
  const float fitting = (height - peak) / static_cast<float>(std::max(count - 1.0, 1.0));
  const float pitch = std::clamp(fitting, least, kMostPitch * unit);
  const double visible = 1.0 + static_cast<double>((height - peak) / pitch);
  double& scroll = frame.view.spectrum_scroll;
  scroll = std::clamp(scroll, 0.0, std::max(0.0, count - std::floor(visible)));
  shown.scale = {.top = top, .pitch = pitch, .height = peak, .scroll = scroll};
  shown.lit = row_of(rows, shown.rows.spectrum(), frame.view.lit_layer);
  shown.selected =
      frame.picture != nullptr ? -1 : row_of(rows, shown.rows.spectrum(), frame.view.layer);
  for (const LayerRow& row : rows) {
    std::optional<Severity> worst;
    for (const int index : row.layers) {
      const LayerModel* layer = layer_at(shown, index);
      if (layer != nullptr && layer->severity && (!worst || *worst < *layer->severity))
        worst = layer->severity;
    }
    shown.severity.push_back(worst);
  }
  const std::vector<SpectrumChart> charts = shown_charts(frame);
  const auto chart_count = static_cast<float>(std::max<size_t>(charts.size(), 1));
  const float names = std::min(kNameColumn * unit, room.x * 0.16f), losses = kLossColumn * unit;
  const float width = (room.x - names - 8.0f * unit) / chart_count - losses;
  Canvas canvas(frame.picture);
  draw_names(canvas, shown, at.x, at.x + names, top, bottom);
  float left = at.x + names + 8.0f * unit;
  for (const SpectrumChart chart : charts) {
    const float right = left + std::max(width, 60.0f * unit);
    draw_title(canvas, shown, chart, {left, at.y}, right);
    draw_chart(shown, chart, {left, top}, {right, bottom});
    left = right + losses;
  }
  if (visible + 0.5 < count && frame.picture == nullptr) {
    const std::string text =
        fmt::format("rows {} to {} of {}", static_cast<int64_t>(scroll) + 1,
                    static_cast<int64_t>(std::min(count, scroll + std::floor(visible))),
                    static_cast<int64_t>(count));
    canvas.text(*frame.fonts.small, {at.x, at.y + 2.0f * unit}, frame.theme.soft, text);
  }
  ImGui::SetCursorScreenPos({at.x, at.y + room.y});
  ImGui::Dummy({room.x, 0});
}

}  // namespace halfscope::gui
