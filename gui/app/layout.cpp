// SPDX-License-Identifier: MIT
// Layout of the screen: the menu bar, the verdict, four regions with splitters between them, and
// the welcome card shown without a run.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/number_text.h"
#include "gui/app/app.h"
#include "gui/panels/spectrum.h"
#include "gui/widgets/plot_math.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr float kSplitter = 6.0f;
// Below these sizes, in pixels at scale 1, regions share a space: first the values with the steps,
// then the tabs with both, then the layers with all.
constexpr float kAnswersBeside = 1180.0f;  ///< narrower windows show answers or charts
constexpr float kNarrow = 1040.0f, kLow = 440.0f, kTiny = 560.0f;
constexpr float kLeastWithLoss = 260.0f;  ///< of the Spectrum with the loss under it
// Least heights of the three step plots; a lower column scrolls.
constexpr float kLeastLoss = 84.0f, kLeastHeat = 130.0f, kLeastMagnitudes = 96.0f;

/// Draws a splitter between two regions; a `vertical` one moves sideways. Returns the distance it
/// was dragged, in pixels.
float splitter(const char* path, bool vertical, float length, float scale, const Theme& theme) {
  const float thick = kSplitter * scale;
  const ImVec2 start = ImGui::GetCursorScreenPos();
  const ImVec2 size = vertical ? ImVec2{thick, length} : ImVec2{length, thick};
  ImGui::InvisibleButton(path, size);
  track_item(path);
  const bool active = ImGui::IsItemActive(), hot = active || ImGui::IsItemHovered();
  if (hot) {
    ImGui::SetMouseCursor(vertical ? ImGuiMouseCursor_ResizeEW : ImGuiMouseCursor_ResizeNS);
    const ImVec2 middle{start.x + size.x / 2, start.y + size.y / 2};
    const float half = 16 * scale;
    ImDrawList& draw = *ImGui::GetWindowDrawList();
    if (vertical) {
      draw.AddLine({middle.x, middle.y - half}, {middle.x, middle.y + half}, theme.accent,
                   2 * scale);
    } else {
      draw.AddLine({middle.x - half, middle.y}, {middle.x + half, middle.y}, theme.accent,
                   2 * scale);
    }
  }
  if (!active) return 0.0f;
  return vertical ? ImGui::GetIO().MouseDelta.x : ImGui::GetIO().MouseDelta.y;
}

/// Changes `size` by `pixels` and clamps it to [low, high], which are in units at scale 1.
void resize(float& size, float pixels, float scale, float low, float high) {
  size = std::clamp(size + pixels / scale, low, std::max(low, high));
}

struct RegionChild {
  RegionChild(const char* name, ImVec2 size) { ImGui::BeginChild(name, size, true); }
  ~RegionChild() { ImGui::EndChild(); }
  RegionChild(const RegionChild&) = delete;
  RegionChild& operator=(const RegionChild&) = delete;
};

}  // namespace

void App::draw_menu_bar() {
  if (!ImGui::BeginMenuBar()) return;
  const char* open_menu = nullptr;
  bool is_open = false;
  for (const AppAction& action : app_actions()) {
    if (open_menu == nullptr || std::string_view(open_menu) != action.menu) {
      if (is_open) ImGui::EndMenu();
      open_menu = action.menu;
      is_open = ImGui::BeginMenu(open_menu);
      if (!is_open) track_item(fmt::format("menu/{}", open_menu), open_menu);
      if (is_open && std::string_view(open_menu) == "Run" && !settings_.recent.empty()) {
        if (ImGui::BeginMenu("Recent")) {
          const std::vector<std::string> recent = settings_.recent;  // opening one changes it
          for (const std::string& file : recent) {
            if (ui::menu_item("menu/recent/" + file, file.c_str())) open(file);
          }
          ImGui::EndMenu();
        }
        ImGui::Separator();
      }
    }
    if (!is_open) continue;
    const bool enabled = has(action.needs);
    if (ui::menu_item(fmt::format("menu/{}/{}", action.menu, action.name), action.name,
                      action.shortcut, false, enabled)) {
      action.run(*this);
    }
  }
  if (is_open) ImGui::EndMenu();
  draw_screen_choice();
  draw_status();
  ImGui::EndMenuBar();
}

