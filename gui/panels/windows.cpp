// SPDX-License-Identifier: MIT
// The formats through which the Spectrum looks at a run, with what each would lose, and the
// controls of its charts and of the loss scale.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "analysis/rules/text.h"
#include "gui/data/loss_scale.h"
#include "gui/panels/spectrum.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr std::array<SpectrumWindow, 8> kWindows{{{"", "as recorded"},
                                                  {"fp32", "fp32"},
                                                  {"bf16", "bf16"},
                                                  {"fp16", "fp16"},
                                                  {"e5m2", "e5m2"},
                                                  {"e4m3fn", "e4m3"},
                                                  {"mxfp8", "mxfp8"},
                                                  {"nvfp4", "nvfp4"}}};
constexpr const char* kPerTensor = "/tensor";

/// Returns the window without its scale per tensor.
std::string plain(std::string window) {
  if (window.ends_with(kPerTensor))
    window.resize(window.size() - std::string_view(kPerTensor).size());
  return window;
}

std::string lost_text(const LossCount& lost, bool recorded) {
  if (lost.values == 0) return "no values";
  if (lost.high <= 0.0) return "0 lost";
  const std::string share = percent(lost.share());
  return (recorded || share.starts_with('<') ? "" : "~") + share + " lost";
}

/// Draws one chip: the name, and below it what the whole run would lose.
void draw_chip(const Frame& frame, SpectrumRows& rows, const std::string& window,
               const std::string& name) {
  const bool active = plain(frame.view.window) == window;
  const Lens plain_lens = *parse_lens(window);
  const Lens lens = active ? parse_lens(frame.view.window).value_or(plain_lens) : plain_lens;
  const LossCount& lost = rows.whole_run(lens).lost;
  const std::string text = lost_text(lost, !lens.format);
  ImFont &bold = *frame.fonts.bold, &small = *frame.fonts.small;
  const float unit = frame.scale, pad = 9.0f * unit;
  const ImVec2 name_size = text_size(bold, name), text_size_of = text_size(small, text);
  const ImVec2 size{std::max(name_size.x, text_size_of.x) + 2 * pad,
                    name_size.y + text_size_of.y + 11.0f * unit};
  if (!window.empty()) flow(size.x, 5.0f * unit);
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const std::string path = "windows/" + (window.empty() ? std::string("recorded") : window);
  ImGui::PushID(path.c_str());
  const bool pressed = ImGui::InvisibleButton("##chip", size);
  ImGui::PopID();
  track_item(path, text);
  const bool hovered = ImGui::IsItemHovered();
  if (pressed) frame.view.window = window;
  if (hovered)
    ui::tip((rows.whole_run(lens).text +
             (lens.format ? "\n\nAn estimate from the run's histograms." : ""))
                .c_str());
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const ImVec2 end{at.x + size.x, at.y + size.y};
  const Theme& theme = frame.theme;
  draw.AddRectFilled(at, end,
                     active    ? theme.selection
                     : hovered ? theme.accent_soft
                               : theme.card,
                     6.0f * unit);
  draw.AddRect(at, end, active ? theme.accent : theme.card_line, 6.0f * unit, 0,
               active ? 1.5f * unit : 1.0f);
  draw.AddText(&bold, font_size(bold), {at.x + pad, at.y + 4.0f * unit}, theme.ink, name.c_str());
  const bool bad = lost.share() >= kShownLoss;
  draw.AddText(&small, font_size(small), {at.x + pad, at.y + 6.0f * unit + name_size.y},
               bad               ? theme.lost
               : lost.high > 0.0 ? theme.soft
                                 : theme.good,
               text.c_str());
}

/// Draws the field for any other format, and the switch for a scale per tensor.
void draw_other_format(const Frame& frame) {
  ViewState& view = frame.view;
  const float unit = frame.scale;
  std::string text = plain(view.window);
  const bool known = std::any_of(kWindows.begin(), kWindows.end(),
                                 [&](const SpectrumWindow& each) { return text == each.lens; });
  static constexpr const char* kOwn = "windows/other";
  const Lens lens = lens_of(view);
  const float width = 96.0f * unit;
  const float box =
      text_width(frame.fonts.text, "scale per tensor") + ImGui::GetFrameHeight() + 8.0f * unit;
  flow(std::max(width, box), 8.0f * unit);
  ImGui::BeginGroup();
  std::string typed = known ? "" : text;
  if (ui::input_text(kOwn, "eXmY ...", &typed, width)) view.window = typed;
  ui::tip("Any format: bfloat16-like e8m7, e5m3, e6m9, mxfp4, mxfp6_e3m2 ...");
  bool per_tensor = lens.scale == LensScale::tensor;
  ImGui::BeginDisabled(!lens.format || lens.scale == LensScale::block);
  if (ui::checkbox("windows/per_tensor", "scale per tensor", &per_tensor)) toggle_per_tensor(view);
  ImGui::EndDisabled();
  ui::tip(
      "Multiplies each tensor by a power of two that brings its largest value to the top of the "
      "format, as fp8 recipes do.");
  ImGui::EndGroup();
}

