// SPDX-License-Identifier: MIT
// The study of the application: opening and closing it, and going between it and its runs.
#include <fmt/format.h>

#include <filesystem>

#include "analysis/rules/text.h"
#include "gui/app/app.h"
#include "gui/study/study_page.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {

void App::open_study(const std::string& file) {
  remember();
  show(nullptr, nullptr);
  remove_added_runs();
  close_study();
  study_loader_ = std::make_unique<StudyLoader>(study_file_of(file).string(), options_.wake);
  study_state_ = {};
  study_generation_ = -1;
  on_study_ = true;
  dialog_.set_folder(study_file_of(file).parent_path());
}

void App::show(std::shared_ptr<const StudyModel> study) {
  show(nullptr, nullptr);
  study_ = std::move(study);
  on_study_ = study_ != nullptr;
}

void App::close_study() {
  if (study_loader_) {
    study_loader_->ask_to_stop();
    retired_studies_.push_back(std::move(study_loader_));
  }
  study_.reset();
  study_error_.clear();
  study_hint_.clear();
  on_study_ = false;
}

void App::show_study() {
  if (!has_study()) return notify("No study is open. Pass its folder to halfscope view.");
  on_study_ = true;
}

void App::choose_study_csv() {
  if (!study_) return;
  text_ = study_csv(study_->view(), study_->facts());
  purpose_ = Purpose::save_text;
  dialog_.open("Save the trials as CSV", ".csv", true, "study-trials.csv");
}

void App::poll_study() {
  std::erase_if(retired_studies_, [](const auto& loader) { return loader->stopped(); });
  if (!study_loader_) return;
  StudyLoader::State state = study_loader_->state();
  if (state.generation == study_generation_) return;
  const bool first = study_ == nullptr && state.model != nullptr;
  study_generation_ = state.generation;
  if (state.model) study_ = std::move(state.model);
  // A study that was read once stays on the screen.
  if (study_ && !state.error.empty() && state.error != study_error_) notify(state.error, true);
  study_error_ = state.error;
  study_hint_ = state.hint;
  if (first) settings_.add_recent(study_->file());
}

void App::draw_study_page() {
  const bool busy = !popup_.empty() || dialog_.is_open() || leaving_ != Leaving::no;
  draw_study({.state = study_state_,
              .study = *study_,
              .theme = *theme_,
              .fonts = fonts_,
              .scale = scale(),
              .requests = requests_,
              .takes_keys = !busy});
}

void App::draw_study_status() {
  const StudyFacts& facts = study_->facts();
  const std::string text = fmt::format("{}   {}{}", facts.title, counted(facts.planned, "trial"),
                                       study_error_.empty() ? "" : ", no longer readable");
  const float left = ImGui::GetWindowWidth() - ImGui::CalcTextSize(text.c_str()).x - 12 * scale();
  if (left > ImGui::GetCursorPosX()) ImGui::SetCursorPosX(left);
  ImGui::PushStyleColor(ImGuiCol_Text, study_error_.empty() ? theme_->soft : theme_->bad);
  ui::text("status/study", text);
  ImGui::PopStyleColor();
}

}  // namespace halfscope::gui
