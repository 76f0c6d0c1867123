// SPDX-License-Identifier: MIT
// Popups: "go to", the list of keys, and the float lab without a run.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/number_text.h"
#include "gui/app/app.h"
#include "gui/panels/float_lab.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {

namespace {
constexpr float kWideKeys = 1140.0f, kNarrowKeys = 800.0f;  ///< widths of the sheet of keys
}  // namespace

bool begin_popup(const char* name, ImVec2 size, bool opens, float top) {
  if (opens) ImGui::OpenPopup(name);
  const ImVec2 center = ImGui::GetMainViewport()->GetCenter();
  ImGui::SetNextWindowPos({center.x, ImGui::GetIO().DisplaySize.y * top}, ImGuiCond_Always,
                          {0.5f, 0.0f});
  // Keep it inside the window.
  const ImVec2 display = ImGui::GetIO().DisplaySize;
  ImGui::SetNextWindowSizeConstraints({0, 0}, {display.x * 0.96f, display.y * (0.98f - top)});
  ImGui::SetNextWindowSize({std::min(size.x, display.x * 0.96f), size.y});
  const bool open = ImGui::BeginPopup(name);
  if (open && named_key_pressed(ImGuiKey_Escape)) ImGui::CloseCurrentPopup();
  return open;
}

void App::close_popup() {
  popup_.clear();
  focus_popup_ = false;
}

void App::draw_popups() {
  if (popup_.empty()) return;
  if (popup_ == "bookmarks") draw_bookmarks();
  if (popup_ == "note") draw_note();
  if (popup_ == "palette") draw_palette();
  if (popup_ == "go_to") draw_go_to();
  if (popup_ == "keys") draw_keys();
  if (popup_ == "lab") {
    bool opens = !focus_popup_;
    focus_popup_ = true;
    const ImVec2 display = ImGui::GetIO().DisplaySize;
    if (begin_popup("lab", {display.x * 0.96f, display.y * 0.94f}, opens, 0.04f)) {
      draw_float_lab(lab_, *theme_, fonts_, scale());
      ImGui::EndPopup();
    } else {
      popup_.clear();
      focus_popup_ = false;
    }
  }
}

void App::draw_go_to() {
  bool opens = !focus_popup_;
  if (opens) go_to_text_.clear();
  if (!run_ || !begin_popup("go_to", {460 * scale(), 0}, opens)) {
    popup_.clear();
    focus_popup_ = false;
    return;
  }
  if (!focus_popup_) ImGui::SetKeyboardFocusHere();
  focus_popup_ = true;
  ui::input_text("go_to/text", "step number or part of a layer name", &go_to_text_, -1);
  const bool enter = named_key_pressed(ImGuiKey_Enter);
  bool done = false;
  int64_t step = -1;
  const char* end = go_to_text_.data() + go_to_text_.size();
  const auto [rest, error] = std::from_chars(go_to_text_.data(), end, step);
  if (error == std::errc{} && rest == end && step >= 0) {
    const std::string label = fmt::format("step {}", std::min(step, run_->step_count() - 1));
    if (ui::selectable("go_to/step", label.c_str(), true) || enter) {
      view_.cursor = std::min(step, run_->step_count() - 1);
      done = true;
    }
  } else if (!go_to_text_.empty()) {
    constexpr int kShown = 12;
    const Frame frame = make_frame();
    const std::vector<LayerModel>& layers = frame.lane().layers;
    int shown = 0;
    for (size_t i = 0; i < layers.size() && shown < kShown; ++i) {
      if (!passes_filter(layers[i].path, go_to_text_)) continue;
      if (ui::selectable("go_to/layer/" + layers[i].path, layers[i].path.c_str(), shown == 0) ||
          (shown == 0 && enter && !done)) {
        frame.select_layer(static_cast<int>(i));
        done = true;
      }
      ++shown;
    }
    if (shown == 0) ImGui::TextDisabled("No layer matches.");
  }
  if (done) {
    ImGui::CloseCurrentPopup();
    popup_.clear();
    focus_popup_ = false;
  }
  ImGui::EndPopup();
}

void App::show_note() {
  if (!run_ || run_->step_count() == 0) return;
  view_.cursor = selection().step;
  note_text_ = note_on(view_, view_.cursor);
  popup_ = "note";
}

void App::draw_note() {
  const bool opens = !focus_popup_;
  if (!run_ || !begin_popup("note", {460 * scale(), 0}, opens)) return close_popup();
  ImGui::PushFont(fonts_.bold);
  ui::text("note/title", "Note on step " + grouped(view_.cursor));
  ImGui::PopFont();
  if (opens) ImGui::SetKeyboardFocusHere();
  focus_popup_ = true;
  ui::input_text("note/text", "what happened here", &note_text_, -1);
  const bool enter = named_key_pressed(ImGuiKey_Enter);
  const bool saves = ui::button("note/save", "Save") || enter;
  ImGui::SameLine();
  ImGui::BeginDisabled(note_on(view_, view_.cursor).empty());
  const bool removes = ui::button("note/remove", "Remove");
  ImGui::EndDisabled();
  if (saves || removes) {
    set_note(view_, view_.cursor, removes ? "" : note_text_);
    ImGui::CloseCurrentPopup();
    close_popup();
  }
  ImGui::EndPopup();
}

void App::draw_keys() {
  bool opens = !focus_popup_;
  // Three columns if they fit, else two, with a scroll bar.
  const bool wide = ImGui::GetIO().DisplaySize.x * 0.96f > kWideKeys * scale();
  if (!begin_popup("keys", {(wide ? kWideKeys : kNarrowKeys) * scale(), 0}, opens)) {
    popup_.clear();
    focus_popup_ = false;
    return;
  }
  focus_popup_ = true;
  ImGui::PushFont(fonts_.bold);
  ui::text("keys/title", "Keyboard and mouse");
  ImGui::PopFont();
  ImGui::Columns(wide ? 3 : 2, "keys", false);
  const auto line = [this](const char* key, const char* what) {
    ImGui::PushStyleColor(ImGuiCol_Text, theme_->accent);
    ImGui::TextUnformatted(key);
    ImGui::PopStyleColor();
    ImGui::SameLine(110 * scale());  // of the column
    ImGui::TextUnformatted(what);
  };
  std::vector<const AppAction*> keys;
  for (const AppAction& action : app_actions()) {
    if (*action.shortcut) keys.push_back(&action);
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    if (wide && i == (keys.size() + 1) / 2) ImGui::NextColumn();
    line(keys[i]->shortcut, keys[i]->name);
  }
  ImGui::NextColumn();
  line("Wheel", "Zoom the steps at the pointer");
  line("Ctrl+wheel", "Zoom the heatmap's rows");
  line("Drag", "Pan along the steps");
  line("Shift+drag", "Select steps to zoom to");
  line("Double click", "Show all steps");
  line("Click", "Select the layer and the step");
  line("Right click", "Open a menu");
  line("Drag the bars", "Try another loss scale");
  line("Left, Right", "Fold or open a group of the list");
  line("Esc", "Close, or restore a region");
  ImGui::Columns(1);
  ImGui::EndPopup();
}

}  // namespace halfscope::gui