void draw_answer(const Frame& frame, SpectrumRows& rows) {
  const Theme& theme = frame.theme;
  std::string text;
  ImU32 color = theme.soft;
  if (!parse_lens(frame.view.window)) {
    text = format_problem(plain(frame.view.window));
    color = theme.bad;
    if (text.empty()) text = "not a format";
    text = "'" + frame.view.window + "': " + text + ".";
  } else {
    const Lens lens = lens_of(frame.view);
    text = rows.whole_run(lens).text;
    if (lens.format) text += " An estimate from the histograms of the whole run.";
  }
  const float beside = ImGui::GetWindowPos().x + ImGui::GetWindowContentRegionMax().x -
                       ImGui::GetItemRectMax().x - 14.0f * frame.scale;
  if (beside > 260.0f * frame.scale) ImGui::SameLine(0, 14.0f * frame.scale);
  ImGui::BeginGroup();
  ImGui::PushStyleColor(ImGuiCol_Text, color);
  ui::text_wrapped("windows/answer", text);
  ImGui::PopStyleColor();
  ImGui::EndGroup();
}

void draw_charts_choice(const Frame& frame) {
  ViewState& view = frame.view;
  bool first = true;
  for (const SpectrumChart chart : recorded_charts(frame)) {
    const bool on = std::find(view.charts.begin(), view.charts.end(), chart) != view.charts.end();
    const std::string name = spectrum_chart_name(chart);
    if (!first) ImGui::SameLine(0, 3.0f * frame.scale);
    first = false;
    if (ui::segment("spectrum/show/" + name, name.c_str(), on)) toggle_chart(view, chart);
    ui::tip("Shows or hides this chart.");
  }
  const float both = text_width(frame.fonts.text, "one step") +
                     text_width(frame.fonts.text, "visible steps") +
                     4 * ImGui::GetStyle().FramePadding.x + 3.0f * frame.scale;
  if (!first) flow(both, 14.0f * frame.scale);
  if (ui::segment("spectrum/steps/one", "one step", !view.merge_steps)) view.merge_steps = false;
  ImGui::SameLine(0, 3.0f * frame.scale);
  if (ui::segment("spectrum/steps/range", "visible steps", view.merge_steps))
    view.merge_steps = true;
  ui::tip(
      "Shows the envelope of all steps that the loss chart shows: for every exponent, the largest "
      "share that it has in one of them. Shift+drag in the loss chart chooses the steps.");
}

void draw_scale(const Frame& frame, SpectrumRows& rows) {
  ViewState& view = frame.view;
  const double wanted_power = std::log2(wanted_loss_scale(frame)),
               now = wanted_power - view.scale_shift;
  std::string text = "loss scale " + power_text(now);
  if (view.scale_shift != 0.0) {
    text = fmt::format("loss scale {} {} {}", power_text(now), arrow(frame.fonts),
                       power_text(wanted_power));
  }
  const float unit = frame.scale, gap = 5.0f * unit;
  const float pad = 2 * ImGui::GetStyle().FramePadding.x;
  const float buttons = text_width(frame.fonts.text, "fitresetuse in plan") + 3 * pad + 3 * gap;
  const float width = text_width(frame.fonts.text, text) + gap + buttons;
  const float free =
      ImGui::GetWindowPos().x + ImGui::GetWindowContentRegionMax().x - ImGui::GetItemRectMax().x;
  if (free > width + 20.0f * unit) {
    ImGui::SameLine();
    ImGui::SetCursorPosX(ImGui::GetWindowContentRegionMax().x - width);
  }
  ImGui::AlignTextToFramePadding();
  ImGui::PushStyleColor(ImGuiCol_Text,
                        view.scale_shift == 0.0 ? frame.theme.soft : frame.theme.ink);
  ui::text("windows/scale", text);
  ImGui::PopStyleColor();
  ui::tip("Drag the chart of gradients to slide it. Hold Alt for values between powers of two.");
  ImGui::SameLine(0, gap);
  if (ui::button("windows/scale/fit", "fit")) view.scale_shift = rows.best_shift();
  ui::tip("Finds the loss scale at which the gradients of these steps lose least.");
  ImGui::SameLine(0, gap);
  ImGui::BeginDisabled(view.scale_shift == 0.0);
  if (ui::button("windows/scale/reset", "reset")) view.scale_shift = 0.0;
  ImGui::EndDisabled();
  ImGui::SameLine(0, gap);
  const double wanted = wanted_loss_scale(frame);
  const bool used = view.edits.loss_scale() == wanted;
  ImGui::BeginDisabled(used);
  if (ui::button("windows/scale/use", used ? "in the plan" : "use in plan"))
    view.edits.set_loss_scale(wanted);
  ImGui::EndDisabled();
  ui::tip(
      "Sets the edited plan's static loss scale. Ctrl+T trains the edited plan beside this run.");
}