void App::draw_screen_choice() {
  if (!run_ && !study_) return;
  ImGui::SameLine(0, 18 * scale());
  if (study_) {
    if (ui::segment("screen/study", "Study", on_study_)) on_study_ = true;
    ui::tip("All trainings of the study (U goes back to them).");
    if (!run_) return;
    ImGui::SameLine(0, 3 * scale());
  }
  const auto choose = [this](Screen screen) {
    view_.screen = screen;
    on_study_ = false;
  };
  if (ui::segment("screen/spectrum", "Spectrum", !on_study_ && view_.screen == Screen::spectrum)) {
    choose(Screen::spectrum);
  }
  ui::tip("The whole network as one picture (V switches).");
  ImGui::SameLine(0, 3 * scale());
  if (ui::segment("screen/details", "Details", !on_study_ && view_.screen == Screen::details))
    choose(Screen::details);
  ui::tip("Layers, heatmap, histograms, recommendations and events (V switches).");
}

void App::draw_status() {
  if (shows_study()) return draw_study_status();
  if (!run_ || on_study_) return;
  const std::string file = std::filesystem::path(run_->file()).filename().string();
  const RunInfo& info = run_->view().info();
  std::string against;
  if (baseline_) {
    against = "   compared with " + std::filesystem::path(baseline_->file()).filename().string();
  }
  std::string state;
  ImU32 color = theme_->soft;
  if (!load_error_.empty()) {
    state = load_error_;
    color = theme_->bad;
  } else if (run_->live()) {
    state = "live, step " + grouped(run_->step_count());
    color = theme_->good;
  } else {
    const int64_t steps = run_->step_count();
    state = fmt::format("{}, {} {}", status_name(run_->view().status()), grouped(steps),
                        steps == 1 ? "step" : "steps");
  }
  // Centre the dot in the gap between the two texts.
  const float gap = 28 * scale(), dot = 4 * scale();
  const auto left_of = [&](const std::string& text) {
    const float width =
        ImGui::CalcTextSize(text.c_str()).x + ImGui::CalcTextSize(state.c_str()).x + gap;
    return ImGui::GetWindowWidth() - width - 12 * scale();
  };
  // Shorten it to the room next to the menus.
  const std::string all =
      fmt::format("{}   {}   {}   seed {}{}", file, info.model, info.data, info.seed, against);
  std::string text;
  for (const std::string& each : {all, file + against, file}) {
    text = each;
    if (left_of(text) > ImGui::GetCursorPosX()) break;
    text.clear();
  }
  const float left = left_of(text);
  if (left > ImGui::GetCursorPosX()) ImGui::SetCursorPosX(left);
  ImGui::PushStyleColor(ImGuiCol_Text, theme_->soft);
  ui::text("status/run", text);
  if (text != all) ui::tip(all.c_str());
  ImGui::PopStyleColor();
  const ImVec2 low = ImGui::GetItemRectMin(), high = ImGui::GetItemRectMax();
  const ImVec2 center{std::round(high.x + gap / 2), std::round((low.y + high.y) / 2 + scale())};
  ImGui::GetWindowDrawList()->AddCircleFilled(center, dot, color);
  track_rect("status/dot", {center.x - dot, center.y - dot}, {center.x + dot, center.y + dot});
  ImGui::SameLine(0, gap);
  ImGui::PushStyleColor(ImGuiCol_Text, color);
  ui::text("status/state", state);
  ImGui::PopStyleColor();
}

