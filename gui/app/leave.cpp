// SPDX-License-Identifier: MIT
// Quitting while a training runs: it continues alone, or the viewer asks it to stop and waits, so
// that no recorded data is lost. It is killed only if it has not ended long after.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "gui/app/app.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr double kOfferAfter = 10.0;  ///< seconds until the viewer offers to quit without waiting
constexpr double kKillAfter = 120.0;

}  // namespace

bool App::trial_running() const noexcept { return trial_ && trial_->running(); }

void App::follow_trial(std::unique_ptr<Trial> trial) {
  end_trial();
  trial_ = std::move(trial);
}

void App::end_trial() {
  if (trial_running()) {
    trial_->stop();
    ending_.push_back(std::move(trial_));
  }
  trial_.reset();
}

void App::quit() {
  if (leaving_ != Leaving::no) return;
  if (trial_running()) {
    leaving_ = Leaving::asking;
  } else {
    stop_and_quit();
  }
}

void App::stop_and_quit() {
  end_trial();
  leaving_ = Leaving::stopping;
  stopping_since_ = ImGui::GetTime();
  if (ending_.empty()) quit_ = true;
}

void App::poll_leaving() {
  for (const std::unique_ptr<Trial>& trial : ending_) trial->poll();
  std::erase_if(ending_, [](const auto& trial) { return !trial->running(); });
  // It ended while the question was open.
  if (leaving_ == Leaving::asking && !trial_running()) leaving_ = Leaving::stopping;
  if (leaving_ != Leaving::stopping) return;
  if (ImGui::GetTime() - stopping_since_ > kKillAfter) {
    for (const std::unique_ptr<Trial>& trial : ending_) trial->kill();
  }
  if (ending_.empty()) quit_ = true;
}

void App::draw_leaving() {
  if (leaving_ == Leaving::no || quit_) return;
  const char* name = "###leaving";
  if (!ImGui::IsPopupOpen(name)) ImGui::OpenPopup(name);
  const ImVec2 center = ImGui::GetMainViewport()->GetCenter();
  ImGui::SetNextWindowPos(center, ImGuiCond_Always, {0.5f, 0.5f});
  const float width = std::min(520 * scale(), ImGui::GetIO().DisplaySize.x * 0.92f);
  ImGui::SetNextWindowSize({width, 0});
  const ImGuiWindowFlags flags = ImGuiWindowFlags_NoTitleBar | ImGuiWindowFlags_NoResize |
                                 ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoSavedSettings;
  if (!ImGui::BeginPopupModal(name, nullptr, flags)) return;
  const auto let_run = [this] {
    if (trial_) trial_->detach();
    for (const std::unique_ptr<Trial>& trial : ending_) trial->detach();
    quit_ = true;
  };
  if (leaving_ == Leaving::asking) {
    const std::string file = std::filesystem::path(trial_->run_file()).filename().string();
    ImGui::PushFont(fonts_.bold);
    ui::text("quit/title", "Training is still running");
    ImGui::PopFont();
    ui::text_wrapped("quit/what",
                     fmt::format("{} is not finished. Either way, everything recorded so far is "
                                 "kept.",
                                 file));
    ImGui::Dummy({0, 4 * scale()});
    if (ui::button("quit/keep", "Keep training")) let_run();
    ui::tip(("Training continues without the viewer and writes " + trial_->run_file()).c_str());
    flow(120 * scale(), 8 * scale());
    if (!quit_ && ui::button("quit/stop", "Stop training")) stop_and_quit();
    ui::tip("Finishes the current step and closes the file. The viewer waits for that.");
    flow(80 * scale(), 8 * scale());
    if (ui::button("quit/cancel", "Cancel") || named_key_pressed(ImGuiKey_Escape)) {
      leaving_ = Leaving::no;
      ImGui::CloseCurrentPopup();
    }
  } else {
    const double waited = ImGui::GetTime() - stopping_since_;
    ui::text_wrapped("quit/waiting",
                     fmt::format("Waiting for the training to finish its step and close its "
                                 "file ... {:.0f} s",
                                 waited));
    if (waited > kOfferAfter && ui::button("quit/leave", "Quit without waiting")) let_run();
  }
  ImGui::EndPopup();
}

}  // namespace halfscope::gui
