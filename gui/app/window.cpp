// SPDX-License-Identifier: MIT
// The viewer's window (GLFW, OpenGL 3.3). It sleeps until there is input or new data, at most a
// quarter of a second.
#include "gui/app/window.h"

#include <GLFW/glfw3.h>
#include <backends/imgui_impl_glfw.h>
#include <backends/imgui_impl_opengl3.h>

#include <algorithm>
#include <memory>
#include <string>

#include "core/error.h"
#include "gui/app/app.h"
#include "gui/app/display_scale.h"
#include "gui/app/font_texture.h"
#include "gui/app/gl.h"

namespace halfscope::gui {
namespace {

constexpr double kIdleSeconds = 0.25;
constexpr int kFramesAfterInput = 3;  ///< until hovers and layouts have settled

struct Glfw {
  Glfw() {
    glfwSetErrorCallback([](int, const char* text) { problem() = text; });
    if (!glfwInit()) {
      throw Error("cannot open a window: " + problem(),
                  "run the viewer on a desktop, or write a picture with --screenshot FILE");
    }
  }
  ~Glfw() { glfwTerminate(); }
  Glfw(const Glfw&) = delete;
  Glfw& operator=(const Glfw&) = delete;
  static std::string& problem() {
    static std::string text = "no display";
    return text;
  }
};

/// Data that the window's callbacks can reach.
struct Inbox {
  struct Tap {
    int key, mods;
  };
  std::vector<std::string> dropped;
  std::vector<Tap> taps;  ///< keys that went down since the last frame
  int frames = kFramesAfterInput;
};

Inbox& inbox_of(GLFWwindow* window) {
  return *static_cast<Inbox*>(glfwGetWindowUserPointer(window));
}

void note_input(GLFWwindow* window) { inbox_of(window).frames = kFramesAfterInput; }

/// Installs our callbacks. Call this before Dear ImGui installs its own, which chain to these.
void watch(GLFWwindow* window) {
  glfwSetDropCallback(window, [](GLFWwindow* w, int count, const char** files) {
    for (int i = 0; i < count; ++i) inbox_of(w).dropped.emplace_back(files[i]);
    note_input(w);
  });
  glfwSetCursorPosCallback(window, [](GLFWwindow* w, double, double) { note_input(w); });
  glfwSetMouseButtonCallback(window, [](GLFWwindow* w, int, int, int) { note_input(w); });
  glfwSetScrollCallback(window, [](GLFWwindow* w, double, double) { note_input(w); });
  glfwSetKeyCallback(window, [](GLFWwindow* w, int key, int, int action, int mods) {
    if (action == GLFW_PRESS && key >= 0) inbox_of(w).taps.push_back({key, mods});
    note_input(w);
  });
  glfwSetCharCallback(window, [](GLFWwindow* w, unsigned) { note_input(w); });
  glfwSetFramebufferSizeCallback(window, [](GLFWwindow* w, int, int) { note_input(w); });
  // Another display, or another setting of this one: the next frame asks for it.
  glfwSetWindowContentScaleCallback(window, [](GLFWwindow* w, float, float) { note_input(w); });
  glfwSetWindowFocusCallback(window, [](GLFWwindow* w, int) { note_input(w); });
  glfwSetWindowRefreshCallback(window, [](GLFWwindow* w) { note_input(w); });
}

/// Marks tapped keys as down for one frame. Dear ImGui 1.86 polls keys once a frame and would miss
/// keys pressed and released in between. Later releases queue events.
std::vector<int> hold_taps(Inbox& inbox) {
  std::vector<int> held;
#if IMGUI_VERSION_NUM < 18700
  ImGuiIO& io = ImGui::GetIO();
  for (const Inbox::Tap& tap : inbox.taps) {
    if (tap.key >= static_cast<int>(IM_ARRAYSIZE(io.KeysDown)) || io.KeysDown[tap.key]) continue;
    io.KeysDown[tap.key] = true;
    io.KeyCtrl = io.KeyCtrl || (tap.mods & GLFW_MOD_CONTROL) != 0;
    io.KeyShift = io.KeyShift || (tap.mods & GLFW_MOD_SHIFT) != 0;
    io.KeyAlt = io.KeyAlt || (tap.mods & GLFW_MOD_ALT) != 0;
    held.push_back(tap.key);
  }
  if (!held.empty()) inbox.frames = kFramesAfterInput;
#endif
  inbox.taps.clear();
  return held;
}

/// Restores the keys' real state after the frame.
void release(const std::vector<int>& held) {
#if IMGUI_VERSION_NUM < 18700
  ImGuiIO& io = ImGui::GetIO();
  if (held.empty()) return;
  for (const int key : held) io.KeysDown[key] = false;
  const auto either = [&io](int left, int right) {
    return io.KeysDown[left] || io.KeysDown[right];
  };
  io.KeyCtrl = either(GLFW_KEY_LEFT_CONTROL, GLFW_KEY_RIGHT_CONTROL);
  io.KeyShift = either(GLFW_KEY_LEFT_SHIFT, GLFW_KEY_RIGHT_SHIFT);
  io.KeyAlt = either(GLFW_KEY_LEFT_ALT, GLFW_KEY_RIGHT_ALT);
#else
  (void)held;
#endif
}

float scale_of(GLFWwindow* window) {
  float content = 1.0f, unused = 1.0f;
  glfwGetWindowContentScale(window, &content, &unused);
  int window_width = 0, width = 0, height = 0;
  glfwGetWindowSize(window, &window_width, &height);
  glfwGetFramebufferSize(window, &width, &height);
  return display_scale(content, window_width, width);
}

}  // namespace

void run_in_window(const ViewOptions& options) {
  const Glfw glfw;
  const SettingsFile settings_file(state_folder());
  const Settings settings = settings_file.load();
  glfwWindowHint(GLFW_CONTEXT_VERSION_MAJOR, 3);
  glfwWindowHint(GLFW_CONTEXT_VERSION_MINOR, 3);
  glfwWindowHint(GLFW_OPENGL_PROFILE, GLFW_OPENGL_CORE_PROFILE);
  glfwWindowHint(GLFW_OPENGL_FORWARD_COMPAT, GLFW_TRUE);
  glfwWindowHint(GLFW_SCALE_TO_MONITOR, GLFW_TRUE);
  const bool asked = options.size != ViewOptions().size;
  const std::unique_ptr<GLFWwindow, void (*)(GLFWwindow*)> window(
      glfwCreateWindow(asked ? options.width : settings.width,
                       asked ? options.height : settings.height, "HalfScope", nullptr, nullptr),
      glfwDestroyWindow);
  if (!window) {
    throw Error("cannot open a window: " + Glfw::problem(),
                "install a driver with OpenGL 3.3, or write a picture with --screenshot FILE");
  }
  glfwMakeContextCurrent(window.get());
  glfwSwapInterval(1);
  Inbox inbox;
  glfwSetWindowSizeLimits(window.get(), 640, 400, GLFW_DONT_CARE, GLFW_DONT_CARE);
  glfwSetWindowUserPointer(window.get(), &inbox);
  watch(window.get());

  ImGui::CreateContext();
  ImGui::GetIO().IniFilename = nullptr;
  ImGui_ImplGlfw_InitForOpenGL(window.get(), true);
  ImGui_ImplOpenGL3_Init("#version 330");
  {
    GlTextures textures;
    App app(textures, {.state_folder = state_folder(), .wake = [] { glfwPostEmptyEvent(); }});
    if (options.light) app.settings().dark = false;
    app.drop(options.runs);
    if (!options.lab.empty()) static_cast<void>(app.show_lab(options.lab));
    std::string title;
    bool first = true;
    while (!app.wants_quit()) {
      if (glfwWindowShouldClose(window.get())) {
        glfwSetWindowShouldClose(window.get(), GLFW_FALSE);
        app.quit();  // which may ask first
        inbox.frames = kFramesAfterInput;
      }
      if (app.draws_on()) inbox.frames = std::max(inbox.frames, 1);
      if (inbox.frames > 0) {
        glfwPollEvents();
        --inbox.frames;
      } else {
        glfwWaitEventsTimeout(kIdleSeconds);
      }
      app.drop(inbox.dropped);
      inbox.dropped.clear();
      if (title != app.title()) glfwSetWindowTitle(window.get(), (title = app.title()).c_str());
      const float display = scale_of(window.get());
      if (app.prepare(options.scale > 0.0 ? static_cast<float>(options.scale) : display)) {
        if (!first) renew_font_texture();  // the renderer makes the first one itself
      }
      first = false;
      ImGui_ImplOpenGL3_NewFrame();
      ImGui_ImplGlfw_NewFrame();
      const std::vector<int> held = hold_taps(inbox);
      ImGui::NewFrame();
      app.frame();
      ImGui::Render();
      release(held);
      int width = 0, height = 0;
      glfwGetFramebufferSize(window.get(), &width, &height);
      glViewport(0, 0, width, height);
      glClear(GL_COLOR_BUFFER_BIT);
      ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
      if (const std::string file = app.take_picture_request(); !file.empty()) {
        std::string problem;
        try {
          save_frame(file, width, height);
        } catch (const Error& error) {
          problem = error.what();
        }
        app.picture_saved(file, problem);
      }
      glfwSwapBuffers(window.get());
      int window_width = 0, window_height = 0;
      glfwGetWindowSize(window.get(), &window_width, &window_height);
      app.settings().width = remembered_length(window_width, display);
      app.settings().height = remembered_length(window_height, display);
    }
  }
  ImGui_ImplOpenGL3_Shutdown();
  ImGui_ImplGlfw_Shutdown();
  ImGui::DestroyContext();
}

}  // namespace halfscope::gui