void App::draw_run() {
  const Frame frame = make_frame();
  const float unit = scale(), gap = kSplitter * unit;
  Layout& layout = settings_.layout;
  draw_verdict(frame);
  const ImVec2 room = ImGui::GetContentRegionAvail();
  if (view_.screen == Screen::spectrum) return draw_spectrum_screen(frame, room);
  if (view_.maximized != Region::none) {
    const RegionChild child("maximized", room);
    switch (view_.maximized) {
      case Region::layers:
        draw_layers(frame);
        break;
      case Region::values:
        draw_values(frame);
        break;
      case Region::tabs:
        draw_pages(frame, "tabs", {Page::tabs});
        break;
      case Region::steps:
      case Region::none:
        draw_center(frame, ImGui::GetContentRegionAvail());
        break;
    }
    focus_filter_ = false;
    return;
  }
  const bool narrow = room.x < kNarrow * unit, low = room.y < kLow * unit;
  if (narrow || low) return draw_tight(frame, room, narrow, low);
  // Shrink regions in a small window, the middle one last.
  const float bottom =
      std::clamp(layout.bottom * unit, 60 * unit, std::max(60 * unit, room.y * 0.6f));
  const float left = std::min(layout.left * unit, room.x * 0.3f);
  const float right = std::min(layout.right * unit, room.x * 0.4f);
  const float top = std::max(room.y - bottom - gap, 60 * unit);
  const float middle = std::max(room.x - left - right - 2 * gap, 60 * unit);
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2{0, 0});
  const ImVec2 spacing{8 * unit, 5 * unit};
  const auto region = [&](const char* name, Region which, ImVec2 size, const auto& draw) {
    const RegionChild child(name, size);
    ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, spacing);
    draw();
    ImGui::PopStyleVar();
    if (ImGui::IsWindowHovered(ImGuiHoveredFlags_ChildWindows)) hovered_region_ = which;
  };
  region("layers", Region::layers, {left, top}, [&] { draw_layers(frame); });
  focus_filter_ = false;
  ImGui::SameLine();
  resize(layout.left, splitter("splitter/left", true, top, unit, *theme_), unit, 140, 600);
  ImGui::SameLine();
  region("steps", Region::steps, {middle, top},
         [&] { draw_center(frame, ImGui::GetContentRegionAvail()); });
  ImGui::SameLine();
  resize(layout.right, -splitter("splitter/right", true, top, unit, *theme_), unit, 260, 900);
  ImGui::SameLine();
  region("values", Region::values, {right, top}, [&] { draw_values(frame); });
  resize(layout.bottom, -splitter("splitter/bottom", false, room.x, unit, *theme_), unit, 90,
         room.y / unit * 0.6f);
  region("tabs", Region::tabs, {room.x, room.y - top - gap},
         [&] { draw_pages(frame, "tabs", {Page::tabs}); });
  ImGui::PopStyleVar();
}

void App::draw_spectrum_screen(const Frame& frame, ImVec2 room) {
  const float unit = scale(), gap = kSplitter * unit;
  focus_filter_ = false;
  const ImVec2 spacing{8 * unit, 5 * unit};
  const bool beside = room.x >= kAnswersBeside * unit;
  draw_windows(frame, !beside);
  room.y = ImGui::GetContentRegionAvail().y;
  // A low window has no room for the loss, which Details shows, too.
  const bool trains = !run_->view().info().inference && room.y >= kLeastWithLoss * unit;
  const float timeline = ImGui::GetFrameHeight() + 12 * unit;
  const float loss = trains ? std::clamp(room.y * 0.24f, 70 * unit, 220 * unit) : 0.0f;
  const float picture = std::max(room.y - loss - timeline - (trains ? 2 : 1) * gap, 90 * unit);
  const auto part = [&](const char* name, ImVec2 size, bool scrolls, const auto& draw) {
    const ImGuiWindowFlags still =
        ImGuiWindowFlags_NoScrollbar | ImGuiWindowFlags_NoScrollWithMouse;
    ImGui::BeginChild(name, size, true, scrolls ? 0 : still);
    ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, spacing);
    draw();
    ImGui::PopStyleVar();
    ImGui::EndChild();
  };
  const float answers = beside ? std::clamp(room.x * 0.25f, 300 * unit, 460 * unit) : 0.0f;
  const float left = beside ? room.x - answers - gap : room.x;
  const bool only_answers = !beside && view_.answers;
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2{gap, gap});
  ImGui::BeginGroup();
  if (only_answers) {
    part("answers", {left, picture}, true, [&] { gui::draw_answers(frame); });
  } else {
    part("spectrum", {left, picture}, false, [&] { gui::draw_spectrum(frame); });
  }
  if (trains) {
    part("loss", {left, loss}, false, [&] { gui::draw_loss(frame); });
  }
  ImGui::EndGroup();
  if (beside) {
    ImGui::SameLine(0, gap);
    const float both = picture + (trains ? loss + gap : 0.0f);
    const float history = std::clamp(both * 0.3f, 120 * unit, 300 * unit);
    ImGui::BeginGroup();
    part("answers", {answers, both - history - gap}, true, [&] { gui::draw_answers(frame); });
    part("history", {answers, history}, false, [&] { gui::draw_tensor_history(frame); });
    ImGui::EndGroup();
  }
  part("timeline", {room.x, timeline}, false, [&] { gui::draw_timeline(frame); });
  ImGui::PopStyleVar();
}

