// SPDX-License-Identifier: MIT
// A plain dialog for files: folders and files of one ending, a line for the name, keys as usual.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gui/widgets/theme.h"

namespace halfscope::gui {

class FileDialog {
 public:
  /// `ending` like ".hscope". To save, `name` stands in the line already.
  void open(std::string title, std::string ending, bool save, std::string name = {});
  bool is_open() const noexcept { return open_; }
  void close() noexcept { open_ = false; }
  /// Once a frame. The file that was chosen, once.
  std::optional<std::string> draw(const Theme& theme, float scale);
  /// The folder that is shown first.
  void set_folder(const std::filesystem::path& folder);

 private:
  struct Entry {
    std::string name;
    bool folder;
  };
  void list();
  std::optional<std::string> finish();

  std::string title_, ending_, name_, problem_;
  bool save_ = false, open_ = false, appear_ = false;
  bool overwrite_ = false;  ///< a first "Save" has warned of the file that is there
  std::filesystem::path folder_;
  std::vector<Entry> entries_;
};

}  // namespace halfscope::gui
