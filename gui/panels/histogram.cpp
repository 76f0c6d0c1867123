// SPDX-License-Identifier: MIT
// The exponents of the selected tensor and the ranges of formats, with the effect of another loss
// scale or format. Dragging the bars changes the scale.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "analysis/rules/text.h"
#include "analysis/run_rates.h"
#include "core/number_text.h"
#include "gui/data/loss_scale.h"
#include "gui/panels/histogram_plot.h"
#include "gui/panels/step_plot.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr double kMostShift = 32.0;

/// All values of the panel, computed before it draws.
struct Shown {
  const Frame& frame;
  const SiteInfo& site;
  TensorStats stats;
  TensorStats other{};
  bool has_other = false;
  double other_shift = 0.0;  ///< brings the other lane to this one's loss scale
  FloatFormat lens;
  /// The candidates, the tensor's own format and the lens; only its own if a plan cannot change it.
  std::vector<FloatFormat> formats{};
  bool scaled = false;  ///< with the loss, so that a setting can move its values
  LossScale scale{};

  double shift() const { return scaled ? frame.view.scale_shift : 0.0; }
  WhatIf now(const FloatFormat& format) const { return what_if(stats, site.format, format, 0.0); }
  WhatIf then(const FloatFormat& format) const {
    return what_if(stats, site.format, format, shift());
  }
};

/// Returns the shift within the slider's range; an integer unless Alt is held.
double snapped(double shift) {
  const double limited = std::clamp(shift, -kMostShift, kMostShift);
  return ImGui::GetIO().KeyAlt ? limited : std::round(limited);
}

/// "step 12", "steps 10 to 19", "whole run".
std::string when_text(const Frame& frame) {
  if (frame.view.whole_run) return "whole run";
  if (frame.at.column < 0) return steps_text(frame.at.step, frame.at.step);
  const Column& column = frame.run.columns()[static_cast<size_t>(frame.at.column)];
  return steps_text(column.step, column.last());
}

void draw_header(const Frame& frame, const SiteInfo& site) {
  const std::string when = when_text(frame);
  const std::string rest = " \u00b7 " + site.tensor + " \u00b7 " + when;
  const float room = ImGui::GetContentRegionAvail().x;
  const float rest_width = text_width(frame.fonts.text, rest);
  const std::string path =
      fitted(site.path, frame.fonts.bold, std::max(room - rest_width, 40.0f * frame.scale));
  ImGui::PushFont(frame.fonts.bold);
  ImGui::TextUnformatted(path.c_str());
  ImGui::PopFont();
  track_item("values/title", site.path + rest);
  ImGui::SameLine(0.0f, 0.0f);
  label("values/title/rest", rest, frame.fonts.text, frame.theme.soft);
}

void draw_controls(const Frame& frame, const SiteInfo& site) {
  ViewState& view = frame.view;
  ImGui::AlignTextToFramePadding();
  const bool settable = plan_sets_format(frame.lane_info(), site);
  label("values/lens/label", settable ? "Format" : "Format " + format_name(site.format),
        frame.fonts.text, frame.theme.soft);
  if (!settable) ui::tip("A plan cannot change the format of this tensor.");
  ImGui::SameLine();
  const std::string own = format_name(site.format) + " (its own)";
  const float rest = text_width(frame.fonts.text, "whole runlog") +
                     2 * (ImGui::GetFrameHeight() + 6.0f * frame.scale) + 24.0f * frame.scale;
  const float width = std::clamp(ImGui::GetContentRegionAvail().x - rest, 84.0f * frame.scale,
                                 150.0f * frame.scale);
  if (settable) format_combo("values/lens", &view.lens, own.c_str(), width, frame.theme);
  const auto box_width = [&](const char* text) {
    return text_width(frame.fonts.text, text) + ImGui::GetFrameHeight() +
           ImGui::GetStyle().ItemInnerSpacing.x;
  };
  flow(box_width("whole run"), ImGui::GetStyle().ItemSpacing.x);
  ui::checkbox("values/whole", "whole run", &view.whole_run);
  ui::tip("Merges all recorded steps instead of showing the step at the cursor.");
  flow(box_width("log"), ImGui::GetStyle().ItemSpacing.x);
  ui::checkbox("values/log", "log", &view.log_counts);
  ui::tip("Uses a logarithmic axis for counts, which makes thin tails visible.");
  const std::string problem = view.lens.empty() || !settable ? "" : format_problem(view.lens);
  if (!problem.empty()) {
    ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.bad);
    ui::text_wrapped("values/lens/problem/line", problem);
    ImGui::PopStyleColor();
  }
}