void draw_wipe(const Frame& frame) {
  const FixedLane fixed = fixed_lane(frame);
  if (fixed.run == nullptr) return;
  const float unit = frame.scale;
  double after = 1.0 - frame.view.wipe;
  const char* left = fixed.compared ? "this run" : "before";
  const char* right = fixed.compared ? "other run" : "after";
  ImGui::SameLine(0, 14.0f * unit);
  if (ui::segment("spectrum/wipe/before", left, after <= 0.0)) after = 0.0;
  ui::tip(("Shows " + frame.lane_info().name + " of this run.").c_str());
  ImGui::SameLine(0, 3.0f * unit);
  ui::slider("spectrum/wipe", &after, 0.0, 1.0, "", 110.0f * unit);
  ui::tip(("Wipes between " + frame.lane_info().name + " and " + fixed.name + ".").c_str());
  ImGui::SameLine(0, 3.0f * unit);
  if (ui::segment("spectrum/wipe/after", right, after >= 1.0)) after = 1.0;
  ui::tip(
      ("Shows " + fixed.name +
       (fixed.compared ? " of the run that is compared with." : " of this run, which is healthy."))
          .c_str());
  frame.view.wipe = 1.0 - after;
}

void draw_answers_choice(const Frame& frame) {
  ViewState& view = frame.view;
  if (ui::segment("spectrum/answers", "Answers", view.answers)) view.answers = !view.answers;
  ui::tip("Why, what to do and whether it helps, in place of the charts.");
  ImGui::SameLine(0, 14.0f * frame.scale);
}

}  // namespace

std::span<const SpectrumWindow> spectrum_windows() noexcept { return kWindows; }

void toggle_per_tensor(ViewState& view) {
  const Lens lens = lens_of(view);
  if (!lens.format || lens.scale == LensScale::block) return;
  view.window = plain(view.window) + (lens.scale == LensScale::tensor ? "" : kPerTensor);
}

void toggle_chart(ViewState& view, SpectrumChart chart) {
  const auto found = std::find(view.charts.begin(), view.charts.end(), chart);
  if (found == view.charts.end()) {
    view.charts.push_back(chart);
    std::sort(view.charts.begin(), view.charts.end());
  } else if (view.charts.size() > 1) {
    view.charts.erase(found);
  }
}

double wanted_loss_scale(const Frame& frame) {
  const LossScale scale =
      loss_scale_of(frame.run.view(), frame.at.lane, frame.at.step, frame.at.step);
  return std::exp2((scale.known ? scale.log2 : 0.0) + frame.view.scale_shift);
}

void draw_windows(const Frame& frame, bool offers_answers) {
  SpectrumRows& rows = spectrum_rows(frame);
  for (const SpectrumWindow& each : kWindows) draw_chip(frame, rows, each.lens, each.name);
  draw_other_format(frame);
  draw_answer(frame, rows);
  if (offers_answers) draw_answers_choice(frame);
  draw_charts_choice(frame);
  draw_wipe(frame);
  const std::vector<SpectrumChart> charts = shown_charts(frame);
  const bool shows_gradients =
      std::find(charts.begin(), charts.end(), SpectrumChart::gradients) != charts.end();
  if (shows_gradients && has_loss_scale(frame) && lens_of(frame.view).scale == LensScale::none)
    draw_scale(frame, rows);
}

}  // namespace halfscope::gui
