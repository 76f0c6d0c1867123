// SPDX-License-Identifier: MIT
// The verdict bar: which layer fails, why, and what to do.
#include <algorithm>
#include <cmath>

#include "analysis/report/report_parts.h"
#include "gui/panels/cause.h"
#include "gui/panels/panel.h"
#include "gui/widgets/canvas.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr float kLowWindow = 420.0f;  ///< lower ones need their height for the charts
constexpr const char* kTry = "Try the fix";

/// Returns the text, or its beginning with "..." if it is wider than `width`.
std::string beginning_of(ImFont& font, const std::string& text, float width) {
  if (text_size(font, text).x <= width) return text;
  std::string shorter = text;
  while (!shorter.empty() && text_size(font, shorter + "...").x > width) shorter.pop_back();
  return shorter + "...";
}

}  // namespace

const char* verdict_badge(Verdict::State state, bool early, bool unicode) {
  switch (state) {
    case Verdict::State::healthy:
      if (early) return unicode ? "\u25cb healthy so far" : "o healthy so far";
      return unicode ? "\u2713 healthy" : "healthy";
    case Verdict::State::cured:
      return unicode ? "\u2713 cured" : "cured";
    case Verdict::State::attention:
      return unicode ? "\u25b2 attention" : "! attention";
    case Verdict::State::broken:
      return unicode ? "\u2718 broken" : "x broken";
    case Verdict::State::inconclusive:
      return "? inconclusive";
  }
  return "";
}

const Finding* worst_finding(const Report& report) noexcept {
  const Finding* worst = nullptr;
  for (const Finding& finding : report.findings) {
    if (finding.severity == Severity::info || finding.lane != report.sick) continue;
    // Harm concerns the whole lane; its cause has a place.
    const bool has_place = !finding.site.empty();
    const bool better = worst == nullptr || (has_place && worst->site.empty()) ||
                        (has_place == !worst->site.empty() && finding.severity > worst->severity);
    if (better) worst = &finding;
  }
  return worst;
}

void go_to_finding(ViewState& view, const RunModel& run, const Finding& finding) {
  view.lane = run.view().lane(finding.lane).name;
  view.layer = finding.layer;
  view.site = finding.site;
  view.role = RoleView::all;
  if (const std::optional<int> site = run.view().find_site(finding.lane, finding.site)) {
    // The Spectrum shows the chart with the tensor.
    const LaneInfo& lane = run.view().lane(finding.lane);
    const SpectrumChart chart = chart_of(lane.sites[static_cast<size_t>(*site)].role);
    if (std::find(view.charts.begin(), view.charts.end(), chart) == view.charts.end()) {
      view.charts.push_back(chart);
      std::sort(view.charts.begin(), view.charts.end());
    }
  }
  if (finding.step >= 0) view.cursor = finding.step;
}

std::optional<PlanEdit> fix_to_try(const Frame& frame) {
  const Report* report = frame.run.report();
  if (report == nullptr || !report->diagnosis || report->run.inference) return std::nullopt;
  const bool ill = report->verdict.state == Verdict::State::broken ||
                   report->verdict.state == Verdict::State::attention;
  const PlanEdit& fix = report->diagnosis->fix;
  if (!ill || report->diagnosis->lane != frame.at.lane || fix.empty() || !can_be_tried(frame, fix))
    return std::nullopt;
  return fix;
}

