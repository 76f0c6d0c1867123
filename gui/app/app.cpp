// SPDX-License-Identifier: MIT
// Models, requests and settings: the state of the application. Drawing is in layout.cpp and
// popups.cpp, actions of keys and menus in actions.cpp.
#include "gui/app/app.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/output_file.h"
#include "core/error.h"
#include "gui/app/child_process.h"
#include "gui/panels/spectrum.h"
#include "gui/state/edited_plan.h"

namespace halfscope::gui {
namespace {

namespace fs = std::filesystem;

constexpr double kToastSeconds = 5.0;

std::string name_of(const std::string& file) { return fs::path(file).filename().string(); }

std::string error_text(const Error& error) {
  return error.hint().empty() ? error.what()
                              : fmt::format("{}. Hint: {}", error.what(), error.hint());
}

}  // namespace

App::App(Textures& textures, Options options)
    : textures_(textures),
      options_(std::move(options)),
      settings_file_(options_.state_folder),
      settings_(settings_file_.load()),
      theme_(settings_.dark ? &dark_theme() : &light_theme()) {
  dialog_.set_folder(".");
}

App::~App() { remember(); }

void App::remember() {
  settings_file_.save(settings_);
  if (run_ && run_loader_) settings_file_.save_view(run_->file(), view_);
}

void App::open(const std::string& file) {
  if (is_study(file)) return open_study(file);
  on_study_ = false;
  remember();
  retire(std::move(run_loader_));
  run_loader_ = std::make_unique<Loader>(file, options_.wake);
  run_.reset();
  run_generation_ = -1;
  load_error_.clear();
  load_hint_.clear();
  loading_ = true;
  view_ = settings_file_.load_view(file);
  shown_tab_ = view_.tab;
  tab_wanted_ = true;
  history_ = {};
  const bool of_trial = trial_ && trial_->run_file() == file;
  if (!of_trial) dialog_.set_folder(fs::path(file).parent_path());
}

void App::open_baseline(const std::string& file) {
  retire(std::move(baseline_loader_));
  baseline_loader_ = std::make_unique<Loader>(file, options_.wake);
  baseline_.reset();
  baseline_generation_ = -1;
  baseline_error_.clear();
}

void App::add_run(const std::string& file) {
  added_runs_.push_back({.loader = std::make_unique<Loader>(file, options_.wake)});
}

void App::remove_added_runs() {
  for (AddedRun& added : added_runs_) retire(std::move(added.loader));
  added_runs_.clear();
  added_.clear();
}

std::vector<const Loader*> App::others() const {
  std::vector<const Loader*> loaders;
  if (baseline_loader_) loaders.push_back(baseline_loader_.get());
  for (const AddedRun& added : added_runs_) loaders.push_back(added.loader.get());
  return loaders;
}

bool App::reads_others() const {
  const std::vector<const Loader*> loaders = others();
  return std::any_of(loaders.begin(), loaders.end(), [](const Loader* loader) {
    const Loader::State state = loader->state();
    return state.error.empty() && (!state.model || state.model->report() == nullptr);
  });
}

std::optional<Error> App::others_error() const {
  for (const Loader* loader : others()) {
    const Loader::State state = loader->state();
    if (!state.error.empty()) return Error(state.error, state.hint);
  }
  return std::nullopt;
}

void App::poll_added_runs() {
  bool changed = false;
  for (AddedRun& added : added_runs_) {
    const Loader::State state = added.loader->state();
    if (std::exchange(added.generation, state.generation) == state.generation) continue;
    changed = true;
    if (!state.error.empty() && state.error != added.error) notify(state.error, true);
    added.error = state.error;
  }
  if (!changed) return;
  added_.clear();
  for (const AddedRun& added : added_runs_) {
    Loader::State state = added.loader->state();
    if (state.model) added_.push_back(std::move(state.model));
  }
}

void App::show(std::shared_ptr<const RunModel> run, std::shared_ptr<const RunModel> baseline) {
  retire(std::move(run_loader_));
  retire(std::move(baseline_loader_));
  run_ = std::move(run);
  baseline_ = std::move(baseline);
  loading_ = false;
  load_error_.clear();
  select_worst_place();
}

void App::close_run() {
  if (on_study_) return close_study();
  remember();
  on_study_ = has_study();
  show(nullptr, nullptr);
  remove_added_runs();
  view_ = {};
  history_ = {};
}

void App::poll_models() {
  if (run_loader_) {
    Loader::State state = run_loader_->state();
    if (state.generation != run_generation_) {
      const bool first = run_ == nullptr && state.model != nullptr;
      run_generation_ = state.generation;
      if (state.model) run_ = state.model;
      loading_ = state.loading;
      load_error_ = state.error;
      load_hint_ = state.hint;
      // A trial that has not written anything yet is not an error.
      if (!run_ && trial_ && trial_->running() && trial_->run_file() == run_loader_->file()) {
        load_error_.clear();
        loading_ = true;
      }
      if (first) settings_.add_recent(run_->file());
      select_worst_place();
    }
  }
  if (baseline_loader_) {
    Loader::State state = baseline_loader_->state();
    if (state.generation != baseline_generation_) {
      baseline_generation_ = state.generation;
      if (state.model) baseline_ = state.model;
      if (!state.error.empty() && state.error != baseline_error_) notify(state.error, true);
      baseline_error_ = state.error;
    }
  }
  poll_added_runs();
  if (trial_ && trial_->poll()) {
    if (trial_->failed()) {
      notify("Training failed. See the Log tab.", true);
      show_tab(Tab::log);
      if (!run_) {
        loading_ = false;
        load_error_ = "Training failed.";
        load_hint_ = trial_->output();
      }
    } else {
      notify(fmt::format("Training finished: {}", trial_->run_file()));
    }
  }
}

void App::select_worst_place() {
  const Report* report = run_ ? run_->report() : nullptr;
  // A restored view has a layer, or at least a step where the worst finding names no layer.
  const bool restored = !view_.layer.empty() || view_.cursor >= 0;
  if (report == nullptr || restored || report->sick < 0) return;
  if (const Finding* worst = worst_finding(*report)) go_to_finding(view_, *run_, *worst);
}

void App::notify(std::string text, bool is_problem) {
  log_.push_back((is_problem ? "error: " : "") + text);
  if (is_problem) problem_ = text;
  toast_ = std::move(text);
  toast_is_bad_ = is_problem;
  toast_until_ = ImGui::GetTime() + kToastSeconds;
}

Selection App::selection() const { return run_ ? resolve_selection(*run_, view_) : Selection{}; }

Frame App::make_frame() {
  return {.view = view_,
          .run = *run_,
          .baseline = baseline_.get(),
          .at = selection(),
          .theme = *theme_,
          .fonts = fonts_,
          .scale = scale(),
          .textures = textures_,
          .requests = requests_,
          .caches = caches_,
          .focus_filter = focus_filter_,
          .lab = &lab_,
          .log = {.lines = log_,
                  .training = trial_ ? &trial_->output() : nullptr,
                  .is_training = trial_ && trial_->running()},
          .added = added_};
}

bool App::prepare(float display_scale) {
  display_scale_ = display_scale;
  theme_ = settings_.dark ? &dark_theme() : &light_theme();
  const bool new_scale = scale() != built_scale_;
  if (!new_scale && built_dark_ == settings_.dark) return false;
  apply_style(*theme_, scale());
  built_dark_ = settings_.dark;
  if (new_scale) fonts_ = load_fonts(scale());
  built_scale_ = scale();
  return new_scale;
}

void App::picture_saved(const std::string& file, const std::string& problem) {
  notify(problem.empty() ? "Saved " + file : problem, !problem.empty());
}

std::string App::title() const {
  if (shows_study()) return study_->facts().title + " - HalfScope";
  return run_ ? name_of(run_->file()) + " - HalfScope" : std::string("HalfScope");
}

void App::answer(const Request& request) {
  switch (request.kind) {
    case Request::Kind::open_file:
      open(request.text);
      break;
    case Request::Kind::make_demo:
      make_demo();
      break;
    case Request::Kind::copy:
      ImGui::SetClipboardText(request.text.c_str());
      notify("Copied.");
      break;
    case Request::Kind::copy_command:
      copy_command();
      break;
    case Request::Kind::save_plan:
      choose_plan();
      break;
    case Request::Kind::try_plan:
      try_plan();
      break;
    case Request::Kind::stop_trial:
      stop_trial();
      break;
    case Request::Kind::choose_baseline:
      choose_baseline();
      break;
    case Request::Kind::swap_runs:
      std::swap(run_, baseline_);
      std::swap(run_loader_, baseline_loader_);
      run_generation_ = baseline_generation_ = -1;  // both will be reported again
      load_error_.clear();
      baseline_error_.clear();
      break;
    case Request::Kind::close_baseline:
      baseline_.reset();
      retire(std::move(baseline_loader_));
      break;
    case Request::Kind::export_report:
      choose_report();
      break;
    case Request::Kind::export_csv:
      text_ = request.content;
      purpose_ = Purpose::save_text;
      dialog_.open("Save data as CSV", ".csv", true, request.text);
      break;
    case Request::Kind::export_svg:
      choose_svg(request.panel);
      break;
    case Request::Kind::show_help:
      show_keys();
      break;
    case Request::Kind::quit:
      quit();
      break;
  }
}

void App::hold_for_dialog() {
  dialog_run_ = run_;
  dialog_lane_ = run_->view().lane(std::max(selection().lane, 0));
  dialog_edits_ = view_.edits;
}

void App::save(const std::string& file) {
  switch (purpose_) {
    case Purpose::open_run:
      open(file);
      return;
    case Purpose::open_baseline:
      open_baseline(file);
      return;
    case Purpose::add_run:
      add_run(file);
      return;
    case Purpose::save_picture:
      picture_file_ = file;
      picture_in_ = 3;
      return;
    case Purpose::save_share_card:
      draw_share_card_to(file);
      return;
    case Purpose::save_report:
      write_output_file(file,
                        dialog_study_ ? study_html(dialog_study_->view(), dialog_study_->facts(),
                                                   study_links_from(file, dialog_study_->file()))
                                      : report_html(*dialog_run_->report()),
                        true);
      break;
    case Purpose::save_plan:
      write_output_file(file, edited_plan(dialog_lane_, dialog_edits_) + "\n", true);
      break;
    case Purpose::save_text:
      write_output_file(file, text_, true);
      break;
  }
  std::string text = "Saved " + file;
  if (purpose_ == Purpose::save_plan && dialog_edits_.loss_scale()) {
    text += fmt::format(
        ". A plan does not contain the loss scale: add --loss-scale static:{} to train it",
        fmt::format("{:.0f}", *dialog_edits_.loss_scale()));
  }
  notify(text);
}

void App::draw_share_card_to(const std::string& file) {
  // Another process draws it, off screen and at its own size.
  std::vector<std::string> words{program_beside("halfscope-view"), "--share", file, "--force"};
  if (!settings_.dark) words.emplace_back("--light");
  words.insert(words.end(), {"--", dialog_run_->file()});
  card_file_ = file;
  card_ = std::make_unique<ChildProcess>(words);
}

void App::poll_card() {
  if (!card_) return;
  card_->poll();
  if (card_->running()) return;
  const bool good = card_->exit_code() == 0;
  notify(good ? "Saved " + card_file_ : "The share card could not be drawn: " + card_->output(),
         !good);
  card_.reset();
}

void App::drop(const std::vector<std::string>& files) {
  if (files.empty()) return;
  dialog_.close();
  open(files[0]);
  if (on_study_) return;  // it has runs enough
  if (files.size() > 1) open_baseline(files[1]);
  for (size_t i = 2; i < files.size(); ++i) add_run(files[i]);
}

void App::retire(std::unique_ptr<Loader> loader) {
  // It may be reading a large file: do not wait for it here.
  if (!loader) return;
  loader->ask_to_stop();
  retired_.push_back(std::move(loader));
}

void App::frame() {
  std::erase_if(retired_, [](const auto& loader) { return loader->stopped(); });
  poll_models();
  poll_study();
  poll_card();
  view_.begin_frame();
  lab_.moving = false;  // its tabs set it while they are drawn
  handle_keys();
  if (has_run()) play(view_, *run_, static_cast<double>(ImGui::GetIO().DeltaTime), play_clock_);

  const ImGuiViewport& viewport = *ImGui::GetMainViewport();
  ImGui::SetNextWindowPos(viewport.Pos);
  ImGui::SetNextWindowSize(viewport.Size);
  const ImGuiWindowFlags flags =
      ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoSavedSettings |
      ImGuiWindowFlags_NoBringToFrontOnFocus | (share_card_ ? 0 : ImGuiWindowFlags_MenuBar);
  ImGui::Begin("HalfScope", nullptr, flags);
  if (share_card_ && run_ && run_->report() != nullptr && selection().lane >= 0) {
    draw_share_card();
    ImGui::End();
    return;
  }
  draw_menu_bar();
  if (shows_study()) {
    draw_study_page();
  } else if (!on_study_ && run_ && run_->lane_count() > 0) {
    draw_run();
  } else {
    draw_welcome();
  }
  ImGui::End();
  draw_popups();
  if (const std::optional<std::string> file = dialog_.draw(*theme_, scale())) {
    try {
      save(*file);
    } catch (const Error& error) {
      notify(error_text(error), true);
    }
  }
  poll_leaving();
  draw_leaving();
  draw_toast();
  write_requested_svg();
  if (picture_in_ > 0 && --picture_in_ == 0) picture_request_ = picture_file_;

  std::vector<Request> requests;
  requests.swap(requests_);
  for (const Request& request : requests) answer(request);
  if (!ImGui::IsAnyMouseDown() && has_run()) history_.note(view_);
}

void App::make_demo() {
  try {
    const fs::path folder = (options_.state_folder.empty() ? fs::temp_directory_path() / "halfscope"
                                                           : options_.state_folder) /
                            "trials";
    // Do not overwrite the file of a demo run that is still training.
    const std::string file = (folder / "demo.hscope").string();
    if (trial_running() && trial_->run_file() == file) return open(file);
    for (const std::unique_ptr<Trial>& trial : ending_) {
      if (trial->run_file() == file)
        return notify("The previous demo run is still stopping. Try again in a moment.");
    }
    follow_trial(Trial::demo(folder));
    open(trial_->run_file());
    notify("Training a small network that fails in fp16 ...");
  } catch (const Error& error) {
    notify(error_text(error), true);
  }
}

void App::try_plan() {
  if (!run_ || view_.edits.empty()) return;
  try {
    const Selection at = selection();
    const fs::path folder = (options_.state_folder.empty() ? fs::temp_directory_path() / "halfscope"
                                                           : options_.state_folder) /
                            "trials";
    const int reference = run_->report() ? run_->report()->reference : -1;
    follow_trial(Trial::of_plan(folder, run_->view().info(), at.lane, reference, view_.edits));
    log_.push_back("$ " + trial_->command());
    // The run it came from stays open for comparison.
    baseline_ = run_;
    baseline_loader_ = std::move(run_loader_);
    baseline_generation_ = run_generation_;
    const ViewState before = view_;
    open(trial_->run_file());
    view_ = before;
    view_.lane.clear();
    view_.edits = {};  // they are this run's plan now
    view_.cursor = -1;
    view_.range = {};
    show_tab(Tab::compare);
    notify("Training the edited plan ...");
  } catch (const Error& error) {
    notify(error_text(error), true);
  }
}

void App::stop_trial() {
  if (trial_ && trial_->running()) {
    trial_->stop();
    notify("Stopping the training after its current step.");
  }
}

void App::copy_command() {
  if (!run_) return;
  try {
    const int reference = run_->report() ? run_->report()->reference : -1;
    const LaneInfo& lane = run_->view().lane(std::max(selection().lane, 0));
    std::vector<std::string> words =
        trial_command(run_->view().info(), reference, view_.edits, plan_argument(lane, "plan.json"),
                      "trial.hscope");
    words.insert(words.begin(), "halfscope");
    ImGui::SetClipboardText(command_text(words).c_str());
    notify("Command copied. It reads plan.json: save the edited plan under that name.");
  } catch (const Error& error) {
    notify(error_text(error), true);
  }
}

}  // namespace halfscope::gui
