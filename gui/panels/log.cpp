// SPDX-License-Identifier: MIT
// The log: messages of the viewer, and output of the training that it started.
#include <fmt/format.h>

#include "gui/panels/panel.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {

void draw_log(const Frame& frame) {
  const LogView& log = frame.log;
  if (log.is_training && ui::small_button("log/stop", "Stop the training")) {
    frame.ask(Request::Kind::stop_trial);
  }
  ImGui::PushStyleColor(ImGuiCol_ChildBg, 0);
  ImGui::BeginChild("log", {0, 0}, false, ImGuiWindowFlags_HorizontalScrollbar);
  ImGui::PushFont(frame.fonts.mono);
  for (size_t i = 0; i < log.lines.size(); ++i) {
    const bool bad = log.lines[i].starts_with("error: ");
    ImGui::PushStyleColor(ImGuiCol_Text, bad ? frame.theme.bad : frame.theme.ink);
    ui::text(fmt::format("log/{}", i), log.lines[i]);
    ImGui::PopStyleColor();
  }
  if (log.training != nullptr) ui::text("log/output", *log.training);
  if (log.lines.empty() && log.training == nullptr) {
    ImGui::TextDisabled("No messages yet.");
  }
  ImGui::PopFont();
  ImGui::EndChild();
  ImGui::PopStyleColor();
}

}  // namespace halfscope::gui