void draw_bands(const Shown& shown, const ExponentAxis& axis, float left) {
  const Frame& frame = shown.frame;
  Canvas canvas(frame.picture);
  const float height = std::round(font_size(*frame.fonts.small) + 3.0f * frame.scale);
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, {0, 0});
  for (const FloatFormat& format : shown.formats) {
    const std::string name = format_name(format);
    const ImVec2 at = ImGui::GetCursorScreenPos();
    ImGui::PushID(name.c_str());
    if (ImGui::InvisibleButton("##band", {axis.right - left, height})) {
      frame.view.lens = format == shown.site.format ? "" : name;
    }
    ImGui::PopID();
    track_item("values/band/" + name, format_facts(format));
    const bool active = format == shown.lens;
    const ImVec2 max{axis.right, at.y + height};
    if (ImGui::IsItemHovered()) {
      canvas.fill(at, max, with_alpha(frame.theme.ink, 0.06f), 3.0f * frame.scale);
      ui::tip((format_facts(format) + ".\nClick to see the tensor in this format.").c_str());
    }
    ImFont* font = frame.fonts.small;
    const std::string cut = fitted(name, font, axis.left - left - 6.0f * frame.scale);
    canvas.text(*font, {at.x, at.y + (height - font_size(*font)) / 2},
                active ? frame.theme.ink : frame.theme.soft, cut);
    draw_band(canvas, axis, {axis.left, at.y}, max, format, active, frame.theme);
  }
  ImGui::PopStyleVar();
  ImGui::Dummy({0, std::round(2.0f * frame.scale)});
}

/// Draws the context menu: the counts as text or picture.
void offer_data(const Shown& shown, bool hovered) {
  ImGui::PushID("values/bars/menu");
  if (hovered && ImGui::IsMouseReleased(ImGuiMouseButton_Right)) ImGui::OpenPopup("##menu");
  if (ImGui::BeginPopup("##menu")) {
    const PlotAction action = draw_data_menu("values/bars");
    if (action != PlotAction::none) {
      PlotTable table("exponent");
      const auto add = [&table](const std::string& name, const TensorStats& stats) {
        table.add(name, kExponentBins, [&stats](size_t bin) {
          const int64_t count = stats.exponents[bin];
          return PlotPoint{static_cast<double>(bin) + kMinExponentBin, static_cast<double>(count)};
        });
      };
      const Frame& frame = shown.frame;
      add("count " + frame.lane_info().name, shown.stats);
      if (shown.has_other) {
        add("count " + frame.run.view().lane(frame.at.other_lane).name, shown.other);
      }
      hand_out(frame, action, table, "histogram", PanelPicture::histogram);
    }
    ImGui::EndPopup();
  }
  ImGui::PopID();
}