void App::draw_tight(const Frame& frame, ImVec2 room, bool narrow, bool low) {
  const float unit = scale(), gap = kSplitter * unit;
  const bool tiny = room.x < kTiny * unit;
  Layout& layout = settings_.layout;
  const float bottom = low ? 0.0f : std::clamp(layout.bottom * unit, 60 * unit, room.y * 0.5f);
  const float top = low ? room.y : room.y - bottom - gap;
  const float left = tiny ? 0.0f : std::clamp(layout.left * unit, 170 * unit, room.x * 0.3f + 1);
  const float right = narrow ? 0.0f : std::min(layout.right * unit, room.x * 0.4f);
  const float middle = room.x - (tiny ? 0.0f : left + gap) - (narrow ? 0.0f : right + gap);
  const ImVec2 spacing{8 * unit, 5 * unit};
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2{0, 0});
  const auto region = [&](const char* name, Region which, ImVec2 size, const auto& draw) {
    const RegionChild child(name, size);
    ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, spacing);
    draw();
    ImGui::PopStyleVar();
    if (ImGui::IsWindowHovered(ImGuiHoveredFlags_ChildWindows)) hovered_region_ = which;
  };
  if (!tiny) {
    region("layers", Region::layers, {left, top}, [&] { draw_layers(frame); });
    focus_filter_ = false;
    ImGui::SameLine(0, gap);
  }
  region("pages", Region::steps, {middle, top}, [&] {
    if (low && tiny) {
      draw_pages(frame, "pages", {Page::steps, Page::layers, Page::values, Page::tabs});
    } else if (low && narrow) {
      draw_pages(frame, "pages", {Page::steps, Page::values, Page::tabs});
    } else if (low) {
      draw_pages(frame, "pages", {Page::steps, Page::tabs});
    } else if (tiny) {
      draw_pages(frame, "pages", {Page::steps, Page::layers, Page::values});
    } else {
      draw_pages(frame, "pages", {Page::steps, Page::values});
    }
  });
  if (!narrow) {
    ImGui::SameLine(0, gap);
    region("values", Region::values, {right, top}, [&] { draw_values(frame); });
  }
  if (!low) {
    resize(layout.bottom, -splitter("splitter/bottom", false, room.x, unit, *theme_), unit, 90,
           room.y / unit * 0.5f);
    region("tabs", Region::tabs, {room.x, room.y - top - gap},
           [&] { draw_pages(frame, "tabs", {Page::tabs}); });
  }
  ImGui::PopStyleVar();
}

void App::draw_center(const Frame& frame, ImVec2 size) {
  const float unit = scale(), gap = kSplitter * unit;
  Layout& layout = settings_.layout;
  const float least = (kLeastLoss + kLeastHeat + kLeastMagnitudes) * unit + 2 * gap;
  if (size.y < least) {
    size.y = least;
    size.x -= ImGui::GetStyle().ScrollbarSize;
  }
  // Give the outer two their height, as long as the heatmap keeps its minimum.
  const float spare = std::max(0.0f, size.y - least);
  const float more_loss = std::max(0.0f, (layout.loss - kLeastLoss) * unit);
  const float more_magnitudes = std::max(0.0f, (layout.magnitudes - kLeastMagnitudes) * unit);
  const float given = std::min(1.0f, 0.6f * spare / std::max(more_loss + more_magnitudes, 1.0f));
  const float loss = kLeastLoss * unit + more_loss * given;
  const float magnitudes = kLeastMagnitudes * unit + more_magnitudes * given;
  const float heat = size.y - loss - magnitudes - 2 * gap;
  ImGui::PushStyleColor(ImGuiCol_ChildBg, 0);
  const ImVec2 spacing = ImGui::GetStyle().ItemSpacing;
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2{0, 0});
  const auto part = [&](const char* name, float height, void (*draw)(const Frame&)) {
    ImGui::BeginChild(name, {size.x, height}, false,
                      ImGuiWindowFlags_NoScrollbar | ImGuiWindowFlags_NoScrollWithMouse);
    ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, spacing);
    draw(frame);
    ImGui::PopStyleVar();
    ImGui::EndChild();
  };
  part("loss", loss, gui::draw_loss);
  resize(layout.loss, splitter("splitter/loss", false, size.x, unit, *theme_), unit, 70, 500);
  part("heatmap", heat, gui::draw_heatmap);
  resize(layout.magnitudes, -splitter("splitter/magnitudes", false, size.x, unit, *theme_), unit,
         70, 500);
  part("magnitudes", magnitudes, gui::draw_magnitudes);
  ImGui::PopStyleVar();
  ImGui::PopStyleColor();
}

