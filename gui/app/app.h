// SPDX-License-Identifier: MIT
// App: the viewer without its window. Between NewFrame and Render it draws everything and answers
// the panels' requests. It needs neither display nor graphics card, so tests drive it directly.
#pragma once

#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "gui/app/child_process.h"
#include "gui/app/file_dialog.h"
#include "gui/app/trial.h"
#include "gui/data/loader.h"
#include "gui/data/run_model.h"
#include "gui/lab/float_lab.h"
#include "gui/panels/panel.h"
#include "gui/state/settings.h"
#include "gui/state/view_state.h"
#include "gui/study/study_page.h"
#include "gui/widgets/textures.h"
#include "gui/widgets/theme.h"

namespace halfscope::gui {

/// An action makes sense if a run is on the screen, or a study is open.
enum class Needs : uint8_t { nothing, run, study };

class App {
 public:
  struct Options {
    std::filesystem::path state_folder{};  ///< "" remembers nothing
    std::function<void()> wake{};          ///< makes an idle window draw a frame; any thread
  };

  App(Textures& textures, Options options);
  ~App();
  App(const App&) = delete;
  App& operator=(const App&) = delete;

  /// Opens a run file and closes the others, or a study. A running trial continues, and a study
  /// stays open behind the runs of its trials.
  void open(const std::string& file);
  void open_baseline(const std::string& file);
  /// Adds the loss of another run to the loss chart.
  void add_run(const std::string& file);
  void remove_added_runs();
  /// Opens files that were dropped on the window or named on the command line: a run, one to
  /// compare it with, and more that only add their loss.
  void drop(const std::vector<std::string>& files);
  /// Shows models that are already loaded, as in tests.
  void show(std::shared_ptr<const RunModel> run, std::shared_ptr<const RunModel> baseline);
  void show(std::shared_ptr<const StudyModel> study);

  /// Prepares a frame, before NewFrame. Returns true if the font atlas is new and must be uploaded.
  bool prepare(float display_scale);
  /// Draws one frame of the whole user interface.
  void frame();
  /// Saves settings and view; the destructor does this, too.
  void remember();

  /// Returns, once, the file to save a picture of the next frame to; "" if none is requested.
  std::string take_picture_request() { return std::exchange(picture_request_, {}); }
  /// Writes a picture of the panel in the next frame. On failure svg_problem() then says why.
  void save_svg(PanelPicture panel, const std::string& file);
  const std::string& svg_problem() const noexcept { return svg_problem_; }
  void picture_saved(const std::string& file, const std::string& problem);

  bool wants_quit() const noexcept { return quit_; }
  /// Returns true while the next frame must be drawn without waiting for input.
  bool draws_on() const noexcept {
    return picture_in_ > 0 || view_.playing || card_ || lab_.moving;
  }
  /// Returns "run.hscope - HalfScope".
  std::string title() const;

  ViewState& view() noexcept { return view_; }
  Settings& settings() noexcept { return settings_; }
  const RunModel* run() const noexcept { return run_.get(); }
  const RunModel* baseline() const noexcept { return baseline_.get(); }
  const StudyModel* study() const noexcept { return study_.get(); }
  StudyState& study_state() noexcept { return study_state_; }
  bool shows_study() const noexcept { return on_study_ && study_ != nullptr; }
  /// Draws the share card instead of everything else, once the run's report is there.
  void show_share_card() noexcept { share_card_ = true; }
  const Trial* trial() const noexcept { return trial_.get(); }
  FloatLab& lab() noexcept { return lab_; }
  /// Returns why the run file cannot be read, and what to do; "" if it can be.
  const std::string& load_error() const noexcept { return on_study_ ? study_error_ : load_error_; }
  const std::string& load_hint() const noexcept { return on_study_ ? study_hint_ : load_hint_; }
  /// Returns true while the run to compare with or an added one is still being read.
  bool reads_others() const;
  /// Returns why one of those cannot be read, and what to do; empty if all can be.
  std::optional<Error> others_error() const;
  /// Returns the last problem, or "".
  const std::string& problem() const noexcept { return problem_; }

