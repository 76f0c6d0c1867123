// SPDX-License-Identifier: MIT
// Accumulate: adds a list of numbers and shows where the sum stalls, with the rounding bins of the
// format around it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "analysis/rules/text.h"
#include "core/number_text.h"
#include "core/numeric/formats/codes.h"
#include "gui/lab/number_line.h"
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
const RunningSums& sums_of(FloatLab& lab, const std::vector<Terms>& terms) {
  const std::string key = format_name(lab.shown()) + "/" + lab.terms;
  if (lab.sums_of != key) {
    lab.sums = running_sums(terms, lab.shown());
    lab.sums_of = key;
    lab.moment = -1;
  }
  return lab.sums;
}

/// The moment at the marker: where the user dragged it, else where the sum stalls, else the end.
const SumMoment& moment_of(FloatLab& lab, const std::vector<Terms>& terms) {
  const int64_t stalls = lab.sums.series.front().stalled_after;
  const int64_t count = lab.sums.terms.back();
  const int64_t done = lab.moment >= 0 ? std::min(lab.moment, count) : stalls >= 0 ? stalls : count;
  const std::string key = fmt::format("{}/{}", lab.sums_of, done);
  if (lab.moment_of != key) {
    lab.at_moment = sum_moment(terms, lab.shown(), done);
    lab.moment_of = key;
  }
  return lab.at_moment;
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
    ImGui::PushStyleColor(
        ImGuiCol_Text, stalls || !std::isfinite(series.last) ? frame.theme.lost : frame.theme.soft);
    ui::text("lab/sums/" + series.name + "/still", !std::isfinite(series.last) ? "overflows"
                                                   : stalls ? counted(series.stalled_after, "term")
                                                            : "-");
    ImGui::PopStyleColor();
  }
  ImGui::EndTable();
}

/// Returns a round distance of axis labels.
double tick_step(double span) {
  double step = std::pow(10.0, std::floor(std::log10(span / 4.0)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (span / (step * factor) <= 6.0) return step * factor;
  }
  return step * 10.0;
}

void draw_plot(const LabFrame& frame, const RunningSums& sums, const SumMoment& moment,
               float height) {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const Theme& theme = frame.theme;
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float width = std::max(ImGui::GetContentRegionAvail().x, frame.px(160));
  ImFont* font = frame.fonts.small;
  const float gutter = frame.px(58), below = font_size(*font) + frame.px(6);
  const ImVec2 min{at.x + gutter, at.y}, max{at.x + width, at.y + height - below};
  ImGui::SetCursorScreenPos(at);
  ImGui::InvisibleButton("##sums", {width, height});
  track_item("lab/sums/plot", fmt::format("{} lines", sums.series.size()));
  list.AddRectFilled(min, max, theme.plot);
  double low = std::min(0.0, sums.exact), high = std::max(0.0, sums.exact);
  for (const SumSeries& series : sums.series) {
    for (const float sum : series.sums) {
      if (!std::isfinite(sum)) continue;
      low = std::min(low, static_cast<double>(sum));
      high = std::max(high, static_cast<double>(sum));
    }
  }
  if (!(high > low)) high = low + 1.0;
  const double margin = 0.06 * (high - low);
  if (high > 0.0) high += margin;
  if (low < 0.0) low -= margin;
  const double terms = static_cast<double>(sums.terms.empty() ? 1 : sums.terms.back());
  const auto point = [&](double term, double sum) {
    const double part = std::clamp((sum - low) / (high - low), 0.0, 1.0);
    return ImVec2(min.x + (max.x - min.x) * static_cast<float>(term / terms),
                  max.y - (max.y - min.y) * static_cast<float>(part));
  };
  if (ImGui::IsItemActive()) {
    const double part = static_cast<double>((ImGui::GetIO().MousePos.x - min.x) / (max.x - min.x));
    frame.lab.moment = std::clamp<int64_t>(std::llround(part * terms), 0, sums.terms.back());
  } else if (ImGui::IsItemHovered()) {
    ui::tip(
        "Running sums over the number of terms. The thin grey line is exact. Drag to move the "
        "marker.");
  }
  const double step = tick_step(high - low);
  for (double tick = std::ceil(low / step) * step; tick <= high; tick += step) {
    const float y = std::round(point(0, tick).y);
    list.AddLine({min.x, y}, {max.x, y}, theme.grid);
    const std::string text = std::fabs(tick) < step * 1e-6 ? "0" : short_number(tick);
    list.AddText(font, font_size(*font),
                 {min.x - text_width(font, text) - frame.px(6),
                  std::clamp(y - font_size(*font) / 2, min.y, max.y - font_size(*font))},
                 theme.soft, text.c_str());
  }
  list.PushClipRect(min, max, true);
  list.AddLine(point(0, 0), point(terms, sums.exact), theme.axis, frame.px(1.5f));
  std::vector<ImVec2> points;
  for (size_t i = sums.series.size(); i-- > 0;) {  // the first one on top
    const SumSeries& series = sums.series[i];
    points.assign(1, point(0, 0));
    for (size_t k = 0; k < sums.terms.size(); ++k) {
      const double sum = static_cast<double>(series.sums[k]);
      if (!std::isfinite(sum)) break;
      points.push_back(point(static_cast<double>(sums.terms[k]), sum));
    }
    list.AddPolyline(points.data(), static_cast<int>(points.size()), color_of(frame, i), 0,
                     frame.px(i == 0 ? 2.6f : 1.8f));
    const bool overflows = !std::isfinite(series.last);
    if (series.stalled_after < 0 && !overflows) continue;
    const ImVec2 place = overflows ? points.back()
                                   : point(static_cast<double>(series.stalled_after),
                                           static_cast<double>(series.last));
    list.AddCircleFilled(place, frame.px(5), color_of(frame, i));
    list.AddCircle(place, frame.px(8), theme.lost, 0, frame.px(2));
    // Series that end alike share the label of the first.
    if (std::any_of(sums.series.begin(), sums.series.begin() + static_cast<std::ptrdiff_t>(i),
                    [&](const SumSeries& other) {
                      return other.stalled_after == series.stalled_after &&
                             other.last == series.last;
                    })) {
      continue;
    }
    const std::string text = fmt::format("{} {}", series.name, overflows ? "overflows" : "stalls");
    const float room = max.x - place.x - frame.px(14);
    const float size = text_width(frame.fonts.text, text);
    const ImVec2 corner{size < room ? place.x + frame.px(12) : place.x - frame.px(12) - size,
                        std::min(place.y + frame.px(5), max.y - font_size(*frame.fonts.text))};
    list.AddText(frame.fonts.text, font_size(*frame.fonts.text), corner, theme.lost, text.c_str());
  }
  const float cursor = std::round(point(static_cast<double>(moment.done), low).x);
  list.AddLine({cursor, min.y}, {cursor, max.y}, with_alpha(theme.cursor, 0.8f), frame.px(1.5f));
  list.PopClipRect();
  const std::string first = "0", last = counted(sums.terms.back(), "term");
  list.AddText(font, font_size(*font), {min.x, max.y + frame.px(3)}, theme.soft, first.c_str());
  list.AddText(font, font_size(*font), {max.x - text_width(font, last), max.y + frame.px(3)},
               theme.soft, last.c_str());
  const std::string here = grouped(moment.done);
  const float half = text_width(font, here) / 2;
  if (cursor - half > min.x + frame.px(16) &&
      cursor + half < max.x - text_width(font, last) - frame.px(8)) {
    lab_centered(font, cursor, max.y + frame.px(3), theme.ink, here);
  }
}

void draw_examples(const LabFrame& frame) {
  constexpr std::array<const char*, 4> kExamples{"4096x1", "1,1000x1e-3", "1000x0.1", "20x6000"};
  float gap = frame.px(16);
  for (size_t i = 0; i < kExamples.size(); ++i) {
    flow(text_width(frame.fonts.text, kExamples[i]) + 2 * ImGui::GetStyle().FramePadding.x, gap);
    gap = frame.px(4);
    if (ui::button(fmt::format("lab/terms/example/{}", i), kExamples[i])) {
      frame.lab.terms = kExamples[i];
    }
  }
}

}  // namespace