void App::draw_values(const Frame& frame) {
  draw_histogram(frame);
  ImGui::Separator();
  gui::draw_lanes(frame);
}

void App::draw_page(const Frame& frame, Page page, Tab tab) {
  switch (page) {
    case Page::layers:
      draw_layers(frame);
      focus_filter_ = false;
      return;
    case Page::steps:
      draw_center(frame, ImGui::GetContentRegionAvail());
      return;
    case Page::values:
      draw_values(frame);
      return;
    case Page::tabs:
      break;
  }
  constexpr void (*kDraw[])(const Frame&) = {
#define HALFSCOPE_TAB(panel, name, title, shorter) gui::draw_##panel,
#include "gui/state/tabs.inc"
#undef HALFSCOPE_TAB
  };
  kDraw[static_cast<size_t>(tab)](frame);
}

void App::draw_pages(const Frame& frame, const char* bar, std::initializer_list<Page> pages) {
  struct Choice {
    Page page;
    Tab tab;
    const char* name;
    const char* shorter;  ///< where tabs are many
  };
  static constexpr Choice kChoices[] = {
      {Page::steps, {}, "Steps", "Steps"},
      {Page::layers, {}, "Layers", "Layers"},
      {Page::values, {}, "Values", "Values"},
#define HALFSCOPE_TAB(panel, name, title, shorter) {Page::tabs, Tab::panel, title, shorter},
#include "gui/state/tabs.inc"
#undef HALFSCOPE_TAB
  };
  const size_t advice = recommendation_count(frame);
  const auto has = [&](Page page) {
    return std::find(pages.begin(), pages.end(), page) != pages.end();
  };
  const ImGuiTabBarFlags bar_flags =
      ImGuiTabBarFlags_FittingPolicyScroll | ImGuiTabBarFlags_NoTooltip;
  if (!ImGui::BeginTabBar(bar, bar_flags)) return;
  const bool shared = has(Page::steps);
  // Bring a requested tab to the front of the bar that contains it.
  if (has(Page::tabs) && shared && view_.tab != shown_tab_ && !tab_wanted_) page_ = Page::tabs;
  const Page current = has(page_) ? page_ : *pages.begin();
  // A bar that was not drawn in the last frame does not know the selected tab.
  const bool wanted = ImGui::IsWindowAppearing() || tab_wanted_ ||
                      (has(Page::tabs) && view_.tab != shown_tab_) ||
                      (shared && current != shown_page_);
  const bool tight = ImGui::GetContentRegionAvail().x < 720 * scale();
  for (const Choice& choice : kChoices) {
    if (!has(choice.page)) continue;
    const bool is_current =
        choice.page == current && (choice.page != Page::tabs || choice.tab == view_.tab);
    ImGuiTabItemFlags flags = 0;
    if (wanted && is_current) flags |= ImGuiTabItemFlags_SetSelected;
    std::string label = tight ? choice.shorter : choice.name;
    if (choice.page == Page::tabs && choice.tab == Tab::recommendations) {
      label += fmt::format(" ({})", advice);
    }
    const std::string id = fmt::format("{}###tab{}.{}", label, static_cast<int>(choice.page),
                                       static_cast<int>(choice.tab));
    const bool shown = ImGui::BeginTabItem(id.c_str(), nullptr, flags);
    track_item(std::string("tab/") + choice.name, label);
    if (!shown) continue;
    if (!wanted) {
      if (shared) page_ = choice.page;
      if (choice.page == Page::tabs) view_.tab = choice.tab;
    }
    ImGui::PushID(id.c_str());
    draw_page(frame, choice.page, choice.tab);
    ImGui::PopID();
    ImGui::EndTabItem();
  }
  if (shared) shown_page_ = has(page_) ? page_ : current;
  if (has(Page::tabs)) {
    shown_tab_ = view_.tab;
    tab_wanted_ = false;
  }
  ImGui::EndTabBar();
}