/// Draws the bars; dragging them changes the scale.
void draw_plot(const Shown& shown, const ExponentAxis& axis, float left, float height) {
  const Frame& frame = shown.frame;
  const float below = font_size(*frame.fonts.small) + 6.0f * frame.scale;
  const ImVec2 corner = ImGui::GetCursorScreenPos();
  const ImVec2 min{axis.left, corner.y}, max{axis.right, corner.y + height};
  ImGui::SetCursorScreenPos(min);
  ImGui::PushID("values/bars");
  ImGui::InvisibleButton("##bars", {max.x - min.x, height});
  ImGuiStorage& storage = *ImGui::GetStateStorage();
  const ImGuiID start = ImGui::GetID("start");
  ImGui::PopID();
  const bool hovered = ImGui::IsItemHovered(), active = ImGui::IsItemActive();
  track_item("values/bars", fmt::format("{:g}", shown.shift()));
  if (ImGui::IsItemActivated()) storage.SetFloat(start, static_cast<float>(shown.shift()));
  if (shown.scaled && active && ImGui::IsMouseDragging(0)) {
    const double moved = static_cast<double>(ImGui::GetMouseDragDelta(0).x);
    frame.view.scale_shift =
        snapped(static_cast<double>(storage.GetFloat(start)) + moved / axis.pixels_per_power());
  }
  if (hovered && ImGui::IsMouseDoubleClicked(0)) frame.view.scale_shift = 0.0;
  if (shown.scaled && (hovered || active)) ImGui::SetMouseCursor(ImGuiMouseCursor_ResizeEW);

  const HistogramPlot plot{
      .stats = shown.stats,
      .other = shown.has_other ? &shown.other : nullptr,
      .other_color = frame.theme.lines[static_cast<size_t>(std::max(frame.at.other_lane, 0)) %
                                       frame.theme.lines.size()],
      .other_shift = shown.other_shift,
      .lens = shown.lens,
      .shift = shown.shift(),
      .log_counts = frame.view.log_counts};
  Canvas canvas(frame.picture);
  draw_bars(canvas, axis, min, max, plot, frame.theme, frame.fonts, frame.scale);
  if (hovered && !active) {
    const double exponent = axis.low + static_cast<double>(ImGui::GetIO().MousePos.x - axis.left) /
                                           axis.pixels_per_power();
    const std::string text = bin_text(plot, exponent);
    const char* drag =
        shown.scaled ? "\n\nDrag to try another loss scale (hold Alt for any value)." : "";
    if (!text.empty()) ui::tip((text + drag).c_str());
  }
  offer_data(shown, hovered);
  const int64_t exponents = shown.stats.n - shown.stats.zero - shown.stats.non_finite();
  if (exponents <= 0) {
    const std::string text = shown.stats.non_finite() > 0
                                 ? "No finite non-zero values: nothing to show."
                                 : "All values are zero: nothing to show.";
    const std::string cut = fitted(text, frame.fonts.text, max.x - min.x - 8.0f * frame.scale);
    const float width = text_width(frame.fonts.text, cut);
    canvas.text(*frame.fonts.text, {(min.x + max.x - width) / 2, (min.y + max.y) / 2},
                frame.theme.soft, cut);
    track_rect("values/nothing", min, max, text);
  }
  ImGui::SetCursorScreenPos({left, max.y + below});
  ImGui::Dummy({0, 0});
}

std::string scale_text_of(const Shown& shown) {
  const double shift = shown.shift();
  const char* to = arrow(shown.frame.fonts);
  if (!shown.scaled) {
    if (shown.frame.run.view().info().inference) return "Inference has no loss scale.";
    return fmt::format("The loss scale does not affect {}.", unscaled_kind(shown.site));
  }
  if (!shown.scale.known) {
    return shift == 0.0 ? "all values as recorded"
                        : fmt::format("all values times {} (what-if)", power_text(shift));
  }
  if (shown.scale.varies) {
    return shift == 0.0 ? "loss scales as recorded"
                        : fmt::format("all loss scales times {} (what-if)", power_text(shift));
  }
  const std::string recorded = power_text(shown.scale.log2);
  if (shift == 0.0) return fmt::format("loss scale {} as recorded", recorded);
  return fmt::format("loss scale {} {} {} (what-if)", recorded, to,
                     power_text(shown.scale.log2 + shift));
}

/// Returns the loss scale for the plan; empty if no single one affects the tensor.
std::optional<double> scale_to_use(const Shown& shown) {
  if (!shown.scaled || !shown.scale.known || shown.scale.varies) return std::nullopt;
  return std::exp2(shown.scale.log2 + shown.shift());
}

