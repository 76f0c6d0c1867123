// SPDX-License-Identifier: MIT
// The viewer's window (GLFW, OpenGL 3.3). It sleeps until there is input, something new, or a
// quarter of a second has gone by.
#include "gui/app/window.h"

#include <GLFW/glfw3.h>
#include <backends/imgui_impl_glfw.h>
#include <backends/imgui_impl_opengl3.h>

#include <algorithm>
#include <memory>
#include <string>

#include "core/error.h"
#include "gui/app/app.h"
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
                  "run it on a desktop, or write a picture with --screenshot FILE");
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

/// What the window's callbacks reach.
struct Inbox {
  std::vector<std::string> dropped;
  int frames = kFramesAfterInput;
};

Inbox& inbox_of(GLFWwindow* window) {
  return *static_cast<Inbox*>(glfwGetWindowUserPointer(window));
}

void note_input(GLFWwindow* window) { inbox_of(window).frames = kFramesAfterInput; }

/// Before Dear ImGui installs its own, which call these on.
void watch(GLFWwindow* window) {
  glfwSetDropCallback(window, [](GLFWwindow* w, int count, const char** files) {
    for (int i = 0; i < count; ++i) inbox_of(w).dropped.emplace_back(files[i]);
    note_input(w);
  });
  glfwSetCursorPosCallback(window, [](GLFWwindow* w, double, double) { note_input(w); });
  glfwSetMouseButtonCallback(window, [](GLFWwindow* w, int, int, int) { note_input(w); });
  glfwSetScrollCallback(window, [](GLFWwindow* w, double, double) { note_input(w); });
  glfwSetKeyCallback(window, [](GLFWwindow* w, int, int, int, int) { note_input(w); });
  glfwSetCharCallback(window, [](GLFWwindow* w, unsigned) { note_input(w); });
  glfwSetFramebufferSizeCallback(window, [](GLFWwindow* w, int, int) { note_input(w); });
  glfwSetWindowFocusCallback(window, [](GLFWwindow* w, int) { note_input(w); });
  glfwSetWindowRefreshCallback(window, [](GLFWwindow* w) { note_input(w); });
}

void open_runs(App& app, const ViewOptions& options) {
  if (!options.runs.empty()) app.open(options.runs[0]);
  if (options.runs.size() > 1) app.open_baseline(options.runs[1]);
}

void upload_fonts(bool first) {
  if (first) return;  // the renderer does it with its first frame
  ImGui_ImplOpenGL3_DestroyFontsTexture();
  ImGui_ImplOpenGL3_CreateFontsTexture();
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
                "the viewer needs OpenGL 3.3; --screenshot FILE draws without a display");
  }
  glfwMakeContextCurrent(window.get());
  glfwSwapInterval(1);
  Inbox inbox;
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
    open_runs(app, options);
    if (!options.lab.empty()) app.show_lab(options.lab);
    std::string title;
    bool first = true;
    while (!glfwWindowShouldClose(window.get()) && !app.wants_quit()) {
      if (app.draws_on()) inbox.frames = std::max(inbox.frames, 1);
      if (inbox.frames > 0) {
        glfwPollEvents();
        --inbox.frames;
      } else {
        glfwWaitEventsTimeout(kIdleSeconds);
      }
      for (size_t i = 0; i < inbox.dropped.size() && i < 2; ++i) {
        i == 0 ? app.open(inbox.dropped[0]) : app.open_baseline(inbox.dropped[1]);
      }
      inbox.dropped.clear();
      if (title != app.title()) glfwSetWindowTitle(window.get(), (title = app.title()).c_str());
      float scale_x = 1.0f, scale_y = 1.0f;
      glfwGetWindowContentScale(window.get(), &scale_x, &scale_y);
      if (app.prepare(options.scale > 0.0 ? static_cast<float>(options.scale) : scale_x)) {
        upload_fonts(first);
      }
      first = false;
      ImGui_ImplOpenGL3_NewFrame();
      ImGui_ImplGlfw_NewFrame();
      ImGui::NewFrame();
      app.frame();
      ImGui::Render();
      int width = 0, height = 0;
      glfwGetFramebufferSize(window.get(), &width, &height);
      glViewport(0, 0, width, height);
      glClear(GL_COLOR_BUFFER_BIT);
      ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
      if (const std::string file = app.take_picture_wish(); !file.empty()) {
        std::string problem;
        try {
          save_frame(file, width, height);
        } catch (const Error& error) {
          problem = error.what();
        }
        app.picture_saved(file, problem);
      }
      glfwSwapBuffers(window.get());
      glfwGetWindowSize(window.get(), &app.settings().width, &app.settings().height);
    }
  }
  ImGui_ImplOpenGL3_Shutdown();
  ImGui_ImplGlfw_Shutdown();
  ImGui::DestroyContext();
}

}  // namespace halfscope::gui
