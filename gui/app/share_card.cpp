// SPDX-License-Identifier: MIT
// The share card: verdict, Spectrum and loss of a run as one picture without controls.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/report/report_parts.h"
#include "core/number_text.h"
#include "gui/app/app.h"
#include "gui/panels/spectrum.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {

void App::draw_share_card() {
  PictureTarget nothing;  // a target makes panels leave out their controls
  Frame frame = make_frame();
  frame.picture = &nothing;
  const float unit = scale();
  const Theme& theme = *theme_;
  const Report& report = *run_->report();
  const RunInfo& info = run_->view().info();
  const auto line = [&](const char* path, ImFont* font, ImU32 color, const std::string& text) {
    ImGui::PushFont(font);
    ImGui::PushStyleColor(ImGuiCol_Text, color);
    ui::text_wrapped(path, text);
    ImGui::PopStyleColor();
    ImGui::PopFont();
  };
  ImGui::PushFont(fonts_.bold);
  ui::text("card/brand", "HalfScope");
  ImGui::PopFont();
  const std::string about = fmt::format("{} \u00b7 {} \u00b7 {} steps", info.model,
                                        frame.lane_info().name, grouped(run_->step_count()));
  ImGui::SameLine(ImGui::GetContentRegionMax().x - text_width(fonts_.text, about));
  ImGui::PushStyleColor(ImGuiCol_Text, theme.soft);
  ui::text("card/run", about);
  ImGui::PopStyleColor();
  line("card/headline", fonts_.large, theme.ink, plain_text(report.verdict.headline));
  const Answer answer = answer_of(report);
  // The advice is for one lane, and says how sure it is.
  const bool advised = !answer.todo.empty() && answer.lane == frame.at.lane;
  const std::string more =
      advised ? fmt::format("What to do: {} {}", answer.todo, answer.basis) : report.verdict.more;
  if (!more.empty())
    line("card/more", fonts_.text, theme.verdict(report.verdict.state), plain_text(more));
  ImGui::Dummy({0, 4 * unit});
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const bool trains = !info.inference;
  const float loss = trains ? std::clamp(room.y * 0.24f, 60 * unit, 130 * unit) : 0.0f;
  const ImGuiWindowFlags still = ImGuiWindowFlags_NoScrollbar | ImGuiWindowFlags_NoScrollWithMouse;
  ImGui::BeginChild("card/spectrum", {room.x, room.y - loss - (trains ? 8 * unit : 0.0f)}, true,
                    still);
  gui::draw_spectrum(frame);
  ImGui::EndChild();
  if (!trains) return;
  ImGui::BeginChild("card/loss", {room.x, loss}, true, still);
  gui::draw_loss(frame);
  ImGui::EndChild();
}

}  // namespace halfscope::gui