void draw_verdict(const Frame& frame) {
  const float scale = frame.scale;
  const Theme& theme = frame.theme;
  const Report* report = frame.run.report();
  const ImVec2 start = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x;
  const float pad = 12 * scale;
  // A low window shows one line, and all of it in the tooltip.
  const bool low = ImGui::GetContentRegionAvail().y < kLowWindow * scale;
  // Three lines while a run grows, so that the charts below do not move with every new sentence.
  const bool still = frame.run.live() && !low;
  const float still_height = text_size(*frame.fonts.bold, "A").y +
                             2 * (ImGui::GetTextLineHeight() + 3 * scale) + 2 * (pad - 3 * scale);
  if (report == nullptr) {
    const float height = still ? still_height : ImGui::GetTextLineHeight() + 2 * pad;
    ImGui::GetWindowDrawList()->AddRectFilled(start, {start.x + width, start.y + height},
                                              theme.card, 5 * scale);
    ImGui::SetCursorScreenPos({start.x + pad, start.y + pad});
    ImGui::PushStyleColor(ImGuiCol_Text, theme.soft);
    ui::text("verdict/headline", "Analyzing the run ...");
    ImGui::PopStyleColor();
    ImGui::SetCursorScreenPos({start.x, start.y + height + ImGui::GetStyle().ItemSpacing.y});
    return;
  }
  Verdict verdict = report->verdict;
  verdict.headline = plain_text(verdict.headline);
  verdict.more = plain_text(verdict.more);
  const bool ill =
      verdict.state == Verdict::State::broken || verdict.state == Verdict::State::attention;
  std::string fix;
  if (ill && report->diagnosis && !report->diagnosis->fix_text.empty()) {
    fix = "What to do: " + plain_text(report->diagnosis->fix_text);
  }
  std::string whole = verdict.headline;
  if (!verdict.more.empty()) whole += "\n\n" + verdict.more;
  if (!fix.empty()) whole += "\n\n" + fix;
  const Finding* worst = worst_finding(*report);
  // A few good steps prove little, so they are not green.
  const bool early = report->steps < kFewSteps && !report->run.inference;
  const bool promise = verdict.state != Verdict::State::healthy || !early;
  const ImU32 ink = promise ? theme.verdict(verdict.state) : theme.accent;
  const ImU32 ground = promise ? theme.verdict_soft(verdict.state) : theme.accent_soft;
  ImGui::PushFont(frame.fonts.bold);
  const char* state = verdict_badge(verdict.state, early, frame.fonts.unicode);
  const float badge_width = ImGui::CalcTextSize(state).x;
  const bool narrow = width < 520 * scale;
  const float button_width =
      worst == nullptr || narrow
          ? 0.0f
          : ImGui::CalcTextSize("Show me where").x + 2 * ImGui::GetStyle().FramePadding.x + pad;
  const std::optional<PlanEdit> edit = button_width > 0.0f ? fix_to_try(frame) : std::nullopt;
  const float try_width =
      edit ? ImGui::CalcTextSize(kTry).x + 2 * ImGui::GetStyle().FramePadding.x + pad : 0.0f;
  const float text_x = start.x + pad + badge_width + 1.5f * pad;
  const float wrap = start.x + width - pad - button_width - try_width;
  const float text_width = std::max(wrap - text_x, 100 * scale);
  if (low) {
    verdict.headline = beginning_of(*frame.fonts.bold, verdict.headline, text_width);
    verdict.more.clear();
    fix.clear();
  } else if (still) {
    verdict.headline = beginning_of(*frame.fonts.bold, verdict.headline, text_width);
    verdict.more = beginning_of(*frame.fonts.text, verdict.more, text_width);
    fix = beginning_of(*frame.fonts.text, fix, text_width);
  }
  const ImVec2 head = ImGui::CalcTextSize(verdict.headline.c_str(), nullptr, false, text_width);
  ImGui::PopFont();
  const float more_width = balanced_width(verdict.more, text_width);
  const ImVec2 more = verdict.more.empty()
                          ? ImVec2{0, 0}
                          : ImGui::CalcTextSize(verdict.more.c_str(), nullptr, false, more_width);
  const float gap = verdict.more.empty() ? 0.0f : 3 * scale;
  // Put the fix on the second line if it fits, so that the plots keep their height.
  const float fix_left = more.x + 1.5f * pad;
  const bool beside = more.x > 0.0f && more.y < 1.5f * ImGui::GetTextLineHeight() &&
                      fix_left + ImGui::CalcTextSize(fix.c_str()).x <= text_width;
  const float fix_top = beside ? head.y + gap : head.y + gap + more.y + 3 * scale;
  const float fix_end =
      fix.empty() ? head.y + gap + more.y
                  : fix_top + ImGui::CalcTextSize(fix.c_str(), nullptr, false, text_width).y;
  const float height = still ? still_height : fix_end + 2 * (pad - 3 * scale);
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const ImVec2 end{start.x + width, start.y + height};
  draw.AddRectFilled(start, end, ground, 5 * scale);
  draw.AddRectFilled(start, {start.x + 5 * scale, end.y}, ink, 5 * scale,
                     ImDrawFlags_RoundCornersLeft);
  const float top = start.y + pad - 3 * scale;
  const auto write = [&](const char* path, const std::string& text, float x, float y,
                         float most = 1e6f) {
    ImGui::SetCursorScreenPos({x, y});
    ImGui::PushTextWrapPos(std::min(wrap, x + most) - ImGui::GetWindowPos().x);
    ui::text(path, text);
    ImGui::PopTextWrapPos();
  };
  ImGui::PushFont(frame.fonts.bold);
  ImGui::PushStyleColor(ImGuiCol_Text, ink);
  write("verdict/state", state, start.x + pad + 4 * scale, top);
  ImGui::PopStyleColor();
  write("verdict/headline", verdict.headline, text_x, top);
  if (low || still) ui::tip(whole.c_str());
  ImGui::PopFont();
  if (!verdict.more.empty()) {
    ImGui::PushStyleColor(ImGuiCol_Text, theme.soft);
    write("verdict/more", verdict.more, text_x, top + head.y + gap, more_width);
    ImGui::PopStyleColor();
  }
  if (!fix.empty()) write("verdict/fix", fix, beside ? text_x + fix_left : text_x, top + fix_top);
  if (edit) {
    ImGui::SetCursorScreenPos(
        {end.x - button_width - try_width, start.y + (height - ImGui::GetFrameHeight()) / 2});
    if (ui::button("verdict/try", kTry)) {
      frame.view.edits = *edit;
      frame.ask(Request::Kind::try_plan);
    }
    ui::tip("Trains with the fix beside this run, and shows both.");
  }
  if (button_width > 0.0f) {
    const float button_height = ImGui::GetFrameHeight();
    ImGui::SetCursorScreenPos({end.x - button_width, start.y + (height - button_height) / 2});
    if (ui::button("verdict/show", "Show me where")) go_to_finding(frame.view, frame.run, *worst);
    ui::tip("Selects the layer, tensor and step of the most severe finding.");
  }
  ImGui::SetCursorScreenPos({start.x, end.y + ImGui::GetStyle().ItemSpacing.y});
  ImGui::Dummy({0, 0});
}

}  // namespace halfscope::gui