/// Draws the scale, and the button that puts it into the plan.
void draw_scale_text(const Shown& shown) {
  const Frame& frame = shown.frame;
  const std::optional<double> scale = scale_to_use(shown);
  const bool is_used = scale && frame.view.edits.loss_scale() == scale;
  const char* name = is_used ? "in the plan" : "use in plan";
  const float button = text_width(frame.fonts.text, name) + 2 * ImGui::GetStyle().FramePadding.x;
  const float gap = 8.0f * frame.scale;
  const float right = ImGui::GetCursorPosX() + ImGui::GetContentRegionAvail().x;
  const float room = ImGui::GetContentRegionAvail().x - (scale ? button + gap : 0.0f);
  if (scale) ImGui::AlignTextToFramePadding();
  label("values/scale/text", scale_text_of(shown), scale ? frame.fonts.text : frame.fonts.small,
        shown.shift() == 0.0 ? frame.theme.soft : frame.theme.ink, room);
  if (!scale) return;
  ImGui::SameLine(right - button);
  ImGui::BeginDisabled(is_used);
  if (ui::button("values/use", name)) frame.view.edits.set_loss_scale(scale);
  ImGui::EndDisabled();
  ui::tip(("Sets the edited plan's static loss scale to " + power_text(std::log2(*scale)) +
           ". You can then try or save the plan.")
              .c_str());
}

void draw_scale(const Shown& shown) {
  const Frame& frame = shown.frame;
  ViewState& view = frame.view;
  draw_scale_text(shown);
  if (!shown.scaled) return;
  const float buttons = text_width(frame.fonts.text, "fitreset") + 32.0f * frame.scale;
  const float width = ImGui::GetContentRegionAvail().x - buttons - 12.0f * frame.scale;
  double shift = view.scale_shift;
  if (ui::slider("values/scale", &shift, -kMostShift, kMostShift, "", width)) {
    view.scale_shift = snapped(shift);
  }
  ui::tip(
      "Gradients grow and shrink with the loss scale. Drag to find one that suits this tensor. "
      "Hold Alt for values between powers of two.");
  ImGui::SameLine();
  if (ui::button("values/fit", "fit")) {
    view.scale_shift =
        fitting_shift(shown.stats, shown.site.format, shown.lens, static_cast<int>(kMostShift));
  }
  ui::tip(
      "Finds the loss scale at which this tensor loses the least: no overflow if possible, then "
      "the least underflow. Takes the middle of equally good scales.");
  ImGui::SameLine(0, 4.0f * frame.scale);
  ImGui::BeginDisabled(view.scale_shift == 0.0);
  if (ui::button("values/reset", "reset")) view.scale_shift = 0.0;
  ImGui::EndDisabled();
}

/// A rate under a format and a scale: bounds, and the number of values they refer to.
struct TileRate {
  const char* name;
  CountBounds now, then;
  int64_t whole;
  const char* of;  ///< the denominator in words
  double run;      ///< the recorded rate over the whole run
  const char* meaning;
};

/// Draws "underflow", below it "20.9% -> 3.1%" in the largest font that fits, and its denominator.
void draw_tile(const Shown& shown, const TileRate& rate, const WhatIf& after, float width) {
  const auto& [name, now, then, whole, of, run, meaning] = rate;
  const Frame& frame = shown.frame;
  const bool changed = shown.shift() != 0.0;
  const std::string text =
      change_text(share_text(now, whole), share_text(then, whole), changed, frame.fonts);
  const bool estimate = !after.recorded;
  ImGui::BeginGroup();
  label(fmt::format("values/{}/label", name), std::string(name) + (estimate ? ", estimate" : ""),
        frame.fonts.small, frame.theme.soft, width);
  ImFont* font = frame.fonts.bold;
  if (text_width(font, text) > width) font = frame.fonts.text;
  if (text_width(font, text) > width) font = frame.fonts.small;
  const bool worse = changed ? then.low > now.high : then.low > 0;
  const bool better = changed && then.high < now.low;
  ImU32 color = frame.theme.ink;
  if (better) color = frame.theme.good;
  if (worse) color = frame.theme.lost;
  ImGui::PushFont(font);
  ImGui::PushStyleColor(ImGuiCol_Text, color);
  ImGui::TextUnformatted(fitted(text, font, width).c_str());
  ImGui::PopStyleColor();
  ImGui::PopFont();
  track_item(fmt::format("values/{}", name), std::string(name) + " " + text);
  // Reports and verdicts give the whole run's number, so show it next to the step's.
  std::string below = of;
  if (!estimate && !changed && !frame.view.whole_run) {
    below = fmt::format("{} (whole run: {})", of, percent(run));
    if (text_width(frame.fonts.small, below) > width) {
      below = fmt::format("{} (run: {})", of, percent(run));
    }
  }
  label(fmt::format("values/{}/of", name), below, frame.fonts.small, frame.theme.soft, width);
  ImGui::EndGroup();
  std::string tip = meaning;
  if (estimate) {
    tip +=
        "\n\nEstimated from the histogram, with rounding to nearest even. A range means that a "
        "limit of the format falls inside a bar. Rounding in earlier layers is not undone.";
    if (after.ties > 0) {
      tip += fmt::format(
          " Up to {} values may be exactly at the limit and become 0. They are counted as kept.",
          grouped(after.ties));
    }
  }
  ui::tip(tip.c_str());
}

