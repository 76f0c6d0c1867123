// SPDX-License-Identifier: MIT
// Widgets with a path, such as "layers/filter". A tracker (set by tests and scripted screenshots)
// remembers the position and text of each, so that a driver can click and read it by its path.
// Without a tracker they are plain Dear ImGui widgets.
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
  /// Finds an item of the last complete frame by its path.
  const TrackedItem* find(std::string_view path) const;
  const std::map<std::string, TrackedItem, std::less<>>& items() const noexcept { return items_; }
  /// Returns a path that two items of one frame share, which Dear ImGui 1.86 does not report.
  const std::string& conflict() const noexcept { return conflict_; }

  void begin_frame();
  void add(std::string_view path, TrackedItem item);

 private:
  std::map<std::string, TrackedItem, std::less<>> items_;
  std::string conflict_;
  int frame_ = 0;
};

/// Returns the tracker of the calling thread, or null.
Tracker* tracker() noexcept;
void set_tracker(Tracker* tracker) noexcept;

/// Registers the item just submitted, or a rectangle drawn by hand, with the tracker.
void track_item(std::string_view path, std::string_view text = {});
void track_rect(std::string_view path, ImVec2 min, ImVec2 max, std::string_view text = {});

namespace ui {

bool button(std::string_view path, const char* label, ImVec2 size = {0, 0});
bool small_button(std::string_view path, const char* label);
bool checkbox(std::string_view path, const char* label, bool* on);
/// Draws one of several exclusive choices as a segment.
bool segment(std::string_view path, const char* label, bool active);
bool selectable(std::string_view path, const char* label, bool selected, ImVec2 size = {0, 0},
                ImGuiSelectableFlags flags = 0);
bool input_text(std::string_view path, const char* hint, std::string* text, float width);
bool slider(std::string_view path, double* value, double low, double high, const char* format,
            float width);
/// Begins a drop-down list; the caller draws the entries before ImGui::EndCombo.
bool begin_combo(std::string_view path, const char* preview, float width);
bool menu_item(std::string_view path, const char* label, const char* shortcut = nullptr,
               bool selected = false, bool enabled = true);
void text(std::string_view path, std::string_view text);
void text_wrapped(std::string_view path, std::string_view text);
/// Shows a wrapped tooltip for the previous item after a short delay.
void tip(const char* text);

}  // namespace ui
}  // namespace halfscope::gui
