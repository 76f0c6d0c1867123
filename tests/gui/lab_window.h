// SPDX-License-Identifier: MIT
// The float lab in a window that tests drive.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "gui/panels/float_lab.h"
#include "tests/gui/ui_driver.h"

namespace halfscope::gui {

class LabWindow : public ::testing::Test {
 protected:
  explicit LabWindow(ImVec2 size) : size_(size), ui([this] { draw(); }, size) { ui.frame(2); }

  /// Replaces the text in a field.
  void enter(const std::string& path, const char* text) {
    ui.click(path);
    ui.press_named(ImGuiKey_A, {.ctrl = true});
    ui.type(text);
    ui.frame(2);
  }
  /// Draws until `busy` returns false, for at most a minute.
  void wait_while(const std::function<bool()>& busy) {
    ui.frame(2);
    for (int i = 0; i < 6000 && busy(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      ui.frame();
    }
    ASSERT_FALSE(busy());
    ui.frame(2);
  }
  /// Expects that nothing reaches beyond the right edge. The table of formats scrolls.
  void expect_fits() {
    for (const auto& [path, item] : ui.tracker().items()) {
      if (ui.tracker().find(path) == nullptr || path.starts_with("lab/formats/")) continue;
      EXPECT_LE(item.max.x, size_.x) << path;
    }
  }

  ImVec2 size_;
  const Theme* theme = &dark_theme();
  FloatLab lab;
  UiDriver ui;

 private:
  void draw() {
    ImGui::SetNextWindowPos({0, 0});
    ImGui::SetNextWindowSize(size_);
    ImGui::Begin("lab", nullptr, ImGuiWindowFlags_NoTitleBar | ImGuiWindowFlags_NoResize);
    draw_float_lab(lab, *theme, ui.fonts(), 1.0f);
    ImGui::End();
  }
};

}  // namespace halfscope::gui
