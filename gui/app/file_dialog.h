// SPDX-License-Identifier: MIT
// A plain file dialog: folders, files with one ending, studies, and a field for the name.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gui/widgets/theme.h"

namespace halfscope::gui {

class FileDialog {
 public:
  /// Opens the dialog for files with an `ending` such as ".hscope". `name` fills the name field.
  void open(std::string title, std::string ending, bool save, std::string name = {});
  /// Opens the dialog for run files and, if they are offered, for the folders of studies.
  enum class Studies : bool { hidden, offered };
  void open_run(std::string title, Studies studies);
  bool is_open() const noexcept { return open_; }
  void close() noexcept { open_ = false; }
  /// Draws the dialog, once a frame. Returns the chosen file, once.
  std::optional<std::string> draw(const Theme& theme, float scale);
  /// Sets the folder that is shown first.
  void set_folder(const std::filesystem::path& folder);

 private:
  struct Entry {
    std::string name;
    bool folder;
    bool study;  ///< can be opened, although it is a folder
  };
  void list();
  std::optional<std::string> finish();

  std::string title_, ending_, name_, problem_;
  bool save_ = false, open_ = false, appear_ = false;
  bool studies_ = false;    ///< folders of studies can be chosen
  bool overwrite_ = false;  ///< a first "Save" has warned of the file that is there
  std::filesystem::path folder_;
  std::vector<Entry> entries_;
};

}  // namespace halfscope::gui