void draw_outcome(const Shown& shown) {
  const Frame& frame = shown.frame;
  const WhatIf before = shown.now(shown.lens), after = shown.then(shown.lens);
  const float left = ImGui::GetCursorPosX();
  const float gap = 12.0f * frame.scale;
  const float room = ImGui::GetContentRegionAvail().x - gap;
  const float width = std::floor(room * 0.54f);  // "of non-zero values" is the longer one
  const Rates run = run_rates(frame.run.view(), frame.at.lane, shown.site.order);
  draw_tile(shown,
            {"underflow", before.underflow, after.underflow, after.non_zero, kOfNonZeroValues,
             run.underflow, "Share of the non-zero values that become 0 in this format."},
            after, width);
  ImGui::SameLine(left + width + gap);
  draw_tile(shown,
            {"overflow", before.overflow, after.overflow, after.n, kOfAllValues, run.overflow,
             "Share of all values that are finite but too large for this format."},
            after, room - width);
}

std::string counts_text(const Shown& shown) {
  const Rates rates = rates_of(shown.stats, shown.site.format);
  const auto share = [](double rate) { return rate == 0.0 ? std::string("no") : percent(rate); };
  return fmt::format("{} values \u00b7 {} zeros \u00b7 after rounding: {} Inf, {} NaN",
                     grouped(shown.stats.n), share(rates.zero), share(rates.infinite),
                     share(rates.nan));
}

/// Returns the legend of the lines; "" without lines.
std::string key_text(const Shown& shown) {
  std::string key = shown.shift() != 0.0 ? "Grey line: as recorded." : "";
  if (shown.has_other) {
    if (!key.empty()) key += " ";
    key += "Coloured line: lane " + shown.frame.run.view().lane(shown.frame.at.other_lane).name;
    key += shown.other_shift != 0.0 ? " at this lane's loss scale." : ".";
  }
  return key;
}

void draw_counts(const Shown& shown) {
  const Frame& frame = shown.frame;
  const bool broken = rates_of(shown.stats, shown.site.format).non_finite() > 0.0;
  label("values/counts", counts_text(shown), frame.fonts.small,
        broken ? frame.theme.bad : frame.theme.soft);
  const std::string key = key_text(shown);
  if (!key.empty()) label("values/key", key, frame.fonts.small, frame.theme.soft);
}

