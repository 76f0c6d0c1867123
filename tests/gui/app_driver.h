// SPDX-License-Identifier: MIT
// A user of the whole viewer, without a display.
#pragma once

#include <memory>
#include <optional>

#include "gui/app/app.h"
#include "gui/widgets/textures.h"
#include "tests/gui/ui_driver.h"

namespace halfscope::gui {

class AppDriver : public UiDriver {
 public:
  explicit AppDriver(std::optional<RunView> run = {}, std::optional<RunView> baseline = {},
                     App::Options options = {}, Screen screen = Screen::details)
      : app_(textures_, std::move(options)) {
    draw_with([this] { app_.frame(); });
    app_.prepare(1.0f);
    // A new atlas: its pixels must be created before a frame.
    unsigned char* pixels = nullptr;
    int width = 0, height = 0;
    ImGui::GetIO().Fonts->GetTexDataAsRGBA32(&pixels, &width, &height);
    if (run)
      app_.show(model("run.hscope", *run), baseline ? model("other.hscope", *baseline) : nullptr);
    app_.view().screen = screen;
  }
  App& app() noexcept { return app_; }
  const MemoryTextures& textures() const noexcept { return textures_; }

 private:
  static std::shared_ptr<const RunModel> model(const char* name, const RunView& view) {
    return RunModel::make(name, std::make_shared<const RunView>(view), true);
  }
  MemoryTextures textures_;
  App app_;
};

}  // namespace halfscope::gui
