// SPDX-License-Identifier: MIT
// UiDriver: a simulated user without a display. It draws frames into memory, and moves the mouse
// and presses keys by the paths of widgets.
#pragma once

#include <imgui.h>

#include <functional>
#include <string>
#include <string_view>

#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/theme.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {

struct Modifiers {
  bool ctrl = false, shift = false, alt = false;
};

class UiDriver {
 public:
  /// `draw` submits one frame's windows; the driver calls NewFrame and Render around it.
  explicit UiDriver(std::function<void()> draw = {}, ImVec2 size = {1440, 900});
  ~UiDriver();
  UiDriver(const UiDriver&) = delete;
  UiDriver& operator=(const UiDriver&) = delete;

  void draw_with(std::function<void()> draw) { draw_ = std::move(draw); }
  const Fonts& fonts() const noexcept { return fonts_; }

  /// Draws frames. Fails the test on a path that two widgets share, and on vertices that are not
  /// finite.
  void frame(int count = 1);

  /// Returns the item of that path; fails the test and returns an empty one if it is not drawn.
  const TrackedItem& item(std::string_view path);
  bool has(std::string_view path) const;
  std::string text(std::string_view path) { return item(path).text; }

  void move_to(ImVec2 place);
  void hover(std::string_view path) { move_to(item(path).center()); }
  void click(std::string_view path, Modifiers held = {});
  void click_at(ImVec2 place, Modifiers held = {}, int button = 0);
  void double_click_at(ImVec2 place);
  /// Drags from the middle of the item.
  void drag(std::string_view path, ImVec2 by, Modifiers held = {});
  void drag_from(ImVec2 place, ImVec2 by, Modifiers held = {}, int button = 0);
  void wheel(std::string_view path, float notches, Modifiers held = {});
  void wheel_at(ImVec2 place, float notches, Modifiers held = {});
  void press(Key key, Modifiers held = {});
  void press_named(ImGuiKey key, Modifiers held = {});
  /// Types into the focused widget.
  void type(std::string_view text);

  Tracker& tracker() noexcept { return tracker_; }
  /// Returns the number of indices of the last frame: three per triangle.
  int indices() const noexcept { return indices_; }

 private:
  void button(int which, bool down);
  void hold(Modifiers held);

  std::function<void()> draw_;
  ImGuiContext* context_;
  Fonts fonts_;
  Tracker tracker_;
  int indices_ = 0;
  bool in_frame_ = false;
};

}  // namespace halfscope::gui