void draw_accumulate_tab(const LabFrame& frame) {
  FloatLab& lab = frame.lab;
  lab_format(frame);
  lab_field(frame, "lab/terms", "add", &lab.terms, frame.px(180), frame.px(16));
  ui::tip("Numbers with commas between them. 1000x0.5 is a thousand times 0.5.");
  std::string problem;
  std::optional<std::vector<Terms>> terms = read_terms(lab.terms, problem);
  if (terms) {
    // The slider changes how often the last number is added.
    flow(frame.px(160), frame.px(8));
    double log2 = std::log2(static_cast<double>(terms->back().count));
    if (ui::slider("lab/count", &log2, kFewestLog2, kMostLog2, "", frame.px(150))) {
      terms->back().count = int64_t{1} << std::lround(log2);
      const size_t comma = lab.terms.rfind(',');
      const std::string start = comma == std::string::npos ? "" : lab.terms.substr(0, comma + 1);
      lab.terms = fmt::format("{}{}x{}", start, terms->back().count, terms->back().value);
    }
    ui::tip("How often the last number is added.");
  }
  draw_examples(frame);
  terms = read_terms(lab.terms, problem);  // an example may have replaced them
  if (!terms) {
    label("lab/term/problem", problem, frame.fonts.text, frame.theme.bad);
    return;
  }
  const RunningSums& sums = sums_of(lab, *terms);
  const SumMoment& moment = moment_of(lab, *terms);
  const float room = ImGui::GetContentRegionAvail().x;
  const bool beside = room > frame.px(760);
  const float column =
      beside ? std::clamp(std::floor(room * 0.36f), frame.px(360), frame.px(560)) : room;
  const float height = lab_room(frame, 300, frame.px(4));
  const float start = ImGui::GetCursorScreenPos().y;
  ImGui::BeginGroup();
  draw_table(frame, sums, sums.exact, column);
  ImGui::Dummy({0, frame.px(4)});
  lab_sentence(
      "lab/sums/moment",
      fmt::format("After {} in {}:", counted(moment.done, "term"), format_name(lab.shown())),
      frame.theme.soft, column);
  lab_sentence("lab/sums/why", moment_text(moment, lab.shown()), frame.theme.ink, column);
  const float used = ImGui::GetCursorScreenPos().y - start;
  BinPicture bins{.chosen = moment.next, .exact = moment.exact};
  if (moment.term) {
    bins.from = static_cast<double>(moment.sum);
    bins.label = "+ " + brief_text(static_cast<double>(*moment.term), 5) + " = " +
                 brief_text(moment.exact, 9);
  }
  draw_bins(frame, "lab/sums/bins", bins, column,
            beside ? std::clamp(height - used, frame.px(110), frame.px(460)) : frame.px(120));
  ImGui::EndGroup();
  if (beside) ImGui::SameLine(0, frame.px(20));
  draw_plot(frame, sums, moment, beside ? height : lab_room(frame, 180, frame.px(4)));
}

}  // namespace halfscope::gui
