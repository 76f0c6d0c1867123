// SPDX-License-Identifier: MIT
// Widgets with a path, such as "layers/filter". A tracker, where one is set (tests and scripted
// screenshots), remembers where each was drawn and what it said, so that a driver can click it by
// its path and read it. Without a tracker they are Dear ImGui's own.
#pragma once

#include <imgui.h>

#include <map>
#include <string>
#include <string_view>

namespace halfscope::gui {

struct TrackedItem {
  ImVec2 min{}, max{};
  ImGuiID id = 0;
  int frame = 0;
  bool visible = false;  ///< not clipped away
  std::string text{};
  ImVec2 center() const noexcept { return {(min.x + max.x) / 2, (min.y + max.y) / 2}; }
};

class Tracker {
 public:
  /// Items of the last frame that was drawn whole are found by path.
  const TrackedItem* find(std::string_view path) const;
  const std::map<std::string, TrackedItem, std::less<>>& items() const noexcept { return items_; }
  /// Paths that two items of one frame had, which Dear ImGui 1.86 does not tell.
  const std::string& conflict() const noexcept { return conflict_; }

  void begin_frame();
  void add(std::string_view path, TrackedItem item);

 private:
  std::map<std::string, TrackedItem, std::less<>> items_;
  std::string conflict_;
  int frame_ = 0;
};

/// The tracker of the calling thread, or null.
Tracker* tracker() noexcept;
void set_tracker(Tracker* tracker) noexcept;

/// Tells the tracker of the item just submitted, or of a rectangle that was drawn by hand.
void track_item(std::string_view path, std::string_view text = {});
void track_rect(std::string_view path, ImVec2 min, ImVec2 max, std::string_view text = {});

namespace ui {

bool button(std::string_view path, const char* label, ImVec2 size = {0, 0});
bool small_button(std::string_view path, const char* label);
bool checkbox(std::string_view path, const char* label, bool* on);
/// One of several that exclude each other, drawn as a segment.
bool segment(std::string_view path, const char* label, bool active);
bool selectable(std::string_view path, const char* label, bool selected, ImVec2 size = {0, 0},
                ImGuiSelectableFlags flags = 0);
bool input_text(std::string_view path, const char* hint, std::string* text, float width);
bool slider(std::string_view path, double* value, double low, double high, const char* format,
            float width);
/// A closed list; the entries are drawn by the caller between begin_combo and ImGui::EndCombo.
bool begin_combo(std::string_view path, const char* preview, float width);
bool menu_item(std::string_view path, const char* label, const char* shortcut = nullptr,
               bool selected = false, bool enabled = true);
void text(std::string_view path, std::string_view text);
void text_wrapped(std::string_view path, std::string_view text);
/// The tooltip of the item before, after a short while, wrapped.
void tip(const char* text);

}  // namespace ui
}  // namespace halfscope::gui
