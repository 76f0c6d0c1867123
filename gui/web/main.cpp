// SPDX-License-Identifier: MIT
// The float lab as a web page: one canvas that fills the window. The browser calls frame() for
// every picture; it draws only after input. Sizes are pixels of the screen, so the interface is
// scaled by the ratio of these to the page's pixels.
#include <GLFW/glfw3.h>
#include <backends/imgui_impl_glfw.h>
#include <backends/imgui_impl_opengl3.h>
#include <emscripten.h>
#include <emscripten/html5.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "gui/app/font_texture.h"
#include "gui/panels/float_lab.h"
#include "gui/web/browser.h"
#include "gui/web/link.h"
#include "gui/widgets/theme.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr int kFramesAfterInput = 4;          ///< until hovers and layouts have settled
constexpr double kBlinkMilliseconds = 250.0;  ///< between pictures without input

class Page {
 public:
  Page();
  void frame();
  void wake() noexcept { frames_ = kFramesAfterInput; }
  const char* place(const char* path);
  void open(const std::string& link) {
    open_link(lab_, link);
    link_ = link_of(lab_);
    wake();
  }

 private:
  void fit();
  void draw();
  void draw_header();
  void tell();

  GLFWwindow* window_;
  FloatLab lab_;
  Fonts fonts_{};
  bool dark_, styled_ = false, first_ = true;
  int width_ = 0, height_ = 0;
  float scale_ = 0.0f;
  int frames_ = kFramesAfterInput;
  double last_ = 0.0;
  std::string link_, title_, place_;
  std::unique_ptr<Tracker> tracker_;  ///< from the first place() on
};

Page* the_page = nullptr;

/// Notes input before Dear ImGui's own callbacks, which call these.
void watch(GLFWwindow* window) {
  glfwSetCursorPosCallback(window, [](GLFWwindow*, double, double) { the_page->wake(); });
  glfwSetMouseButtonCallback(window, [](GLFWwindow*, int, int, int) { the_page->wake(); });
  glfwSetScrollCallback(window, [](GLFWwindow*, double, double) { the_page->wake(); });
  glfwSetKeyCallback(window, [](GLFWwindow*, int, int, int, int) { the_page->wake(); });
  glfwSetCharCallback(window, [](GLFWwindow*, unsigned) { the_page->wake(); });
}

Page::Page() : dark_(browser::prefers_dark()) {
  glfwInit();
  window_ = glfwCreateWindow(640, 400, "HalfScope", nullptr, nullptr);
  glfwMakeContextCurrent(window_);
  watch(window_);
  ImGui::CreateContext();
  ImGuiIO& io = ImGui::GetIO();
  io.IniFilename = nullptr;
  ImGui_ImplGlfw_InitForOpenGL(window_, true);
  ImGui_ImplOpenGL3_Init("#version 300 es");
  io.SetClipboardTextFn = [](void*, const char* text) { browser::copy(text); };
  io.GetClipboardTextFn = [](void*) {
    static std::string text;
    text = browser::pasted();
    return text.c_str();
  };
  open(browser::fragment());
}

/// Follows the size and the resolution of the browser's window.
void Page::fit() {
  const browser::Window size = browser::window();
  if (size.width != width_ || size.height != height_) {
    width_ = size.width;
    height_ = size.height;
    glfwSetWindowSize(window_, width_, height_);
    wake();
  }
  if (styled_ && size.scale == scale_) return;
  if (size.scale != scale_) {
    scale_ = size.scale;
    fonts_ = load_fonts(scale_);
    ImGui::GetIO().Fonts->Build();
    if (!first_) renew_font_texture();  // the renderer makes the first one itself
  }
  apply_style(dark_ ? dark_theme() : light_theme(), scale_);
  styled_ = true;
  wake();
}

/// Returns "x y", the center of a widget in pixels of the page; "" before it was drawn. For tests.
const char* Page::place(const char* path) {
  if (!tracker_) {
    tracker_ = std::make_unique<Tracker>();
    set_tracker(tracker_.get());
  }
  wake();
  place_.clear();
  if (const TrackedItem* item = tracker_->find(path)) {
    const ImVec2 center = item->center();
    place_ = std::to_string(center.x / scale_) + " " + std::to_string(center.y / scale_);
  }
  return place_.c_str();
}

