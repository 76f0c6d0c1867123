// SPDX-License-Identifier: MIT
// The rules about the text of a file: length, licence, characters, paths, include guards.
#include <algorithm>
#include <array>
#include <cctype>

#include "tests/house/rules.h"

namespace halfscope::house {
namespace {

constexpr int kMaxLines = 600;

/// Calls visit(number, line) for every line, counting from 1.
template <class Visit>
void each_line(std::string_view text, Visit visit) {
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    visit(number, text.substr(0, end));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
}

/// True if `line` holds the path `start` from the root on: "a/home/b" and "src/home/" do not.
bool has_root_path(std::string_view line, std::string_view start) {
  for (size_t at = line.find(start); at != line.npos; at = line.find(start, at + 1)) {
    if (at == 0) return true;
    const char before = line[at - 1];
    if (std::isalnum(static_cast<unsigned char>(before)) == 0 &&
        std::string_view("_.-}*)/~").find(before) == std::string_view::npos) {
      return true;
    }
  }
  return false;
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Whether `name` is a function that IEEE 754 does not require to be rounded correctly, in double
/// or with a letter for float or an intrinsic's underlines.
bool is_elementary_function(std::string_view name) {
  static constexpr std::array<std::string_view, 28> kNames{
      "exp",   "exp2",  "exp10", "expm1", "log",  "log2",  "log10",  "log1p", "pow",  "sin",
      "cos",   "tan",   "asin",  "acos",  "atan", "atan2", "sinh",   "cosh",  "tanh", "asinh",
      "acosh", "atanh", "erf",   "erfc",  "cbrt", "hypot", "tgamma", "lgamma"};
  while (name.starts_with('_')) name.remove_prefix(1);
  const auto listed = [](std::string_view word) {
    return std::find(kNames.begin(), kNames.end(), word) != kNames.end();
  };
  return listed(name) || (name.ends_with('f') && listed(name.substr(0, name.size() - 1)));
}

}  // namespace

std::string Violation::text() const { return path + ":" + std::to_string(line) + ": " + what; }

Violations check_length(const File& file) {
  int lines = 0;
  each_line(file.text, [&](int number, std::string_view) { lines = number; });
  if (lines <= kMaxLines) return {};
  return {{file.path, 0, std::to_string(lines) + " lines; at most " + std::to_string(kMaxLines)}};
}

Violations check_spdx(const File& file) {
  const bool script = file.text.starts_with("#!");
  const int wanted_line = script ? 2 : 1;
  const std::string wanted =
      std::string(is_cpp(file.path) ? "//" : "#") + " SPDX-License-Identifier: MIT";
  bool found = false;
  each_line(file.text, [&](int number, std::string_view line) {
    if (number == wanted_line && line == wanted) found = true;
  });
  if (found) return {};
  return {{file.path, wanted_line, "expected the line '" + wanted + "'"}};
}

Violations check_characters(const File& file) {
  Violations violations;
  each_line(file.text, [&](int number, std::string_view line) {
    for (const char each : line) {
      const auto code = static_cast<unsigned char>(each);
      if (code == '\t') {
        violations.push_back({file.path, number, "a tab"});
        return;
      }
      if (code >= 0x7f || code < ' ') {
        violations.push_back({file.path, number, "a character that is not printable ASCII"});
        return;
      }
    }
  });
  return violations;
}

Violations check_machine_paths(const File& file) {
  // Cut in two, so that this file does not break its own rule.
  static const std::array<std::string, 4> kStarts{
      std::string("/ho") + "me/", std::string("/wo") + "rk/", std::string("/ro") + "ot/",
      std::string("/tmp/b") + "ash"};
  Violations violations;
  each_line(file.text, [&](int number, std::string_view line) {
    for (const std::string& start : kStarts) {
      if (has_root_path(line, start)) {
        violations.push_back({file.path, number, "a path of one machine: " + start});
      }
    }
  });
  return violations;
}

Violations check_pragma_once(const File& file) {
  bool guarded = false, included = false, wrong = false;
  each_line(file.text, [&](int, std::string_view line) {
    guarded = guarded || line == "#pragma once";
    included = included || line.starts_with("#include");
    wrong = wrong || (included && !guarded);
  });
  if (guarded && !wrong) return {};
  return {{file.path, 0, "#pragma once must come before the first include"}};
}

Violations check_own_header_first(const File& file, const std::vector<File>& tree) {
  constexpr std::string_view kEnding = ".cpp";
  if (!file.path.ends_with(kEnding)) return {};
  const std::string own = file.path.substr(0, file.path.size() - kEnding.size()) + ".h";
  if (std::none_of(tree.begin(), tree.end(), [&](const File& each) { return each.path == own; })) {
    return {};
  }
  std::string first;
  int at = 0;
  each_line(file.text, [&](int number, std::string_view line) {
    if (!first.empty() || !line.starts_with("#include")) return;
    first = line;
    at = number;
  });
  if (first == "#include \"" + own + "\"") return {};
  return {{file.path, at, "its own header comes first"}};
}

Violations check_elementary_functions(const File& file) {
  const bool computes = file.path.starts_with("core/") || file.path.starts_with("emulation/") ||
                        file.path.starts_with("gpu/");
  if (!computes || file.path == "core/numeric/elementary/elementary.h") return {};
  Violations violations;
  each_line(file.text, [&](int number, std::string_view line) {
    line = line.substr(0, line.find("//"));
    for (size_t at = line.find('('); at != line.npos; at = line.find('(', at + 1)) {
      size_t begin = at;
      while (begin > 0 && is_word(line[begin - 1])) --begin;
      const std::string_view name = line.substr(begin, at - begin), before = line.substr(0, begin);
      if (!is_elementary_function(name) || before.ends_with("elementary::")) continue;
      violations.push_back({file.path, number, std::string(name) + " of a library"});
    }
  });
  return violations;
}

}  // namespace halfscope::house
