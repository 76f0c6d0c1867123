// SPDX-License-Identifier: MIT
// The answers beside the Spectrum: why, what to do, whether it helps, and what else would do.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/format_limits.h"
#include "analysis/rules/text.h"
#include "analysis/spectrum/lens_text.h"
#include "gui/panels/cause.h"
#include "gui/panels/spectrum.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr size_t kMostHops = 6;  ///< of the chain; the middle is left out
constexpr size_t kWorst = 6;     ///< layers listed

void heading(const Frame& frame, const char* path, const char* text) {
  ImGui::Dummy({0, 2.0f * frame.scale});
  ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.soft);
  ImGui::PushFont(frame.fonts.small);
  ui::text(path, text);
  ImGui::PopFont();
  ImGui::PopStyleColor();
}

void soft(const Frame& frame, const std::string& path, const std::string& text) {
  ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.soft);
  ui::text_wrapped(path, text);
  ImGui::PopStyleColor();
}

/// Draws one node of the chain as a box with what happens in it, and a line down to the next.
void draw_node(const Frame& frame, const Hop& hop, size_t index, bool last, int64_t left_out) {
  const float unit = frame.scale, height = ImGui::GetFrameHeight();
  const std::string path = fmt::format("answers/hop/{}", index);
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x;
  const std::string name = fitted(hop.layer, frame.fonts.text, width * 0.52f);
  const ImVec2 size{text_width(frame.fonts.text, name) + 16.0f * unit, height};
  ImGui::PushID(path.c_str());
  const bool pressed = ImGui::InvisibleButton("##hop", size);
  ImGui::PopID();
  track_item(path, hop.layer + " " + hop.text);
  if (ImGui::IsItemHovered()) frame.view.hovered_layer = hop.layer;
  ui::tip(("Selects " + hop.site + ".").c_str());
  if (pressed) {
    frame.view.layer = hop.layer;
    frame.view.site = hop.site;
  }
  const Theme& theme = frame.theme;
  const bool is_root = index == 0, selected = frame.view.layer == hop.layer;
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const ImVec2 end{at.x + size.x, at.y + height};
  draw.AddRectFilled(at, end,
                     is_root    ? theme.bad_soft
                     : selected ? theme.selection
                                : theme.plot,
                     5.0f * unit);
  draw.AddRect(at, end, is_root ? theme.bad : theme.axis, 5.0f * unit, 0,
               is_root ? 1.5f * unit : 1.0f);
  const float text_y = at.y + (height - ImGui::GetTextLineHeight()) / 2;
  draw.AddText({at.x + 8.0f * unit, text_y}, theme.ink, name.c_str());
  const std::string what =
      fitted(hop.text, frame.fonts.text, std::max(width - size.x - 10.0f * unit, 20.0f * unit));
  draw.AddText({end.x + 8.0f * unit, text_y}, is_root ? theme.bad : theme.soft, what.c_str());
  if (last) return;
  const float x = at.x + 14.0f * unit, down = end.y + 12.0f * unit;
  draw.AddLine({x, end.y}, {x, down}, theme.axis, 1.5f * unit);
  draw.AddTriangleFilled({x - 4.0f * unit, down - 3.0f * unit},
                         {x + 4.0f * unit, down - 3.0f * unit}, {x, down + 2.0f * unit},
                         theme.axis);
  if (left_out > 0) {
    draw.AddText(frame.fonts.small, font_size(*frame.fonts.small),
                 {x + 10.0f * unit, end.y - 1.0f * unit}, theme.faint,
                 fmt::format("{} more", counted(left_out, "layer")).c_str());
  }
  ImGui::Dummy({0, 7.0f * unit});
}

void draw_chain(const Frame& frame, const Diagnosis& diagnosis) {
  const size_t count = diagnosis.chain.size();
  if (count < 2) return;
  for (size_t i = 0; i < count; ++i) {
    const bool cut = count > kMostHops;
    const size_t before = kMostHops - 2;
    if (cut && i >= before && i + 1 < count) continue;
    const auto left_out = static_cast<int64_t>(cut && i + 1 == before ? count - before - 1 : 0);
    draw_node(frame, diagnosis.chain[i], i, i + 1 == count, left_out);
  }
}