  // Actions of keys, menus and the palette (actions.cpp).
  void choose_run();
  void choose_baseline();
  void choose_added_run();
  void choose_report();
  void choose_plan();
  void choose_picture();
  void choose_share_card();
  void choose_svg(PanelPicture panel);
  void choose_study_csv();
  void make_demo();
  void try_plan();
  void stop_trial();
  void close_run();
  void copy_command();
  void fit();
  void zoom(double factor);
  void pan(double share);
  void step_by(int64_t steps);
  void next_event(int direction);
  void layer_by(int rows);
  void follow();
  void toggle_playing();
  void toggle_screen();
  void next_window(int direction);   ///< another format for the Spectrum
  void slide_loss_scale(double by);  ///< in powers of two
  void fold_layers_here();           ///< folds the selected layer's group, or opens it
  void back();
  void forward();
  void focus_filter() noexcept { focus_filter_ = true; }
  void show_palette() noexcept { popup_ = "palette"; }
  void show_go_to() noexcept { popup_ = "go_to"; }
  void show_keys() noexcept { popup_ = "keys"; }
  void scale_by(float factor);
  void toggle_theme();
  void toggle_maximized();
  /// Opens the float lab at a value such as "fp16 0.1". Returns false, after a message, if it is
  /// not a number.
  bool show_lab(const std::string& text);
  /// Shows the tab, also if another page hides it.
  void show_tab(Tab tab);
  /// Quits; asks first if a training started here is still running.
  void quit();
  /// Manages this training from now on; asks the previous one to stop.
  void follow_trial(std::unique_ptr<Trial> trial);
  void toggle_bookmark();
  void go_to_bookmark(size_t index);
  void next_bookmark(int direction);
  void show_bookmarks() { popup_ = "bookmarks"; }
  void show_note();
  void go_to_worst();
  void try_fix();
  void fit_loss_scale();
  void use_loss_scale();
  /// Shows this run alone, or all of the other side of the wipe.
  void toggle_wipe();
  void next_smoothing();
  /// Shows the steps in which the selected tensor, else the layer, has values of the heatmap's
  /// kind.
  void zoom_to_selection();
  /// Goes back to the study that is open, if there is one.
  void show_study();
  /// Returns whether a run is on the screen.
  bool has_run() const noexcept { return run_ != nullptr && !on_study_; }
  bool has_study() const noexcept { return study_ != nullptr || study_loader_ != nullptr; }
  /// Returns whether an action that needs this can do anything.
  bool has(Needs needs) const noexcept {
    return needs == Needs::nothing || (needs == Needs::run ? has_run() : study_ != nullptr);
  }

 private:
  void open_study(const std::string& file);
  void close_study();
  void poll_study();
  void draw_study_page();
  void draw_study_status();
  void poll_models();
  void poll_added_runs();
  std::vector<const Loader*> others() const;
  void hold_for_dialog();
  void save(const std::string& file);
  void draw_share_card_to(const std::string& file);
  void poll_card();
  void retire(std::unique_ptr<Loader> loader);
  /// Selects the place of the most severe finding if nothing is selected yet.
  void select_worst_place();
  void answer(const Request& request);
  void notify(std::string text, bool is_problem = false);
  Selection selection() const;
  Frame make_frame();
  /// Returns the panel as the view shows it. Call within a frame. Throws Error if it is empty.
  std::string panel_svg(PanelPicture panel);
  /// Returns what `draw` draws in a window of this size at scale 1; it returns false if there is
  /// nothing to draw.
  std::string picture_svg(PanelPicture panel, ImVec2 size, const std::string& subject,
                          const std::function<bool(PictureTarget&)>& draw);
  void write_requested_svg();
  float scale() const noexcept { return display_scale_ * settings_.ui_scale; }

  void draw_menu_bar();
  void draw_share_card();
  void draw_status();
  void draw_welcome();
  void draw_run();
  void draw_spectrum_screen(const Frame& frame, ImVec2 room);
  void draw_screen_choice();
  void draw_center(const Frame& frame, ImVec2 size);
  void draw_values(const Frame& frame);
  /// Pages that share one space as tabs where they do not fit side by side.
  enum class Page : uint8_t { layers, steps, values, tabs };
  /// Draws tabs for these pages; Page::tabs gives one for each Tab. `bar` is unique in a frame.
  void draw_pages(const Frame& frame, const char* bar, std::initializer_list<Page> pages);
  void draw_page(const Frame& frame, Page page, Tab tab);
  void draw_tight(const Frame& frame, ImVec2 room, bool narrow, bool low);
  void draw_toast();
  void draw_popups();
  void draw_palette();
  void draw_go_to();
  void draw_keys();
  void draw_bookmarks();
  void draw_note();
  void close_popup();
  void draw_leaving();
  void poll_leaving();
  bool trial_running() const noexcept;
  void end_trial();
  void stop_and_quit();
  /// Returns the current place, with names filled in where the view shows a default.
  Place here() const;
  void handle_keys();

