// SPDX-License-Identifier: MIT
// Finds the files that the house rules check.
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>

#include "tests/house/rules.h"

namespace halfscope::house {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 5> kCppEndings{".h", ".cpp", ".cu", ".cuh", ".inc"};

/// Returns whether the folder is in .gitignore, or git's own.
bool is_skipped_folder(const std::string& name) {
  return name == ".git" || name == "out" || name == "__pycache__" || name.starts_with("build");
}

bool ends_with_any(std::string_view path, std::span<const std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view ending) { return path.ends_with(ending); });
}

bool has_interpreter(const File& file, std::string_view name) {
  const std::string_view first = std::string_view(file.text).substr(0, file.text.find('\n'));
  return first.starts_with("#!") && first.find(name) != std::string_view::npos;
}

}  // namespace

std::vector<File> read_tree(const std::string& root) {
  std::vector<File> files;
  auto it = fs::recursive_directory_iterator(root);
  for (; it != fs::recursive_directory_iterator(); ++it) {
    if (it->is_directory()) {
      if (is_skipped_folder(it->path().filename().string())) it.disable_recursion_pending();
      continue;
    }
    if (!it->is_regular_file() || it->path().filename() == ".git") continue;  // in a worktree
    std::ifstream in(it->path(), std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(in), {}};
    if (text.find('\0') != std::string::npos) continue;  // binary: pictures, run files, data
    files.push_back({fs::relative(it->path(), root).generic_string(), std::move(text)});
  }
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.path < b.path; });
  return files;
}

bool is_cpp(std::string_view path) { return ends_with_any(path, kCppEndings); }

bool is_bash(const File& file) {
  return file.path.ends_with(".sh") || has_interpreter(file, "bash");
}

bool is_source(const File& file) {
  constexpr std::array<std::string_view, 3> kEndings{"CMakeLists.txt", ".cmake", ".py"};
  return is_cpp(file.path) || ends_with_any(file.path, kEndings) || is_bash(file) ||
         file.text.starts_with("#!");
}

}  // namespace halfscope::house