/// Returns the diagnosis of the selected lane; null without one.
const Diagnosis* diagnosis_of(const Frame& frame, const Report& report) {
  return report.diagnosis && report.diagnosis->lane == frame.at.lane ? &*report.diagnosis : nullptr;
}

bool is_harmed(const Frame& frame, const Report& report) {
  const Diagnosis* diagnosis = diagnosis_of(frame, report);
  return diagnosis != nullptr && diagnosis->harmed;
}

void draw_why(const Frame& frame, const Report& report) {
  if (!is_harmed(frame, report)) return;
  const Diagnosis* diagnosis = diagnosis_of(frame, report);
  heading(frame, "answers/why", "WHY");
  ui::text_wrapped("answers/cause", diagnosis->cause.empty()
                                        ? "No recorded tensor shows the cause."
                                        : plain_text(cause_sentence(*diagnosis)));
  ImGui::Dummy({0, 2.0f * frame.scale});
  draw_chain(frame, *diagnosis);
}

/// A way out: an edit of this lane, or another lane of the run that is healthy.
struct Fix {
  PlanEdit edit{};
  int lane = -1;  ///< of a sibling; -1: the edit
  std::string text{}, cost{};
  Cost price{};
};

std::vector<Fix> fixes_of(const Frame& frame, const Report& report) {
  std::vector<Fix> fixes;
  const LaneInfo& lane = frame.lane_info();
  const auto add = [&](const PlanEdit& edit, const std::string& text) {
    const bool known =
        std::any_of(fixes.begin(), fixes.end(), [&](const Fix& fix) { return fix.edit == edit; });
    if (edit.empty() || known) return;
    Fix fix{.edit = edit, .text = plain_text(text), .price = cost_of(lane, edit)};
    fix.cost = cost_words(fix.price);
    fixes.push_back(std::move(fix));
  };
  if (const Diagnosis* diagnosis = diagnosis_of(frame, report)) {
    add(diagnosis->fix, diagnosis->fix_text);
    for (const PlanEdit& each : diagnosis->alternatives) add(each, edit_sentence(each));
  }
  if (report.recommendation && report.recommendation->lane == frame.at.lane) {
    add(report.recommendation->edit, report.recommendation->text);
  }
  std::stable_sort(fixes.begin(), fixes.end(),
                   [](const Fix& a, const Fix& b) { return is_cheaper(a.price, b.price); });
  for (const int sibling : healthy_siblings(report, frame.at.lane)) {
    fixes.push_back(
        {.lane = sibling,
         .text = fmt::format("Use the plan of {}.", frame.run.view().lane(sibling).name),
         .cost = report.run.inference ? "Right in this run" : "Trained healthy in this run"});
  }
  return fixes;
}

void draw_todo(const Frame& frame, const Report& report) {
  const std::vector<Fix> fixes = fixes_of(frame, report);
  if (fixes.empty()) return;
  heading(frame, "answers/todo", "WHAT TO DO");
  for (size_t i = 0; i < fixes.size(); ++i) {
    const Fix& fix = fixes[i];
    const std::string path = fmt::format("answers/fix/{}", i);
    if (fix.lane < 0) {
      draw_edit_switch(frame, fix.edit, path);
    } else {
      if (ui::small_button(path + "/show", "show"))
        frame.view.lane = frame.run.view().lane(fix.lane).name;
      ui::tip("Selects that lane.");
      ImGui::SameLine();
    }
    ImGui::BeginGroup();
    ui::text_wrapped(path, fix.text);
    soft(frame, path + "/cost", fix.cost.empty() ? "Costs nothing." : fix.cost + ".");
    ImGui::EndGroup();
  }
  const bool any = !frame.view.edits.empty();
  ImGui::BeginDisabled(!any);
  if (ui::button("answers/try", "Try it")) frame.ask(Request::Kind::try_plan);
  ui::tip("Trains the selected changes beside this run and shows both (Ctrl+T).");
  ImGui::SameLine();
  if (ui::button("answers/save", "Save plan ...")) frame.ask(Request::Kind::save_plan);
  ImGui::SameLine();
  if (ui::button("answers/copy", "Copy command")) frame.ask(Request::Kind::copy_command);
  ImGui::EndDisabled();
}

