// SPDX-License-Identifier: MIT
// The house rules as functions over one file's text, so that tests can try them on bad samples
// before they are let loose on the tree. A rule returns what it found, and nothing if all is well.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace halfscope::house {

struct Violation {
  std::string path;  ///< relative to the repository
  int line = 0;      ///< from 1; 0 means the file as a whole
  std::string what;

  /// "path:line: what"
  std::string text() const;
};

using Violations = std::vector<Violation>;

/// A file of the repository; `path` is relative to its root, with forward slashes.
struct File {
  std::string path;
  std::string text;
};

/// Returns all files below `root` that the rules cover: no build trees, run files or binaries.
std::vector<File> read_tree(const std::string& root);

/// C++ and CUDA sources and headers.
bool is_cpp(std::string_view path);
/// Bash, by its first line or its ending.
bool is_bash(const File& file);
/// Returns whether a file is written by hand and read by a program: C++, CMake, bash, Python.
bool is_source(const File& file);

/// Rooms may include only the rooms that they are allowed to, and third-party headers only in their
/// rooms.
Violations check_includes(const File& file);
/// At most 600 lines.
Violations check_length(const File& file);
/// `SPDX-License-Identifier: MIT` comes first, or right after the `#!` line.
Violations check_spdx(const File& file);
/// ASCII only and no tabs.
Violations check_characters(const File& file);
/// A file contains no path that only exists on one machine.
Violations check_machine_paths(const File& file);
/// A header starts with `#pragma once` before its first include.
Violations check_pragma_once(const File& file);
/// NAME.cpp must include NAME.h first if `tree` has one, so that the header compiles alone.
Violations check_own_header_first(const File& file, const std::vector<File>& tree);
/// In core, emulation and gpu nothing calls exp, log, tanh and similar functions of a C library or
/// CUDA, whose last bits differ: elementary.h and inverse.h in core/numeric/elementary provide
/// them.
Violations check_elementary_functions(const File& file);
/// In the folders that are written in plain English, no string literal contains a phrase that a
/// colleague would not say, such as "so many".
Violations check_phrases(const File& file);
/// In these folders, too, no comment begins with a noun phrase: Of, What, That, Those, Which,
/// Whose.
Violations check_comment_beginnings(const File& file);

}  // namespace halfscope::house
