// SPDX-License-Identifier: MIT
// Screenshots without a display: the same application, drawn into memory and driven by a script.
#include <backends/imgui_impl_opengl3.h>

#include <fstream>
#include <sstream>

#include "core/error.h"
#include "gui/app/app.h"
#include "gui/app/font_texture.h"
#include "gui/app/gl.h"
#include "gui/app/script.h"
#include "gui/app/window.h"

namespace halfscope::gui {
namespace {

std::string read_text(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  if (!stream || !(text << stream.rdbuf())) {
    throw usage_error("cannot read script '" + file + "'", "pass a text file to --script");
  }
  return text.str();
}

void hand_over(ScriptInput& input) {
  ImGuiIO& io = ImGui::GetIO();
#if IMGUI_VERSION_NUM < 18700
  io.MousePos = input.mouse;
  io.MouseDown[0] = input.down;
  io.MouseWheel = input.wheel;
  io.KeyCtrl = input.ctrl;
  io.KeyShift = input.shift;
  io.KeyAlt = input.alt;
#else
  io.AddMousePosEvent(input.mouse.x, input.mouse.y);
  io.AddMouseButtonEvent(0, input.down);
  io.AddMouseWheelEvent(0.0f, input.wheel);
  io.AddKeyEvent(ImGuiMod_Ctrl, input.ctrl);
  io.AddKeyEvent(ImGuiMod_Shift, input.shift);
  io.AddKeyEvent(ImGuiMod_Alt, input.alt);
#endif
  for (const char c : input.typed) io.AddInputCharacter(static_cast<unsigned char>(c));
  input.wheel = 0.0f;
  input.typed.clear();
}

Error bad_lab_value(const std::string& text) {
  return usage_error("--lab " + text + ": not a number in a known format",
                     "write a format and a decimal or a code, for example \"fp16 0.1\" or "
                     "\"e4m3fn 0x7e\"");
}

}  // namespace

void take_screenshot(const ViewOptions& options) {
  const std::string script = options.script.empty() ? "" : read_text(options.script);
  Offscreen screen(options.width, options.height);
  ImGui::CreateContext();
  ImGuiIO& io = ImGui::GetIO();
  io.IniFilename = nullptr;
  io.DisplaySize = {static_cast<float>(options.width), static_cast<float>(options.height)};
  io.DeltaTime = 1.0f / 60.0f;
  ImGui_ImplOpenGL3_Init("#version 330");
  Tracker tracker;
  set_tracker(&tracker);
  {
    GlTextures textures;
    App app(textures, {});
    if (options.light) app.settings().dark = false;
    app.drop(options.runs);
    if (!options.lab.empty() && !app.show_lab(options.lab)) throw bad_lab_value(options.lab);
    ScriptInput input;
    bool first = true;
    const auto frame = [&] {
      tracker.begin_frame();
      if (app.prepare(options.scale > 0.0 ? static_cast<float>(options.scale) : 1.0f) && !first) {
        renew_font_texture();
      }
      first = false;
      hand_over(input);
      ImGui_ImplOpenGL3_NewFrame();
      ImGui::NewFrame();
      app.frame();
      ImGui::Render();
      screen.begin(dark_theme().ground);
      ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
    };
    const ScriptStage stage{
        .app = app,
        .tracker = tracker,
        .input = input,
        .frame = frame,
        .save_picture =
            [&](const std::string& file) {
              check_picture(options, file);
              screen.save_png(file);
            },
        .check_file = [&](const std::string& file) { check_picture(options, file); }};
    frame();
    if (!options.runs.empty()) wait_for_run(stage, true);
    run_script(script, stage);
    if (!options.share.empty()) app.show_share_card();
    for (int i = 0; i < 3; ++i) frame();
    screen.save_png(options.share.empty() ? options.screenshot : options.share);
  }
  set_tracker(nullptr);
  ImGui_ImplOpenGL3_Shutdown();
  ImGui::DestroyContext();
}

}  // namespace halfscope::gui