void draw_proof(const Frame& frame, const Report& report) {
  if (report.proof && report.proof_lane == frame.at.lane) {
    heading(frame, "answers/proof", "DOES IT HELP?");
    ImGui::PushStyleColor(ImGuiCol_Text, report.proof->holds ? frame.theme.good : frame.theme.warn);
    ui::text_wrapped("answers/proof/text", plain_text(report.proof->text));
    ImGui::PopStyleColor();
    return;
  }
  const Diagnosis* diagnosis = diagnosis_of(frame, report);
  if (diagnosis == nullptr || diagnosis->fix.empty()) return;
  heading(frame, "answers/proof", "DOES IT HELP?");
  soft(frame, "answers/proof/text",
       "Not tried yet. \"Try it\" trains it here. `halfscope diagnose RUN --verify` also proves "
       "that "
       "nothing less helps.");
}

/// Draws accuracy and output error of every lane, and the layers that differ most.
void draw_inference(const Frame& frame, const Report& report) {
  if (!report.run.inference) return;
  heading(frame, "answers/outputs", "RESULTS OF EACH LANE");
  const std::vector<Score> scores = scores_of(report);
  if (ImGui::BeginTable("answers/lanes", 2 + static_cast<int>(scores.size()),
                        ImGuiTableFlags_RowBg)) {
    ImGui::TableSetupColumn("lane", ImGuiTableColumnFlags_WidthStretch, 2.0f);
    for (const Score& score : scores) {
      ImGui::TableSetupColumn(score.name, ImGuiTableColumnFlags_WidthStretch, 1.0f);
    }
    ImGui::TableSetupColumn("output error", ImGuiTableColumnFlags_WidthStretch, 1.5f);
    ImGui::TableHeadersRow();
    for (size_t i = 0; i < report.lanes.size(); ++i) {
      const LaneReport& lane = report.lanes[i];
      const std::string path = fmt::format("answers/lane/{}", lane.name);
      ImGui::TableNextRow();
      ImGui::TableNextColumn();
      ui::text(path, lane.name);
      for (const Score& score : scores) {
        ImGui::TableNextColumn();
        ui::text(path + "/" + score.name, score.text(lane));
      }
      ImGui::TableNextColumn();
      ui::text(path + "/error", lane.reference                      ? std::string("reference")
                                : !lane.output_error                ? std::string("-")
                                : std::isfinite(*lane.output_error) ? percent(*lane.output_error)
                                                                    : std::string("not finite"));
    }
    ImGui::EndTable();
  }
}

/// Lists the layers whose results differ most from the full-precision lane's.
void draw_worst_layers(const Frame& frame, const Report& report) {
  // The chain says more about a lane that breaks.
  if (is_harmed(frame, report)) return;
  const auto found =
      std::find_if(report.errors.begin(), report.errors.end(), [&](const ErrorReport& each) {
        return each.lane == frame.at.lane && each.other == report.reference;
      });
  if (found == report.errors.end()) return;
  std::vector<const SiteErrorReport*> sites;
  for (const SiteErrorReport& site : found->sites) {
    if (site.role == Role::activation && site.total) sites.push_back(&site);
  }
  if (sites.empty()) return;
  std::stable_sort(sites.begin(), sites.end(),
                   [](const auto* a, const auto* b) { return *a->total > *b->total; });
  heading(frame, "answers/worst", "LAYERS THAT DIFFER MOST FROM FULL PRECISION");
  for (size_t i = 0; i < std::min(sites.size(), kWorst); ++i) {
    const std::string path = fmt::format("answers/worst/{}", i);
    if (ui::selectable(path, fmt::format("{}##{}", sites[i]->layer, i).c_str(),
                       frame.view.layer == sites[i]->layer)) {
      frame.view.layer = sites[i]->layer;
      frame.view.site = sites[i]->name;
    }
    const std::string error = percent(*sites[i]->total);
    ImGui::SameLine(ImGui::GetContentRegionMax().x - text_width(frame.fonts.text, error));
    ui::text(path + "/error", error);
  }
}

