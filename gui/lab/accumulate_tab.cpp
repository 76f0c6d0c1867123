// SPDX-License-Identifier: MIT
// Accumulate: adds the same number repeatedly and shows where the sum stalls.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/rules/text.h"
#include "core/numeric/formats/codes.h"
#include "gui/lab/lab_tabs.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr double kFewestLog2 = 4.0, kMostLog2 = 17.0;

ImU32 color_of(const LabFrame& frame, size_t series) {
  return frame.theme.lines[(series + 1) % frame.theme.lines.size()];
}

/// Recomputes the sums only after an edit.
const RunningSums& sums_of(FloatLab& lab, float term) {
  const std::string key = fmt::format("{}/{}/{}", format_name(lab.shown()), term, lab.count);
  if (lab.sums_of != key) {
    lab.sums = running_sums({{lab.count, static_cast<double>(term)}}, lab.shown());
    lab.sums_of = key;
  }
  return lab.sums;
}

void draw_table(const LabFrame& frame, const RunningSums& sums, double exact, float width) {
  constexpr ImGuiTableFlags kFlags =
      ImGuiTableFlags_RowBg | ImGuiTableFlags_SizingFixedFit | ImGuiTableFlags_NoSavedSettings;
  if (!ImGui::BeginTable("lab/sums", 4, kFlags, {width, 0})) return;
  for (const char* name : {"summed in", "sum", "error"}) {
    ImGui::TableSetupColumn(name, ImGuiTableColumnFlags_WidthFixed);
  }
  ImGui::TableSetupColumn("stalls after", ImGuiTableColumnFlags_WidthStretch);
  ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.soft);
  ImGui::TableHeadersRow();
  ImGui::PopStyleColor();
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const float box = std::round(font_size(*frame.fonts.text) * 0.6f);
  for (size_t i = 0; i < sums.series.size(); ++i) {
    const SumSeries& series = sums.series[i];
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float y = std::round(at.y + (font_size(*frame.fonts.text) - box) / 2);
    list.AddRectFilled({at.x, y}, {at.x + box, y + box}, color_of(frame, i), frame.px(2));
    ImGui::Dummy({box, box});
    ImGui::SameLine(0, frame.px(6));
    ui::text("lab/sums/" + series.name, series.name);
    ImGui::TableNextColumn();
    ui::text("lab/sums/" + series.name + "/last", value_text(series.last, kFp32));
    ImGui::TableNextColumn();
    const double error = exact == 0.0 ? 0.0 : static_cast<double>(series.last) / exact - 1.0;
    ui::text("lab/sums/" + series.name + "/error",
             std::isfinite(error) ? percent(std::fabs(error)) : "-");
    ImGui::TableNextColumn();
    const bool stalls = series.stalled_after >= 0;
    ImGui::PushStyleColor(ImGuiCol_Text, stalls ? frame.theme.lost : frame.theme.soft);
    ui::text("lab/sums/" + series.name + "/still",
             stalls ? counted(series.stalled_after, "term") : "-");
    ImGui::PopStyleColor();
  }
  ImGui::EndTable();
}