  Textures& textures_;
  Options options_;
  SettingsFile settings_file_;
  Settings settings_;
  const Theme* theme_;
  Fonts fonts_;
  float display_scale_ = 1.0f, built_scale_ = 0.0f;
  bool built_dark_ = true;

  std::unique_ptr<Loader> run_loader_, baseline_loader_;
  std::shared_ptr<const RunModel> run_, baseline_;
  int64_t run_generation_ = -1, baseline_generation_ = -1;
  struct AddedRun {
    std::unique_ptr<Loader> loader;
    int64_t generation = -1;
    std::string error{};  ///< that was told
  };
  std::vector<AddedRun> added_runs_;
  std::vector<std::shared_ptr<const RunModel>> added_;  ///< those that are loaded
  std::string load_error_, load_hint_, baseline_error_;
  bool loading_ = false;
  std::vector<std::unique_ptr<Loader>> retired_;  ///< that still read
  std::unique_ptr<StudyLoader> study_loader_;
  std::vector<std::unique_ptr<StudyLoader>> retired_studies_;  ///< that still read
  std::shared_ptr<const StudyModel> study_;
  StudyState study_state_;
  int64_t study_generation_ = -1;
  std::string study_error_, study_hint_;
  bool on_study_ = false;  ///< its page is shown, or will be once it is read
  std::unique_ptr<Trial> trial_;
  std::vector<std::unique_ptr<Trial>> ending_;  ///< that were asked to stop
  enum class Leaving : uint8_t { no, asking, stopping };
  Leaving leaving_ = Leaving::no;
  double stopping_since_ = 0.0;

  PanelCaches caches_;
  ViewState view_;
  History history_;
  std::vector<Request> requests_;
  FloatLab lab_;
  FileDialog dialog_;
  enum class Purpose : uint8_t {
    open_run,
    open_baseline,
    add_run,
    save_report,
    save_plan,
    save_text,
    save_picture,
    save_share_card
  };
  Purpose purpose_ = Purpose::open_run;
  // Subject of the open dialog: another run may be open when it is answered.
  std::shared_ptr<const RunModel> dialog_run_;
  std::shared_ptr<const StudyModel> dialog_study_;
  LaneInfo dialog_lane_{};
  PlanEdit dialog_edits_{};
  std::string text_;  ///< what save_text will write
  PanelPicture svg_panel_ = PanelPicture::loss;
  std::string svg_file_, svg_problem_;
  std::string picture_file_, picture_request_;
  int picture_in_ = 0;  ///< frames until the dialog has gone from the picture

  int palette_row_ = 0;  ///< the entry that Enter runs
  double play_clock_ = 0.0;
  bool share_card_ = false;
  std::unique_ptr<ChildProcess> card_;  ///< draws a share card
  std::string card_file_;
  std::string popup_, palette_text_, go_to_text_, note_text_;
  bool focus_filter_ = false, focus_popup_ = false, quit_ = false;
  Region hovered_region_ = Region::steps;  ///< that the pointer was in last
  bool tab_wanted_ = true;
  Tab shown_tab_ = Tab::recommendations;
  Page page_ = Page::steps, shown_page_ = Page::steps;  ///< where pages share a space
  std::string toast_, problem_;
  bool toast_is_bad_ = false;
  double toast_until_ = 0.0;
  std::vector<std::string> log_;
};

/// Begins a popup at the top centre that closes on Escape or a click outside. `opens` is true in
/// its first frame.
bool begin_popup(const char* name, ImVec2 size, bool opens, float top = 0.14f);

/// One thing a user can do, in a menu, by a key and in the palette.
struct AppAction {
  const char* menu;      ///< "Run"
  const char* name;      ///< "Open ..."
  const char* shortcut;  ///< "Ctrl+O"; "" without one
  void (*run)(App&);
  Needs needs;
};
const std::vector<AppAction>& app_actions();

/// Finds a panel by its name in scripts and files: "loss", "heatmap" ...
std::optional<PanelPicture> find_panel(std::string_view name);
std::string panel_names();  ///< all, with commas

}  // namespace halfscope::gui