/// Says which tensors are nearest to overflow and to becoming zero.
void draw_room(const Frame& frame, const Report& report) {
  if (is_harmed(frame, report)) return;
  struct Nearest {
    std::optional<double> SiteReport::*bits;
    const char* moves;  ///< before "by a factor of"
    const char* then;   ///< what happens beyond it
    const SiteReport* site = nullptr;
  };
  Nearest sides[] = {{&SiteReport::headroom_bits, "grow", "overflows"},
                     {&SiteReport::headroom_down_bits, "shrink", "becomes zero in"}};
  for (const LayerReport& layer : report.layers) {
    if (layer.lane != frame.at.lane) continue;
    for (const SiteReport& site : layer.sites) {
      for (Nearest& side : sides) {
        const std::optional<double>& bits = site.*side.bits;
        // Codes are scaled to the end of their range, and fp32's is too far to be of interest.
        if (!bits || !site.scale.empty() || full_precision(site.format)) continue;
        if (side.site == nullptr || *bits < *(side.site->*side.bits)) side.site = &site;
      }
    }
  }
  if (sides[0].site == nullptr) return;
  heading(frame, "answers/room", "NEAREST TO THE LIMITS");
  for (const Nearest& side : sides) {
    if (side.site == nullptr) continue;
    const double bits = *(side.site->*side.bits);
    const std::string format = format_name(side.site->format);
    ui::text_wrapped(
        fmt::format("answers/room/{}", side.moves),
        bits < 0.0 ? fmt::format("{}: a part of it {} {}.", side.site->name, side.then, format)
                   : fmt::format("{} can {} by a factor of 2^{:.1f} before it {} {}.",
                                 side.site->name, side.moves, bits, side.then, format));
  }
}

/// Says which formats would hold the run: the first question about a healthy one.
void draw_formats(const Frame& frame, const Report& report) {
  const LaneReport& own = report.lanes[static_cast<size_t>(frame.at.lane)];
  if (own.state == Verdict::State::broken) return;
  heading(frame, "answers/formats", "WOULD ANOTHER FORMAT DO? (ESTIMATE)");
  SpectrumRows& rows = spectrum_rows(frame);
  for (const char* window : {"bf16", "fp16", "e4m3fn/tensor", "e5m2/tensor", "mxfp8", "nvfp4"}) {
    const Lens lens = *parse_lens(window);
    const SpectrumRows::WholeRun& whole = rows.whole_run(lens);
    const std::string path = fmt::format("answers/format/{}", window);
    if (ui::selectable(path, lens_name(lens).c_str(), frame.view.window == window))
      frame.view.window = window;
    ui::tip(whole.text.c_str());
    const std::string lost =
        whole.lost.high <= 0.0 ? "0 lost" : percent(whole.lost.share()) + " lost";
    ImGui::SameLine(ImGui::GetContentRegionMax().x - text_width(frame.fonts.text, lost));
    ImGui::PushStyleColor(ImGuiCol_Text, whole.lost.share() >= 0.01         ? frame.theme.lost
                                         : whole.lost.share() >= kShownLoss ? frame.theme.warn
                                                                            : frame.theme.good);
    ui::text(path + "/lost", lost);
    ImGui::PopStyleColor();
  }
}

}  // namespace

void draw_answers(const Frame& frame) {
  const Report* report = frame.run.report();
  if (report == nullptr) return empty_note("answers/empty", "Analyzing the run ...", frame.theme);
  draw_why(frame, *report);
  draw_todo(frame, *report);
  draw_proof(frame, *report);
  draw_inference(frame, *report);
  draw_worst_layers(frame, *report);
  draw_room(frame, *report);
  draw_formats(frame, *report);
}

}  // namespace halfscope::gui
