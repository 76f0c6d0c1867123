// SPDX-License-Identifier: MIT
#include "gui/widgets/track.h"

#include <imgui_internal.h>
#include <imgui_stdlib.h>

#include <algorithm>

#include "gui/widgets/imgui_compat.h"

namespace halfscope::gui {
namespace {

thread_local Tracker* current = nullptr;

/// Uses a widget's path as its ID, so that equal labels do not clash.
class PathId {
 public:
  explicit PathId(std::string_view path) { ImGui::PushID(path.data(), path.data() + path.size()); }
  ~PathId() { ImGui::PopID(); }
  PathId(const PathId&) = delete;
  PathId& operator=(const PathId&) = delete;
};

}  // namespace

const TrackedItem* Tracker::find(std::string_view path) const {
  const auto found = items_.find(path);
  // Remove items that the last frames did not draw.
  return found != items_.end() && found->second.frame >= frame_ - 1 ? &found->second : nullptr;
}

void Tracker::begin_frame() { ++frame_; }

void Tracker::add(std::string_view path, TrackedItem item) {
  item.frame = frame_;
  const auto found = items_.find(path);
  if (found == items_.end()) {
    items_.emplace(std::string(path), std::move(item));
    return;
  }
  if (found->second.frame == frame_ && conflict_.empty()) conflict_ = path;
  found->second = std::move(item);
}

Tracker* tracker() noexcept { return current; }
void set_tracker(Tracker* tracker) noexcept { current = tracker; }

void track_item(std::string_view path, std::string_view text) {
  if (current == nullptr) return;
  const ImGuiContext& context = *ImGui::GetCurrentContext();
  current->add(path, {.min = ImGui::GetItemRectMin(),
                      .max = ImGui::GetItemRectMax(),
                      .id = context.LastItemData.ID,
                      .visible = ImGui::IsItemVisible(),
                      .text = std::string(text)});
}

void track_rect(std::string_view path, ImVec2 min, ImVec2 max, std::string_view text) {
  if (current == nullptr) return;
  current->add(path, {.min = min,
                      .max = max,
                      .visible = ImGui::IsRectVisible(min, max),
                      .text = std::string(text)});
}

namespace ui {

bool button(std::string_view path, const char* label, ImVec2 size) {
  const PathId id(path);
  const bool pressed = ImGui::Button(label, size);
  track_item(path, label);
  return pressed;
}

bool small_button(std::string_view path, const char* label) {
  const PathId id(path);
  const bool pressed = ImGui::SmallButton(label);
  track_item(path, label);
  return pressed;
}

bool checkbox(std::string_view path, const char* label, bool* on) {
  const PathId id(path);
  // The outline makes an empty box visible.
  ImGui::PushStyleVar(ImGuiStyleVar_FrameBorderSize, std::max(1.0f, ImGui::GetFontSize() / 14.0f));
  ImGui::PushStyleColor(ImGuiCol_Border, ImGui::GetStyleColorVec4(ImGuiCol_ScrollbarGrabActive));
  const bool changed = ImGui::Checkbox(label, on);
  ImGui::PopStyleColor();
  ImGui::PopStyleVar();
  track_item(path, *on ? "on" : "off");
  return changed;
}

bool segment(std::string_view path, const char* label, bool active) {
  const PathId id(path);
  if (active) {
    const ImVec4 color = ImGui::GetStyleColorVec4(ImGuiCol_HeaderActive);
    ImGui::PushStyleColor(ImGuiCol_Button, color);
    ImGui::PushStyleColor(ImGuiCol_ButtonHovered, color);
  } else {
    ImGui::PushStyleColor(ImGuiCol_Button, ImGui::GetStyleColorVec4(ImGuiCol_FrameBg));
    ImGui::PushStyleColor(ImGuiCol_ButtonHovered,
                          ImGui::GetStyleColorVec4(ImGuiCol_FrameBgHovered));
  }
  const bool pressed = ImGui::Button(label);
  ImGui::PopStyleColor(2);
  track_item(path, active ? "on" : "off");
  return pressed;
}

bool selectable(std::string_view path, const char* label, bool selected, ImVec2 size,
                ImGuiSelectableFlags flags) {
  const PathId id(path);
  const bool pressed = ImGui::Selectable(label, selected, flags, size);
  track_item(path, label);
  return pressed;
}

bool input_text(std::string_view path, const char* hint, std::string* text, float width) {
  const PathId id(path);
  ImGui::SetNextItemWidth(width);
  const bool changed = ImGui::InputTextWithHint("##text", hint, text);
  track_item(path, *text);
  return changed;
}

bool slider(std::string_view path, double* value, double low, double high, const char* format,
            float width) {
  const PathId id(path);
  ImGui::SetNextItemWidth(width);
  const bool changed = ImGui::SliderScalar("##value", ImGuiDataType_Double, value, &low, &high,
                                           format, ImGuiSliderFlags_AlwaysClamp);
  track_item(path, std::to_string(*value));
  return changed;
}

bool begin_combo(std::string_view path, const char* preview, float width) {
  // No PathId: an open list is a window with its own ID stack, which PopID would find.
  const std::string label = "##" + std::string(path);
  ImGui::SetNextItemWidth(width);
  const bool open = ImGui::BeginCombo(label.c_str(), preview);
  // With an open list, the previous item is no longer the box.
  if (!open) track_item(path, preview);
  return open;
}

bool menu_item(std::string_view path, const char* label, const char* shortcut, bool selected,
               bool enabled) {
  const PathId id(path);
  const bool chosen = ImGui::MenuItem(label, shortcut, selected, enabled);
  track_item(path, label);
  return chosen;
}

void text(std::string_view path, std::string_view text) {
  ImGui::TextUnformatted(text.data(), text.data() + text.size());
  track_item(path, text);
}

void text_wrapped(std::string_view path, std::string_view text) {
  ImGui::PushTextWrapPos(0.0f);
  ImGui::TextUnformatted(text.data(), text.data() + text.size());
  ImGui::PopTextWrapPos();
  track_item(path, text);
}

void tip(const char* text) {
  if (!ImGui::IsItemHovered(ImGuiHoveredFlags_AllowWhenDisabled)) return;
  ImGui::BeginTooltip();
  ImGui::PushTextWrapPos(ImGui::GetFontSize() * 26.0f);
  ImGui::TextUnformatted(text);
  ImGui::PopTextWrapPos();
  ImGui::EndTooltip();
}

}  // namespace ui
}  // namespace halfscope::gui
