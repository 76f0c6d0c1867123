// SPDX-License-Identifier: MIT
// Everything a user can do by key, menu or palette, in one table: the menus, the palette and the
// sheet of keys are made from it, so none of them can be wrong about another.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "gui/app/app.h"
#include "gui/data/smoothing.h"
#include "gui/panels/events.h"
#include "gui/panels/layer_lines.h"
#include "gui/panels/spectrum.h"
#include "gui/panels/step_plot.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"

namespace halfscope::gui {
namespace {

constexpr float kSmallestScale = 0.75f, kLargestScale = 3.0f;

struct Chord {
  bool ctrl = false, alt = false, shift = false;
  Key key{};
  ImGuiKey named = ImGuiKey_COUNT;  ///< COUNT: `key` counts
};

/// "Ctrl+O", "Alt+Left", "?", "F".
Chord parse_chord(std::string_view text) {
  Chord chord;
  const auto take = [&text](std::string_view start) {
    if (!text.starts_with(start)) return false;
    text.remove_prefix(start.size());
    return true;
  };
  chord.ctrl = take("Ctrl+");
  chord.alt = take("Alt+");
  chord.shift = take("Shift+");
  struct Named {
    std::string_view name;
    ImGuiKey key;
  };
  static constexpr Named kNamed[] = {{"Left", ImGuiKey_LeftArrow}, {"Right", ImGuiKey_RightArrow},
                                     {"Up", ImGuiKey_UpArrow},     {"Down", ImGuiKey_DownArrow},
                                     {"Space", ImGuiKey_Space},    {"Home", ImGuiKey_Home},
                                     {"End", ImGuiKey_End}};
  for (const Named& each : kNamed) {
    if (text == each.name) {
      chord.named = each.key;
      return chord;
    }
  }
  if (text == "?") {
    chord.shift = true;
    chord.key = symbol_key('/');
  } else if (text[0] >= 'A' && text[0] <= 'Z') {
    chord.key = letter_key(text[0]);
  } else {
    chord.key = symbol_key(text[0]);
  }
  return chord;
}

bool pressed(const Chord& chord) {
  const ImGuiIO& io = ImGui::GetIO();
  if (io.KeyCtrl != chord.ctrl || io.KeyAlt != chord.alt || io.KeyShift != chord.shift) {
    return false;
  }
  return chord.named != ImGuiKey_COUNT ? named_key_pressed(chord.named, true)
                                       : key_pressed(chord.key, true);
}

}  // namespace

const std::vector<AppAction>& app_actions() {
  static const std::vector<AppAction> actions{
      {"Run", "Open ...", "Ctrl+O", [](App& app) { app.choose_run(); }, Needs::nothing},
      {"Run", "Compare with ...", "Ctrl+B", [](App& app) { app.choose_baseline(); }, Needs::run},
      {"Run", "Add the loss of another run ...", "", [](App& app) { app.choose_added_run(); },
       Needs::run},
      {"Run", "Remove added runs", "", [](App& app) { app.remove_added_runs(); }, Needs::run},
      {"Run", "Train a demo run", "", [](App& app) { app.make_demo(); }, Needs::nothing},
      {"Run", "Try the fix", "", [](App& app) { app.try_fix(); }, Needs::run},
      {"Run", "Try the edited plan", "Ctrl+T", [](App& app) { app.try_plan(); }, Needs::run},
      {"Run", "Stop the training", "", [](App& app) { app.stop_trial(); }, Needs::nothing},
      {"Run", "Save the edited plan ...", "Ctrl+S", [](App& app) { app.choose_plan(); },
       Needs::run},
      {"Run", "Close run", "Ctrl+W", [](App& app) { app.close_run(); }, Needs::nothing},
      {"Run", "Quit", "Ctrl+Q", [](App& app) { app.quit(); }, Needs::nothing},
      {"Export", "HTML report ...", "Ctrl+E", [](App& app) { app.choose_report(); },
       Needs::nothing},
      {"Export", "Window as PNG ...", "Ctrl+I", [](App& app) { app.choose_picture(); },
       Needs::nothing},
      {"Export", "Share card ...", "", [](App& app) { app.choose_share_card(); }, Needs::run},
      {"Export", "Spectrum as SVG ...", "",
       [](App& app) { app.choose_svg(PanelPicture::spectrum); }, Needs::run},
      {"Export", "Loss as SVG ...", "", [](App& app) { app.choose_svg(PanelPicture::loss); },
       Needs::run},
      {"Export", "Heatmap as SVG ...", "", [](App& app) { app.choose_svg(PanelPicture::heatmap); },
       Needs::run},
      {"Export", "Magnitudes as SVG ...", "",
       [](App& app) { app.choose_svg(PanelPicture::magnitudes); }, Needs::run},
      {"Export", "Histogram as SVG ...", "",
       [](App& app) { app.choose_svg(PanelPicture::histogram); }, Needs::run},
      {"Export", "Distances as SVG ...", "",
       [](App& app) { app.choose_svg(PanelPicture::distances); }, Needs::run},
      {"Export", "Error by depth as SVG ...", "",
       [](App& app) { app.choose_svg(PanelPicture::errors); }, Needs::run},
      {"Export", "Loss scales as SVG ...", "",
       [](App& app) { app.choose_svg(PanelPicture::scalers); }, Needs::run},
      {"Export", "Study: map of trials as SVG ...", "",
       [](App& app) { app.choose_svg(PanelPicture::study_map); }, Needs::study},
      {"Export", "Study: cost against loss gap as SVG ...", "",
       [](App& app) { app.choose_svg(PanelPicture::study_cost); }, Needs::study},
      {"Export", "Study: losses of the group as SVG ...", "",
       [](App& app) { app.choose_svg(PanelPicture::study_losses); }, Needs::study},
      {"Export", "Study: trials as CSV ...", "", [](App& app) { app.choose_study_csv(); },
       Needs::study},
      {"View", "Spectrum or details", "V", [](App& app) { app.toggle_screen(); }, Needs::run},
      {"View", "Next format of the Spectrum", ".", [](App& app) { app.next_window(1); },
       Needs::run},
      {"View", "Previous format of the Spectrum", ",", [](App& app) { app.next_window(-1); },
       Needs::run},
      {"View", "Scale per tensor, in the Spectrum's format", "",
       [](App& app) { toggle_per_tensor(app.view()); }, Needs::run},
      {"View", "Try twice the loss scale", "=", [](App& app) { app.slide_loss_scale(1.0); },
       Needs::run},
      {"View", "Try half the loss scale", "-", [](App& app) { app.slide_loss_scale(-1.0); },
       Needs::run},
      {"View", "Loss scale at which gradients lose least", "",
       [](App& app) { app.fit_loss_scale(); }, Needs::run},
      {"View", "Use this loss scale in the plan", "", [](App& app) { app.use_loss_scale(); },
       Needs::run},
      {"View", "One step or all visible steps", "E",
       [](App& app) { app.view().merge_steps = !app.view().merge_steps; }, Needs::run},
      {"View", "Before or after the wipe", "C", [](App& app) { app.toggle_wipe(); }, Needs::run},
      {"View", "Answers or charts, in a narrow window", "",
       [](App& app) { app.view().answers = !app.view().answers; }, Needs::run},
      {"View", "Fold or open the layer's group", "G", [](App& app) { app.fold_layers_here(); },
       Needs::run},
      {"View", "Show all steps", "F", [](App& app) { app.fit(); }, Needs::run},
      {"View", "Zoom to the steps that harm the selection", "Z",
       [](App& app) { app.zoom_to_selection(); }, Needs::run},
      {"View", "Smooth the loss, or show it as recorded", "X",
       [](App& app) { app.next_smoothing(); }, Needs::run},
      {"View", "Zoom in", "W", [](App& app) { app.zoom(0.8); }, Needs::run},
      {"View", "Zoom out", "S", [](App& app) { app.zoom(1.25); }, Needs::run},
      {"View", "Pan left", "A", [](App& app) { app.pan(-0.1); }, Needs::run},
      {"View", "Pan right", "D", [](App& app) { app.pan(0.1); }, Needs::run},
      {"View", "Rows: layers or tensors", "R",
       [](App& app) { app.view().tensor_rows = !app.view().tensor_rows; }, Needs::run},
      {"View", "Other frameworks' loss scalers", "",
       [](App& app) {
         app.view().try_scalers = true;
         app.show_tab(Tab::scalers);
       },
       Needs::run},
      {"View", "Maximize the region under the pointer", "M",
       [](App& app) { app.toggle_maximized(); }, Needs::run},
      {"View", "Larger text", "Ctrl+=", [](App& app) { app.scale_by(1.1f); }, Needs::nothing},
      {"View", "Smaller text", "Ctrl+-", [](App& app) { app.scale_by(1.0f / 1.1f); },
       Needs::nothing},
      {"View", "Default text size", "Ctrl+0", [](App& app) { app.scale_by(0.0f); }, Needs::nothing},
      {"View", "Dark or light theme", "Ctrl+D", [](App& app) { app.toggle_theme(); },
       Needs::nothing},
      {"Go", "Study of this run", "U", [](App& app) { app.show_study(); }, Needs::nothing},
      {"Go", "Back", "Alt+Left", [](App& app) { app.back(); }, Needs::run},
      {"Go", "Forward", "Alt+Right", [](App& app) { app.forward(); }, Needs::run},
      {"Go", "Previous step", "[", [](App& app) { app.step_by(-1); }, Needs::run},
      {"Go", "Next step", "]", [](App& app) { app.step_by(1); }, Needs::run},
      {"Go", "Worst finding", "H", [](App& app) { app.go_to_worst(); }, Needs::run},
      {"Go", "Next event", "N", [](App& app) { app.next_event(1); }, Needs::run},
      {"Go", "Previous event", "P", [](App& app) { app.next_event(-1); }, Needs::run},
      {"Go", "Next layer", "J", [](App& app) { app.layer_by(1); }, Needs::run},
      {"Go", "Previous layer", "K", [](App& app) { app.layer_by(-1); }, Needs::run},
      {"Go", "Play the training, or stop", "Space", [](App& app) { app.toggle_playing(); },
       Needs::run},
      {"Go", "Follow the latest step", "End", [](App& app) { app.follow(); }, Needs::run},
      {"Go", "Go to step or layer ...", "Ctrl+G", [](App& app) { app.show_go_to(); }, Needs::run},
      {"Go", "Bookmark this place", "B", [](App& app) { app.toggle_bookmark(); }, Needs::run},
      {"Go", "Bookmarks ...", "Shift+B", [](App& app) { app.show_bookmarks(); }, Needs::run},
      {"Go", "Next bookmark", "Alt+Down", [](App& app) { app.next_bookmark(1); }, Needs::run},
      {"Go", "Previous bookmark", "Alt+Up", [](App& app) { app.next_bookmark(-1); }, Needs::run},
      {"Go", "Note on this step ...", "T", [](App& app) { app.show_note(); }, Needs::run},
      {"Go", "Filter layers", "Ctrl+F", [](App& app) { app.focus_filter(); }, Needs::run},
      {"Help", "Float lab", "L", [](App& app) { app.show_lab(""); }, Needs::nothing},
      {"Help", "Command palette ...", "Ctrl+P", [](App& app) { app.show_palette(); },
       Needs::nothing},
      {"Help", "Keyboard and mouse", "?", [](App& app) { app.show_keys(); }, Needs::nothing}};
  return actions;
}

void App::handle_keys() {
  static const std::vector<Chord> chords = [] {
    std::vector<Chord> list;
    for (const AppAction& action : app_actions()) {
      list.push_back(*action.shortcut ? parse_chord(action.shortcut) : Chord{});
    }
    return list;
  }();
  if (!popup_.empty() || dialog_.is_open() || leaving_ != Leaving::no) return;
  const std::vector<AppAction>& actions = app_actions();
  const bool typing = ImGui::GetIO().WantTextInput;
  for (size_t i = 0; i < actions.size(); ++i) {
    const AppAction& action = actions[i];
    if (!*action.shortcut || !has(action.needs)) continue;
    if (typing && !chords[i].ctrl) continue;
    if (pressed(chords[i])) {
      action.run(*this);
      return;
    }
  }
  if (!typing && named_key_pressed(ImGuiKey_Escape)) view_.maximized = Region::none;
}

void App::choose_run() {
  purpose_ = Purpose::open_run;
  dialog_.open_run("Open a run or a study", FileDialog::Studies::offered);
}

void App::choose_baseline() {
  purpose_ = Purpose::open_baseline;
  dialog_.open_run("Open a run to compare with", FileDialog::Studies::hidden);
}

void App::choose_added_run() {
  purpose_ = Purpose::add_run;
  dialog_.open_run("Add the loss of another run", FileDialog::Studies::hidden);
}

void App::choose_report() {
  dialog_study_ = shows_study() ? study_ : nullptr;
  if (dialog_study_) {
    purpose_ = Purpose::save_report;
    return dialog_.open("Save the report", ".html", true, "study.html");
  }
  if (!has_run() || !run_->report()) return;
  hold_for_dialog();
  purpose_ = Purpose::save_report;
  dialog_.open("Save the report", ".html", true,
               std::filesystem::path(run_->file()).stem().string() + ".html");
}

void App::choose_picture() {
  purpose_ = Purpose::save_picture;
  dialog_.open(
      "Save a picture of the window", ".png", true,
      run_ ? std::filesystem::path(run_->file()).stem().string() + ".png" : "halfscope.png");
}

void App::choose_share_card() {
  if (!run_ || !run_->report()) return;
  hold_for_dialog();
  purpose_ = Purpose::save_share_card;
  dialog_.open("Save a share card, 1200 x 630", ".png", true,
               std::filesystem::path(run_->file()).stem().string() + "-card.png");
}

void App::choose_plan() {
  if (!run_) return;
  if (view_.edits.empty()) {
    notify("Select a change under Recommendations first.");
    return;
  }
  hold_for_dialog();
  purpose_ = Purpose::save_plan;
  dialog_.open("Save the edited plan", ".json", true, "plan.json");
}

bool App::show_lab(const std::string& text) {
  const bool good = text.empty() || lab_.open(text);
  if (!good) notify("'" + text + "' is not a number in a known format.", true);
  if (has_run()) {
    show_tab(Tab::float_lab);
  } else {
    popup_ = "lab";
  }
  return good;
}

void App::show_tab(Tab tab) {
  view_.screen = Screen::details;
  view_.tab = tab;
  page_ = Page::tabs;
}

void App::fit() {
  view_.range = {};
  view_.row_zoom = 1.0;
  view_.row_scroll = 0.0;
}

void App::zoom(double factor) {
  if (!run_ || run_->step_count() < 2) return;
  const double last = static_cast<double>(run_->step_count() - 1);
  const StepRange range = view_.range.all() ? StepRange{0.0, last} : view_.range;
  const double step = static_cast<double>(std::max<int64_t>(selection().step, 0));
  const double anchor =
      step >= range.first && step <= range.last ? step : (range.first + range.last) / 2;
  StepRange wanted{anchor + (range.first - anchor) * factor,
                   anchor + (range.last - anchor) * factor};
  if (wanted.last - wanted.first < 2.0) return;
  wanted.first = std::max(wanted.first, 0.0);
  wanted.last = std::min(wanted.last, last);
  view_.range = wanted.first <= 0.0 && wanted.last >= last ? StepRange{} : wanted;
}

void App::zoom_to_selection() {
  if (!run_) return;
  const Frame frame = make_frame();
  if (frame.at.lane < 0 || frame.at.layer < 0) return notify("Select a layer first.");
  const LayerModel& layer = *frame.layer();
  const std::vector<int> sites = frame.at.site >= 0 ? std::vector<int>{frame.at.site} : layer.sites;
  const HeatGrid& grid = frame.lane().grid(view_.metric);
  const std::span<const Column> columns = run_->columns();
  int64_t first = -1, last = -1;
  for (size_t column = 0; column < columns.size(); ++column) {
    const bool harmed = std::any_of(sites.begin(), sites.end(), [&](int site) {
      return grid.at(static_cast<size_t>(site), column) > kZeroHeat;
    });
    if (!harmed) continue;
    if (first < 0) first = columns[column].step;
    last = columns[column].last();
  }
  const std::string name = frame.at.site >= 0 ? frame.site_info()->name() : layer.path;
  const bool any_kind = view_.metric == Metric::worst;
  if (first < 0) {
    return notify(any_kind ? name + ": harmed in no step."
                           : fmt::format("{}: {} in no step.", name, metric_name(view_.metric)));
  }
  // Some steps before and after show what led there.
  const auto margin = std::max(2.0, 0.1 * static_cast<double>(last - first));
  const double end = static_cast<double>(run_->step_count() - 1);
  view_.range = {std::max(0.0, static_cast<double>(first) - margin),
                 std::min(end, static_cast<double>(last) + margin)};
  if (view_.range.first <= 0.0 && view_.range.last >= end) view_.range = {};
  notify(fmt::format("{}: {} in {}.", name, any_kind ? "harmed" : metric_name(view_.metric),
                     steps_text(first, last)));
}

void App::next_smoothing() {
  const auto next =
      std::upper_bound(std::begin(kSmoothings), std::end(kSmoothings), view_.smoothing);
  view_.smoothing = next == std::end(kSmoothings) ? kSmoothings[0] : *next;
}

void App::pan(double share) {
  if (!run_ || view_.range.all()) return;
  const double last = static_cast<double>(run_->step_count() - 1);
  const double width = view_.range.last - view_.range.first;
  const double first =
      std::clamp(view_.range.first + share * width, 0.0, std::max(0.0, last - width));
  view_.range = {first, first + width};
}

void App::step_by(int64_t steps) {
  if (!run_ || run_->step_count() == 0) return;
  view_.cursor = std::clamp<int64_t>(selection().step + steps, 0, run_->step_count() - 1);
}

void App::next_event(int direction) {
  if (!run_) return;
  const Selection at = selection();
  const std::vector<Event> events = events_of(*run_, at.lane);
  const Event* found = nullptr;
  for (const Event& event : events) {
    if (direction > 0 && event.step > at.step) {
      found = &event;
      break;
    }
    if (direction < 0 && event.step < at.step) found = &event;
  }
  if (found == nullptr) {
    notify(direction > 0 ? "No events after this step." : "No events before this step.");
    return;
  }
  view_.cursor = found->step;
}

void App::layer_by(int rows) {
  if (!run_) return;
  const Frame frame = make_frame();
  const int layer = layer_after(layer_lines(frame), frame.at.layer, rows);
  if (layer >= 0) frame.select_layer(layer);
}

void App::follow() {
  view_.cursor = -1;
  view_.playing = false;
}

void App::toggle_playing() {
  if (run_) gui::toggle_playing(view_, *run_);
}

void App::next_window(int direction) {
  const std::span<const SpectrumWindow> windows = spectrum_windows();
  const auto here = std::find_if(windows.begin(), windows.end(), [&](const SpectrumWindow& each) {
    return view_.window == each.lens;
  });
  const auto count = static_cast<int>(windows.size());
  const int place = here == windows.end() ? 0 : static_cast<int>(here - windows.begin());
  view_.window = windows[static_cast<size_t>((place + direction + count) % count)].lens;
}

void App::slide_loss_scale(double by) { view_.scale_shift = within_slide(view_.scale_shift + by); }

void App::go_to_worst() {
  const Report* report = run_ ? run_->report() : nullptr;
  const Finding* worst = report == nullptr ? nullptr : worst_finding(*report);
  if (worst == nullptr) return notify("Nothing was found that does harm.");
  go_to_finding(view_, *run_, *worst);
}

void App::try_fix() {
  if (!run_) return;
  const std::optional<PlanEdit> fix = fix_to_try(make_frame());
  if (!fix) return notify("There is no fix to try for this lane.");
  view_.edits = *fix;
  try_plan();
}

void App::fit_loss_scale() {
  if (!run_) return;
  view_.scale_shift = within_slide(spectrum_rows(make_frame()).best_shift());
}

void App::use_loss_scale() {
  if (!run_) return;
  const double scale = wanted_loss_scale(make_frame());
  view_.edits.set_loss_scale(scale);
  notify("The edited plan has the loss scale " + short_scale(scale) + ".");
}

void App::toggle_wipe() {
  if (!run_) return;
  if (fixed_lane(make_frame()).run == nullptr)
    return notify("There is nothing to compare with: no healthy lane and no second run.");
  view_.wipe = view_.wipe > 0.5 ? 0.0 : 1.0;
}

void App::fold_layers_here() {
  if (!run_) return;
  fold_selected(make_frame());
}

void App::toggle_screen() {
  view_.screen = view_.screen == Screen::spectrum ? Screen::details : Screen::spectrum;
}

void App::back() {
  Place place = view_;
  history_.back(place);
  static_cast<Place&>(view_) = place;
}

void App::forward() {
  Place place = view_;
  history_.forward(place);
  static_cast<Place&>(view_) = place;
}

void App::scale_by(float factor) {
  settings_.ui_scale = factor == 0.0f
                           ? 1.0f
                           : std::clamp(settings_.ui_scale * factor, kSmallestScale, kLargestScale);
}

void App::toggle_theme() { settings_.dark = !settings_.dark; }

void App::toggle_maximized() {
  view_.maximized = view_.maximized == Region::none ? hovered_region_ : Region::none;
}

}  // namespace halfscope::gui