void draw_table(const Shown& shown) {
  const Frame& frame = shown.frame;
  ImGui::PushFont(frame.fonts.small);
  ImGui::PushStyleVar(ImGuiStyleVar_CellPadding, {6.0f * frame.scale, 2.0f * frame.scale});
  constexpr ImGuiTableFlags kFlags = ImGuiTableFlags_RowBg | ImGuiTableFlags_SizingStretchProp |
                                     ImGuiTableFlags_NoSavedSettings |
                                     ImGuiTableFlags_BordersInnerH;
  if (ImGui::BeginTable("values/formats", 3, kFlags)) {
    ImGui::TableSetupColumn("format", ImGuiTableColumnFlags_WidthFixed, 66.0f * frame.scale);
    ImGui::TableSetupColumn("underflow, of non-zero", ImGuiTableColumnFlags_WidthStretch, 1.0f);
    ImGui::TableSetupColumn("overflow, of all", ImGuiTableColumnFlags_WidthStretch, 1.0f);
    ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.soft);
    ImGui::TableHeadersRow();
    ImGui::PopStyleColor();
    for (const FloatFormat& format : shown.formats) {
      const std::string name = format_name(format);
      const WhatIf before = shown.now(format), after = shown.then(format);
      ImGui::TableNextRow();
      ImGui::TableNextColumn();
      if (ui::selectable("values/table/" + name, name.c_str(), format == shown.lens, {0, 0},
                         ImGuiSelectableFlags_SpanAllColumns)) {
        frame.view.lens = format == shown.site.format ? "" : name;
      }
      const auto cell = [&](const char* which, const CountBounds& now, const CountBounds& then,
                            int64_t whole) {
        ImGui::TableNextColumn();
        const std::string text = change_text(share_text(now, whole), share_text(then, whole),
                                             shown.shift() != 0.0, frame.fonts);
        label(fmt::format("values/table/{}/{}", name, which), text, frame.fonts.small,
              then.low > 0 ? frame.theme.ink : frame.theme.soft);
      };
      cell("underflow", before.underflow, after.underflow, after.non_zero);
      cell("overflow", before.overflow, after.overflow, after.n);
    }
    ImGui::EndTable();
  }
  ImGui::PopStyleVar();
  ImGui::PopFont();
}

std::vector<FloatFormat> formats_to_show(const FloatFormat& own, const FloatFormat& lens) {
  std::vector<FloatFormat> formats;
  for (const NamedFormat& each : named_formats()) {
    if (each.compared) formats.push_back(each.format);
  }
  for (const FloatFormat& format : {own, lens}) {
    if (std::find(formats.begin(), formats.end(), format) == formats.end()) {
      formats.push_back(format);
    }
  }
  return formats;
}

std::optional<TensorStats> stats_at(const Frame& frame, int lane, int site) {
  if (!frame.view.whole_run) return frame.run.stats(lane, site, frame.at.column);
  const TensorStats& total = frame.run.view().total(lane, site);
  return total.n > 0 ? std::optional(total) : std::nullopt;
}

/// Returns the height of the bars, which leaves room for the distances below them.
float bars_height(const Frame& frame) {
  const float least = 72.0f * frame.scale, usual = 128.0f * frame.scale;
  ValuesRoom& room = frame.caches.get<ValuesRoom>();
  const float left = ImGui::GetWindowHeight() - ImGui::GetStyle().WindowPadding.y - room.others;
  // Add a few pixels rather than show the upper edge of the next line.
  const bool sliver = left > usual && left < usual + ImGui::GetTextLineHeightWithSpacing();
  room.bars = std::round(usual);
  const bool fits = left >= least && (left < usual || sliver);
  if (room.others > 0.0f && fits) room.bars = std::floor(left);
  return room.bars;
}

/// Keeps the axis fixed while the bars are dragged, so that the pointer stays on its bar.
ExponentAxis steady_axis(const Shown& shown) {
  ImGuiStorage& storage = *ImGui::GetStateStorage();
  const ImGuiID low = ImGui::GetID("values/axis/low"), high = ImGui::GetID("values/axis/high");
  ExponentAxis axis = fit_exponents(shown.stats, shown.shift());
  if (ImGui::IsMouseDown(0) && storage.GetFloat(high) > storage.GetFloat(low)) {
    axis.low = static_cast<double>(storage.GetFloat(low));
    axis.high = static_cast<double>(storage.GetFloat(high));
  }
  storage.SetFloat(low, static_cast<float>(axis.low));
  storage.SetFloat(high, static_cast<float>(axis.high));
  return axis;
}

