// SPDX-License-Identifier: MIT
#include "tests/gui/ui_driver.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

namespace halfscope::gui {
namespace {

/// 1.86 takes the state of keys by the window system's codes, and has its own names mapped to
/// some of them; later releases take events.
void set_named_keys(ImGuiIO& io) {
#if IMGUI_VERSION_NUM < 18700
  for (int key = 0; key < ImGuiKey_COUNT; ++key) io.KeyMap[key] = 400 + key;
#else
  (void)io;
#endif
}

void send_key(ImGuiIO& io, Key key, bool down) {
#if IMGUI_VERSION_NUM < 18700
  io.KeysDown[key] = down;
#else
  io.AddKeyEvent(key, down);
#endif
}

}  // namespace

UiDriver::UiDriver(std::function<void()> draw, ImVec2 size)
    : draw_(std::move(draw)), context_(ImGui::CreateContext()) {
  setenv("HALFSCOPE_PROGRESS", "", 1);  // not the user's solved puzzles
  ImGuiIO& io = ImGui::GetIO();
  io.DisplaySize = size;
  io.IniFilename = nullptr;
  io.DeltaTime = 1.0f / 60.0f;
  io.BackendFlags |= ImGuiBackendFlags_RendererHasVtxOffset;  // as OpenGL 3.3 has it
  set_named_keys(io);
  fonts_ = load_fonts(1.0f);
  unsigned char* pixels = nullptr;
  int width = 0, height = 0;
  io.Fonts->GetTexDataAsRGBA32(&pixels, &width, &height);
  io.Fonts->SetTexID((ImTextureID)(intptr_t)1);
  apply_style(dark_theme(), 1.0f);
  set_tracker(&tracker_);
}

UiDriver::~UiDriver() {
  set_tracker(nullptr);
  ImGui::DestroyContext(context_);
}

void UiDriver::frame(int count) {
  for (int i = 0; i < count; ++i) {
    tracker_.begin_frame();
    ImGui::NewFrame();
    if (draw_) draw_();
    ImGui::Render();
    EXPECT_EQ(tracker_.conflict(), "") << "two widgets of one path";
    const ImDrawData& data = *ImGui::GetDrawData();
    indices_ = data.TotalIdxCount;
    for (int list = 0; list < data.CmdListsCount; ++list) {
      for (const ImDrawVert& vertex : data.CmdLists[list]->VtxBuffer) {
        if (!std::isfinite(vertex.pos.x) || !std::isfinite(vertex.pos.y)) {
          ADD_FAILURE() << "a vertex that is not finite";
          return;
        }
      }
    }
  }
}

const TrackedItem& UiDriver::item(std::string_view path) {
  static const TrackedItem kNone;
  const TrackedItem* found = tracker_.find(path);
  if (found == nullptr) {
    std::string known;
    for (const auto& [name, each] : tracker_.items()) known += "\n  " + name;
    ADD_FAILURE() << "nothing is drawn as " << path << ", only" << known;
    return kNone;
  }
  return *found;
}

bool UiDriver::has(std::string_view path) const { return tracker_.find(path) != nullptr; }

void UiDriver::move_to(ImVec2 place) {
  ImGuiIO& io = ImGui::GetIO();
#if IMGUI_VERSION_NUM < 18700
  io.MousePos = place;
#else
  io.AddMousePosEvent(place.x, place.y);
#endif
  frame();
}

void UiDriver::button(int which, bool down) {
  ImGuiIO& io = ImGui::GetIO();
#if IMGUI_VERSION_NUM < 18700
  io.MouseDown[which] = down;
#else
  io.AddMouseButtonEvent(which, down);
#endif
  frame();
}

void UiDriver::hold(Modifiers held) {
  ImGuiIO& io = ImGui::GetIO();
#if IMGUI_VERSION_NUM < 18700
  io.KeyCtrl = held.ctrl;
  io.KeyShift = held.shift;
  io.KeyAlt = held.alt;
#else
  io.AddKeyEvent(ImGuiMod_Ctrl, held.ctrl);
  io.AddKeyEvent(ImGuiMod_Shift, held.shift);
  io.AddKeyEvent(ImGuiMod_Alt, held.alt);
#endif
}

void UiDriver::click(std::string_view path, Modifiers held) { click_at(item(path).center(), held); }

void UiDriver::click_at(ImVec2 place, Modifiers held, int which) {
  hold(held);
  move_to(place);
  button(which, true);
  button(which, false);
  hold({});
  // Longer than a double click takes, so that two clicks in a row stay two.
  ImGui::GetIO().DeltaTime = 0.5f;
  frame();
  ImGui::GetIO().DeltaTime = 1.0f / 60.0f;
}

void UiDriver::double_click_at(ImVec2 place) {
  move_to(place);
  for (int i = 0; i < 2; ++i) {
    button(0, true);
    button(0, false);
  }
  ImGui::GetIO().DeltaTime = 0.5f;
  frame();
  ImGui::GetIO().DeltaTime = 1.0f / 60.0f;
}

void UiDriver::drag(std::string_view path, ImVec2 by, Modifiers held) {
  drag_from(item(path).center(), by, held);
}

void UiDriver::drag_from(ImVec2 place, ImVec2 by, Modifiers held, int which) {
  hold(held);
  move_to(place);
  button(which, true);
  constexpr int kMoves = 6;
  for (int i = 1; i <= kMoves; ++i) {
    const float part = static_cast<float>(i) / kMoves;
    move_to({place.x + by.x * part, place.y + by.y * part});
  }
  button(which, false);
  hold({});
  frame();
}

void UiDriver::wheel(std::string_view path, float notches, Modifiers held) {
  wheel_at(item(path).center(), notches, held);
}

void UiDriver::wheel_at(ImVec2 place, float notches, Modifiers held) {
  hold(held);
  move_to(place);
  ImGuiIO& io = ImGui::GetIO();
#if IMGUI_VERSION_NUM < 18700
  io.MouseWheel = notches;
#else
  io.AddMouseWheelEvent(0.0f, notches);
#endif
  frame();
  hold({});
  frame();
}

void UiDriver::press(Key key, Modifiers held) {
  ImGuiIO& io = ImGui::GetIO();
  hold(held);
  send_key(io, key, true);
  frame();
  send_key(io, key, false);
  hold({});
  frame();
}

void UiDriver::press_named(ImGuiKey key, Modifiers held) {
#if IMGUI_VERSION_NUM < 18700
  press(400 + key, held);
#else
  press(key, held);
#endif
}

void UiDriver::type(std::string_view text) {
  for (const char c : text) {
    ImGui::GetIO().AddInputCharacter(static_cast<unsigned char>(c));
    frame();
  }
  frame();
}

}  // namespace halfscope::gui