void Page::draw_header() {
  const Theme& theme = dark_ ? dark_theme() : light_theme();
  ImGui::PushFont(fonts_.bold);
  ImGui::AlignTextToFramePadding();
  ui::text("page/title", "HalfScope float lab");
  ImGui::PopFont();
  const auto button_width = [](const char* text) {
    return ImGui::CalcTextSize(text).x + 2 * ImGui::GetStyle().FramePadding.x;
  };
  const char* const other = dark_ ? "Light" : "Dark";
  const float width =
      button_width("Copy link") + button_width(other) + ImGui::GetStyle().ItemSpacing.x;
  ImGui::SameLine(std::max(ImGui::GetWindowWidth() - width - ImGui::GetStyle().WindowPadding.x,
                           180.0f * scale_));
  ImGui::PushStyleColor(ImGuiCol_Text, theme.soft);
  if (ui::button("page/copy_link", "Copy link")) browser::copy(browser::address().c_str());
  ui::tip("Copy the address of this page. It opens this tab with this number.");
  ImGui::SameLine();
  if (ui::button("page/theme", other)) {
    dark_ = !dark_;
    styled_ = false;
  }
  ImGui::PopStyleColor();
}

void Page::draw() {
  ImGui::SetNextWindowPos({0, 0});
  ImGui::SetNextWindowSize(ImGui::GetIO().DisplaySize);
  constexpr ImGuiWindowFlags kFlags = ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove |
                                      ImGuiWindowFlags_NoSavedSettings |
                                      ImGuiWindowFlags_NoBringToFrontOnFocus;
  if (ImGui::Begin("page", nullptr, kFlags)) {
    draw_header();
    ImGui::BeginChild("lab", {0, 0}, false, ImGuiWindowFlags_AlwaysUseWindowPadding);
    draw_float_lab(lab_, dark_ ? dark_theme() : light_theme(), fonts_, scale_);
    ImGui::EndChild();
  }
  ImGui::End();
}

/// Writes the number and the tab to the page's address and title.
void Page::tell() {
  if (std::string title = page_title(lab_); title != title_) {
    title_ = std::move(title);
    browser::set_title(title_.c_str());
  }
  if (ImGui::GetIO().WantTextInput) return;  // not at every letter
  if (std::string link = link_of(lab_); link != link_) {
    link_ = std::move(link);
    browser::set_fragment(link_.c_str());
  }
}

void Page::frame() {
  fit();
  const double now = emscripten_get_now();
  if (frames_ <= 0 && now - last_ < kBlinkMilliseconds) return;
  last_ = now;
  frames_ = std::max(frames_ - 1, 0);
  ImGui_ImplOpenGL3_NewFrame();
  ImGui_ImplGlfw_NewFrame();
  first_ = false;
  if (tracker_) tracker_->begin_frame();
  ImGui::NewFrame();
  draw();
  ImGui::Render();
  const ImVec4 ground = vec((dark_ ? dark_theme() : light_theme()).ground);
  glViewport(0, 0, width_, height_);
  glClearColor(ground.x, ground.y, ground.z, 1.0f);
  glClear(GL_COLOR_BUFFER_BIT);
  ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
  tell();
  browser::drawn();
}

}  // namespace
}  // namespace halfscope::gui

extern "C" {

/// The page calls these: the address was changed by hand, or a paste has arrived. Tests ask where
/// a widget is.
EMSCRIPTEN_KEEPALIVE void halfscope_open(const char* link) { halfscope::gui::the_page->open(link); }
EMSCRIPTEN_KEEPALIVE const char* halfscope_place(const char* path) {
  return halfscope::gui::the_page->place(path);
}
EMSCRIPTEN_KEEPALIVE void halfscope_wake() { halfscope::gui::the_page->wake(); }
}

int main() {
  static std::unique_ptr<halfscope::gui::Page> page;
  page = std::make_unique<halfscope::gui::Page>();
  halfscope::gui::the_page = page.get();
  emscripten_set_main_loop([] { halfscope::gui::the_page->frame(); }, 0, true);
  return 0;
}