void App::draw_toast() {
  if (toast_.empty()) return;
  if (ImGui::GetTime() > toast_until_) {
    toast_.clear();
    return;
  }
  const float unit = scale(), pad = 10 * unit;
  const ImVec2 display = ImGui::GetIO().DisplaySize;
  const float wrap = std::min(520 * unit, display.x * 0.6f);
  const ImVec2 text = ImGui::CalcTextSize(toast_.c_str(), nullptr, false, wrap);
  const ImVec2 end{display.x - 16 * unit, display.y - 16 * unit};
  const ImVec2 start{end.x - text.x - 2 * pad, end.y - text.y - 2 * pad};
  ImDrawList& draw = *ImGui::GetForegroundDrawList();
  draw.AddRectFilled(start, end, toast_is_bad_ ? theme_->bad_soft : theme_->accent_soft, 6 * unit);
  draw.AddRect(start, end, toast_is_bad_ ? theme_->bad : theme_->accent, 6 * unit);
  draw.AddText(fonts_.text, ImGui::GetFontSize(), {start.x + pad, start.y + pad}, theme_->ink,
               toast_.c_str(), nullptr, wrap);
  track_rect("toast", start, end, toast_);
}

void App::draw_welcome() {
  const float unit = scale();
  const ImVec2 room = ImGui::GetContentRegionAvail(), start = ImGui::GetCursorPos();
  const ImVec2 size{std::min(620 * unit, room.x), std::min(500 * unit, room.y)};
  ImGui::SetCursorPos({start.x + (room.x - size.x) / 2, start.y + (room.y - size.y) * 0.4f});
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, ImVec2{28 * unit, 24 * unit});
  ImGui::BeginChild("welcome", size, true);
  ImGui::PopStyleVar();
  ImGui::PushFont(fonts_.large);
  ui::text("welcome/title", "HalfScope");
  ImGui::PopFont();
  ImGui::PushStyleColor(ImGuiCol_Text, theme_->soft);
  ui::text_wrapped("welcome/what",
                   "See which layer fails in reduced precision, why, and how to fix it.");
  ImGui::PopStyleColor();
  ImGui::Dummy({0, 12 * unit});
  if (!load_error().empty()) {
    ImGui::PushStyleColor(ImGuiCol_Text, theme_->bad);
    ui::text_wrapped("welcome/error", load_error());
    ImGui::PopStyleColor();
    if (!load_hint().empty()) ui::text_wrapped("welcome/hint", load_hint());
    ImGui::Dummy({0, 12 * unit});
  } else if (on_study_) {
    ui::text("welcome/loading", "Reading " + study_loader_->file());
    ImGui::Dummy({0, 12 * unit});
  } else if (run_loader_ && loading_) {
    ui::text("welcome/loading", trial_ && trial_->running()
                                    ? "Training. Waiting for the first step ..."
                                    : "Reading " + run_loader_->file());
    ImGui::Dummy({0, 12 * unit});
  } else if (run_) {
    ui::text("welcome/empty", "This run has no lanes: it stopped before training started.");
    ImGui::Dummy({0, 12 * unit});
  }
  const ImVec2 wide{260 * unit, 34 * unit};
  const auto line = [&](const char* path, const char* label, const char* text, auto&& act) {
    if (ui::button(path, label, wide)) act();
    ImGui::SameLine(0, 16 * unit);
    ImGui::AlignTextToFramePadding();
    ImGui::PushStyleColor(ImGuiCol_Text, theme_->soft);
    ImGui::PushTextWrapPos(0.0f);
    ImGui::TextUnformatted(text);
    ImGui::PopTextWrapPos();
    ImGui::PopStyleColor();
  };
  line("welcome/open", "Open a run or a study ...", "or drop a .hscope file or a study's folder",
       [this] { choose_run(); });
  line("welcome/demo", "Train a demo run", "a small network that fails in fp16",
       [this] { make_demo(); });
  line("welcome/lab", "Float lab", "explore bits, rounding and sums in any format",
       [this] { popup_ = "lab"; });
  if (!settings_.recent.empty()) {
    ImGui::Dummy({0, 12 * unit});
    ImGui::PushStyleColor(ImGuiCol_Text, theme_->soft);
    ImGui::TextUnformatted("Recent");
    ImGui::PopStyleColor();
    const std::vector<std::string> recent = settings_.recent;
    for (const std::string& file : recent) {
      if (ui::selectable("welcome/recent/" + file, file.c_str(), false)) open(file);
    }
  }
  ImGui::EndChild();
}

}  // namespace halfscope::gui
