// SPDX-License-Identifier: MIT
// Compatibility with Dear ImGui 1.86 (Debian 12) and later: one name for everything renamed since.
#pragma once

#include <imgui.h>
#include <imgui_internal.h>

namespace halfscope::gui {

#if IMGUI_VERSION_NUM >= 18700
using Key = ImGuiKey;
/// Letters and digits have their own names.
inline Key letter_key(char upper) { return static_cast<Key>(ImGuiKey_A + (upper - 'A')); }
inline Key symbol_key(char symbol) {
  switch (symbol) {
    case '[':
      return ImGuiKey_LeftBracket;
    case ']':
      return ImGuiKey_RightBracket;
    case '=':
      return ImGuiKey_Equal;
    case '-':
      return ImGuiKey_Minus;
    case ',':
      return ImGuiKey_Comma;
    case '.':
      return ImGuiKey_Period;
    case '/':
      return ImGuiKey_Slash;
    default:
      return static_cast<Key>(ImGuiKey_0 + (symbol - '0'));
  }
}
inline Key function_key(int number) { return static_cast<Key>(ImGuiKey_F1 + number - 1); }
inline bool key_pressed(Key key, bool repeat = false) { return ImGui::IsKeyPressed(key, repeat); }
inline bool named_key_pressed(ImGuiKey key, bool repeat = false) {
  return ImGui::IsKeyPressed(key, repeat);
}
#else
/// Codes of the window system: GLFW's, which are ASCII for printable keys.
using Key = int;
inline Key letter_key(char upper) { return upper; }
inline Key symbol_key(char symbol) { return symbol; }
inline Key function_key(int number) { return 289 + number; }  // GLFW_KEY_F1 is 290
inline bool key_pressed(Key key, bool repeat = false) { return ImGui::IsKeyPressed(key, repeat); }
inline bool named_key_pressed(ImGuiKey key, bool repeat = false) {
  return ImGui::IsKeyPressed(ImGui::GetKeyIndex(key), repeat);
}
#endif

/// Returns the height of a font's text in pixels, at the size it was loaded with.
inline float font_size(const ImFont& font) {
#if IMGUI_VERSION_NUM >= 19200
  return font.LegacySize;
#else
  return font.FontSize;
#endif
}

/// Gives the wheel to the item just submitted while the pointer is over it, so that its window does
/// not scroll.
inline void take_wheel() {
#if IMGUI_VERSION_NUM >= 18900
  ImGui::SetItemKeyOwner(ImGuiKey_MouseWheelY);
  ImGui::SetItemKeyOwner(ImGuiKey_MouseWheelX);
#else
  ImGui::SetItemUsingMouseWheel();
#endif
}

}  // namespace halfscope::gui