/// Computes everything except the axis, which depends on the mouse.
Shown shown_of(const Frame& frame, const SiteInfo& site, const TensorStats& stats) {
  Shown shown{.frame = frame, .site = site, .stats = stats, .lens = site.format};
  if (plan_sets_format(frame.lane_info(), site)) {
    shown.lens = parse_format(frame.view.lens).value_or(site.format);
    shown.formats = formats_to_show(site.format, shown.lens);
  } else {
    shown.formats = {site.format};
  }
  shown.scaled = loss_scale_reaches(frame.run.view().info(), site);
  int64_t first = 0, last = frame.run.step_count();
  if (!frame.view.whole_run) {
    const Column& column = frame.run.columns()[static_cast<size_t>(frame.at.column)];
    first = column.step;
    last = column.last();
  }
  shown.scale = loss_scale_of(frame.run.view(), frame.at.lane, first, last);
  if (frame.at.other_lane >= 0 && frame.at.other_lane != frame.at.lane) {
    const std::optional<int> other = frame.run.view().find_site(frame.at.other_lane, site.name());
    const std::optional<TensorStats> found =
        other ? stats_at(frame, frame.at.other_lane, *other) : std::nullopt;
    shown.has_other = found.has_value();
    if (found) shown.other = *found;
    const LossScale theirs = loss_scale_of(frame.run.view(), frame.at.other_lane, first, last);
    if (shown.scaled && shown.scale.known && theirs.known) {
      shown.other_shift = shown.scale.log2 - theirs.log2;
    }
  }
  return shown;
}

}  // namespace

void draw_histogram(const Frame& frame) {
  const SiteInfo* site = frame.site_info();
  if (site == nullptr) {
    empty_note("values/empty",
               frame.at.lane < 0 || frame.lane_info().sites.empty()
                   ? "This run recorded no tensors."
                   : "Select a layer to see the exponents of its values.",
               frame.theme);
    return;
  }
  draw_header(frame, *site);
  draw_controls(frame, *site);
  const std::optional<TensorStats> stats = stats_at(frame, frame.at.lane, frame.at.site);
  if (!stats) {
    empty_note("values/empty",
               frame.view.whole_run
                   ? "This tensor was not recorded in the whole run."
                   : "This tensor was not recorded at this step (updates are not, if the step was "
                     "skipped). Move the cursor, or show the whole run.",
               frame.theme);
    return;
  }
  const Shown shown = shown_of(frame, *site, *stats);
  const float left = ImGui::GetCursorScreenPos().x;
  ExponentAxis axis = steady_axis(shown);
  axis.left = left + std::round(52.0f * frame.scale);
  axis.right = left + std::max(ImGui::GetContentRegionAvail().x, 120.0f * frame.scale);
  draw_bands(shown, axis, left);
  draw_plot(shown, axis, left, bars_height(frame));
  draw_counts(shown);
  draw_scale(shown);
  draw_outcome(shown);
  draw_table(shown);
}

bool picture_histogram(const Frame& frame) {
  const SiteInfo* site = frame.site_info();
  const std::optional<TensorStats> stats =
      site == nullptr ? std::nullopt : stats_at(frame, frame.at.lane, frame.at.site);
  if (!stats) return false;
  const Shown shown = shown_of(frame, *site, *stats);
  picture_text(frame,
               fmt::format("{}, {}, {}", site->name(), frame.lane_info().name, when_text(frame)),
               true);
  const float left = ImGui::GetCursorScreenPos().x;
  ExponentAxis axis = fit_exponents(shown.stats, shown.shift());
  axis.left = left + std::round(52.0f * frame.scale);
  axis.right = left + ImGui::GetContentRegionAvail().x;
  draw_bands(shown, axis, left);
  draw_plot(shown, axis, left, std::round(170.0f * frame.scale));
  picture_text(frame, "log2 of the magnitude \u00b7 " + counts_text(shown));
  if (shown.shift() != 0.0) picture_text(frame, scale_text_of(shown));
  if (const std::string key = key_text(shown); !key.empty()) picture_text(frame, key);
  return true;
}

}  // namespace halfscope::gui