void draw_plot(const LabFrame& frame, const RunningSums& sums, double exact, float height) {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float width = std::max(ImGui::GetContentRegionAvail().x, frame.px(160));
  ImFont* font = frame.fonts.small;
  const float gutter = frame.px(52), below = font_size(*font) + frame.px(4);
  const ImVec2 min{at.x + gutter, at.y + frame.px(4)}, max{at.x + width, at.y + height - below};
  list.AddRectFilled(min, max, frame.theme.plot);
  double top = std::fabs(exact);
  for (const SumSeries& series : sums.series) {
    for (const float sum : series.sums) {
      if (std::isfinite(sum)) top = std::max(top, std::fabs(static_cast<double>(sum)));
    }
  }
  if (!(top > 0.0)) top = 1.0;
  const double terms = static_cast<double>(sums.terms.empty() ? 1 : sums.terms.back());
  const auto point = [&](double term, double sum) {
    const double part = std::clamp(std::fabs(sum) / (1.05 * top), 0.0, 1.0);
    return ImVec2(min.x + (max.x - min.x) * static_cast<float>(term / terms),
                  max.y - (max.y - min.y) * static_cast<float>(part));
  };
  for (const double part : {0.25, 0.5, 0.75, 1.0}) {
    const float y = std::round(point(0, part * top).y);
    list.AddLine({min.x, y}, {max.x, y}, frame.theme.grid);
    const std::string text = short_number(part * exact);
    list.AddText(font, font_size(*font),
                 {min.x - text_width(font, text) - frame.px(6), y - font_size(*font) / 2},
                 frame.theme.soft, text.c_str());
  }
  list.AddLine(point(0, 0), point(terms, exact), frame.theme.axis, frame.scale);
  std::vector<ImVec2> points;
  for (size_t i = sums.series.size(); i-- > 0;) {  // the first one on top
    points.assign(1, point(0, 0));
    for (size_t k = 0; k < sums.terms.size(); ++k) {
      const double sum = static_cast<double>(sums.series[i].sums[k]);
      if (!std::isfinite(sum)) break;
      points.push_back(point(static_cast<double>(sums.terms[k]), sum));
    }
    list.AddPolyline(points.data(), static_cast<int>(points.size()), color_of(frame, i), 0,
                     frame.px(1.8f));
  }
  const std::string last = counted(static_cast<int64_t>(terms), "term");
  list.AddText(font, font_size(*font), {min.x, max.y + frame.px(3)}, frame.theme.soft, "0");
  list.AddText(font, font_size(*font), {max.x - text_width(font, last), max.y + frame.px(3)},
               frame.theme.soft, last.c_str());
  ImGui::Dummy({width, height});
  track_item("lab/sums/plot", fmt::format("{} lines", sums.series.size()));
  ui::tip("Running sums over the number of terms. The thin grey line is exact.");
}

}  // namespace

void draw_accumulate_tab(const LabFrame& frame) {
  FloatLab& lab = frame.lab;
  lab_format(frame);
  lab_field(frame, "lab/term", "add", &lab.term, frame.px(100), frame.px(16));
  flow(frame.px(268), frame.px(12));
  ImGui::AlignTextToFramePadding();
  label("lab/count/text", counted(lab.count, "time"), frame.fonts.text, frame.theme.soft,
        frame.px(96));
  ImGui::SameLine(0, frame.px(12));
  double log2 = std::log2(static_cast<double>(lab.count));
  if (ui::slider("lab/count", &log2, kFewestLog2, kMostLog2, "", frame.px(160))) {
    lab.count = static_cast<int>(std::lround(std::exp2(std::round(log2))));
  }
  std::string problem;
  const std::optional<uint32_t> code = read_number(lab.term, kFp32, problem);
  if (!code) {
    label("lab/term/problem", problem, frame.fonts.text, frame.theme.bad);
    return;
  }
  const float term = decode(*code, kFp32);
  if (!std::isfinite(term)) {
    label("lab/term/problem", "Enter a finite number.", frame.fonts.text, frame.theme.bad);
    return;
  }
  const RunningSums& sums = sums_of(lab, term);
  const double exact = static_cast<double>(term) * static_cast<double>(lab.count);
  const float room = ImGui::GetContentRegionAvail().x;
  const bool beside = room > frame.px(760);
  const float height =
      std::clamp(ImGui::GetContentRegionAvail().y - frame.px(8), frame.px(170), frame.px(360));
  ImGui::BeginGroup();
  draw_table(frame, sums, exact, beside ? std::floor(room * 0.45f) : room);
  ImGui::EndGroup();
  if (beside) ImGui::SameLine(0, frame.px(20));
  draw_plot(frame, sums, exact, height);
}

}  // namespace halfscope::gui
