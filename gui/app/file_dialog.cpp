// SPDX-License-Identifier: MIT
// The folder is listed once when it is entered, not in every frame.
#include "gui/app/file_dialog.h"

#include <algorithm>

#include "analysis/study/study_view.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {

namespace fs = std::filesystem;

void FileDialog::set_folder(const fs::path& folder) {
  std::error_code error;
  const fs::path absolute = fs::absolute(folder.empty() ? fs::path(".") : folder, error);
  if (!error) folder_ = absolute.lexically_normal();
}

void FileDialog::open(std::string title, std::string ending, bool save, std::string name) {
  title_ = std::move(title);
  ending_ = std::move(ending);
  name_ = std::move(name);
  save_ = save;
  open_ = appear_ = true;
  overwrite_ = studies_ = false;
  problem_.clear();
  if (folder_.empty()) set_folder(".");
  list();
}

void FileDialog::open_run(std::string title, Studies studies) {
  open(std::move(title), ".hscope", false);
  if (studies == Studies::hidden) return;
  studies_ = true;
  list();
}

void FileDialog::list() {
  entries_.clear();
  std::error_code error;
  fs::directory_iterator files(folder_, fs::directory_options::skip_permission_denied, error);
  problem_ = error ? "cannot read this folder: " + error.message() : "";
  constexpr size_t kMost = 5000;
  const std::string study_file = study_file_of(folder_).filename().string();
  for (; !error && files != fs::directory_iterator{} && entries_.size() < kMost;
       files.increment(error)) {
    std::error_code ignored;
    const std::string name = files->path().filename().string();
    if (name.starts_with('.')) continue;
    if (files->is_directory(ignored)) {
      entries_.push_back({name, true, studies_ && is_study(files->path())});
    } else if (name.ends_with(ending_) || (studies_ && name == study_file)) {
      entries_.push_back({name, false, false});
    }
  }
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return a.folder != b.folder ? a.folder : a.name < b.name;
  });
}

std::optional<std::string> FileDialog::finish() {
  if (name_.empty()) return std::nullopt;
  fs::path path = fs::path(name_).is_absolute() ? fs::path(name_) : folder_ / name_;
  std::error_code error;
  if (fs::is_directory(path, error) && !(studies_ && is_study(path))) {
    set_folder(path);
    name_.clear();
    list();
    return std::nullopt;
  }
  if (save_) {
    if (!path.has_extension()) path += ending_;
    if (path.extension() == ".hscope") {
      problem_ = "the ending .hscope is reserved for run files: choose another one";
      return std::nullopt;
    }
    if (fs::exists(path, error) && !overwrite_) {
      overwrite_ = true;
      problem_ = path.filename().string() + " already exists. Press Save again to replace it.";
      return std::nullopt;
    }
  } else if (!fs::exists(path, error)) {
    problem_ = "file not found: " + path.string();
    return std::nullopt;
  }
  open_ = false;
  ImGui::CloseCurrentPopup();
  return path.string();
}

std::optional<std::string> FileDialog::draw(const Theme& theme, float scale) {
  if (!open_) return std::nullopt;
  const std::string id = title_ + "###file_dialog";
  if (appear_) ImGui::OpenPopup(id.c_str());
  ImGui::SetNextWindowSize({620 * scale, 430 * scale}, ImGuiCond_Appearing);
  const ImVec2 center = ImGui::GetMainViewport()->GetCenter();
  ImGui::SetNextWindowPos(center, ImGuiCond_Appearing, {0.5f, 0.5f});
  std::optional<std::string> chosen;
  if (!ImGui::BeginPopupModal(id.c_str(), &open_)) return chosen;
  if (ui::small_button("dialog/up", "Up")) {
    set_folder(folder_.parent_path());
    list();
  }
  ImGui::SameLine();
  ImGui::PushStyleColor(ImGuiCol_Text, theme.soft);
  ui::text("dialog/folder", folder_.string());
  ImGui::PopStyleColor();
  const float bottom = 2 * ImGui::GetFrameHeightWithSpacing() + 4 * scale;
  ImGui::BeginChild("entries", {0, -bottom}, true);
  std::optional<std::string> enter;
  for (const Entry& entry : entries_) {
    const std::string label = entry.folder ? entry.name + "/" : entry.name;
    if (ui::selectable(
            "dialog/entry/" + entry.name, label.c_str(), entry.name == name_, {0, 0},
            ImGuiSelectableFlags_AllowDoubleClick | ImGuiSelectableFlags_DontClosePopups)) {
      const bool enters = entry.folder && !entry.study;
      name_ = enters ? name_ : entry.name;
      overwrite_ = false;
      if (enters) enter = entry.name;
      if (!enters && ImGui::IsMouseDoubleClicked(0)) chosen = finish();
    }
    if (!entry.study) continue;
    ImGui::SameLine(0, 10 * scale);
    ImGui::PushStyleColor(ImGuiCol_Text, theme.soft);
    ui::text("dialog/study/" + entry.name, "study");
    ImGui::PopStyleColor();
  }
  if (entries_.empty()) ImGui::TextDisabled("No folders and no *%s files here.", ending_.c_str());
  ImGui::EndChild();
  if (enter) {
    set_folder(folder_ / *enter);
    list();
  }
  const float buttons = 180 * scale;
  if (appear_) ImGui::SetKeyboardFocusHere();
  if (ui::input_text("dialog/name", save_ ? "file name" : "file or folder", &name_, -buttons)) {
    overwrite_ = false;
    problem_.clear();
  }
  const bool entered = ImGui::IsItemFocused() && named_key_pressed(ImGuiKey_Enter);
  ImGui::SameLine();
  if (ui::button("dialog/ok", save_ ? "Save" : "Open", {80 * scale, 0}) || entered) {
    chosen = finish();
  }
  ImGui::SameLine();
  if (ui::button("dialog/cancel", "Cancel", {80 * scale, 0}) ||
      named_key_pressed(ImGuiKey_Escape)) {
    open_ = false;
    ImGui::CloseCurrentPopup();
  }
  ImGui::PushStyleColor(ImGuiCol_Text, theme.warn);
  ui::text("dialog/problem", problem_);
  ImGui::PopStyleColor();
  appear_ = false;
  ImGui::EndPopup();
  return chosen;
}

}  // namespace halfscope::gui
