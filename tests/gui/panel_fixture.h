// SPDX-License-Identifier: MIT
// One panel in its own window, with a run and a view state: for tests that drive it.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "gui/panels/panel.h"
#include "tests/gui/ui_driver.h"

namespace halfscope::gui {

class PanelFixture {
 public:
  PanelFixture(RunView run, std::function<void(const Frame&)> draw, ImVec2 size = {430, 760})
      : run_(RunModel::make("run.hscope", std::make_shared<const RunView>(std::move(run)), true)),
        draw_(std::move(draw)),
        size_(size),
        driver_([this] { draw_frame(); }, size) {}

  UiDriver& ui() noexcept { return driver_; }
  ViewState& view() noexcept { return view_; }
  const RunModel& run() const noexcept { return *run_; }
  Selection at() const { return resolve_selection(*run_, view_); }
  const std::vector<Request>& requests() const noexcept { return requests_; }
  const Theme* theme = &dark_theme();

 private:
  void draw_frame() {
    ImGui::SetNextWindowPos({0, 0});
    ImGui::SetNextWindowSize(size_);
    ImGui::Begin("panel", nullptr, ImGuiWindowFlags_NoDecoration);
    draw_(Frame{.view = view_,
                .run = *run_,
                .baseline = nullptr,
                .at = at(),
                .theme = *theme,
                .fonts = driver_.fonts(),
                .scale = 1.0f,
                .textures = textures_,
                .requests = requests_,
                .caches = caches_});
    ImGui::End();
  }

  std::shared_ptr<const RunModel> run_;
  std::function<void(const Frame&)> draw_;
  ImVec2 size_;
  ViewState view_;
  MemoryTextures textures_;
  std::vector<Request> requests_;
  PanelCaches caches_;
  UiDriver driver_;
};

}  // namespace halfscope::gui
