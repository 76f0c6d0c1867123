// SPDX-License-Identifier: MIT
// The rules about the text of a file: length, licence, characters, paths, include guards.
#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>

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

/// Returns whether `line` contains the path `start` from the root: "a/home/b" and "src/home/" do
/// not count.
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

/// Returns whether `name` is a function that IEEE 754 does not require to be correctly rounded, in
/// double or with a letter for float or an intrinsic's underscores.
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

/// Folders whose texts and comments are checked for plain English.
constexpr std::array<std::string_view, 9> kPlainEnglish{
    "analysis/", "bench/", "cli/", "core/", "emulation/", "examples/", "gpu/", "gui/", "tests/"};

bool wants_plain_english(const std::string& path) {
  return is_cpp(path) && !path.starts_with("tests/house/") &&
         std::any_of(kPlainEnglish.begin(), kPlainEnglish.end(),
                     [&](std::string_view folder) { return path.starts_with(folder); });
}

/// A string literal, with those that follow it directly, as the compiler joins them.
struct Literal {
  int line = 0;
  std::string text;
};

/// Returns the string literals of C++ code. Escapes stay as they are written.
std::vector<Literal> literals_of(std::string_view code) {
  std::vector<Literal> literals;
  bool joins = false;  // nothing but blanks and comments since the last literal
  int line = 1;
  for (size_t i = 0; i < code.size(); ++i) {
    const std::string_view rest = code.substr(i);
    size_t length = 1;
    if (rest.starts_with("//")) {
      length = std::min(rest.find('\n'), rest.size());
    } else if (rest.starts_with("/*")) {
      length = std::min(rest.find("*/", 2), rest.size() - 2) + 2;
    } else if (rest.starts_with("R\"")) {
      const std::string_view mark = rest.substr(2, rest.find('(') - 2);
      const std::string end = ")" + std::string(mark) + "\"";
      const size_t begin = mark.size() + 3, stop = std::min(rest.find(end), rest.size());
      literals.push_back({line, std::string(rest.substr(begin, stop - begin))});
      length = std::min(stop + end.size(), rest.size());
      joins = true;
    } else if (rest[0] == '"' || (rest[0] == '\'' && (i == 0 || !is_word(code[i - 1])))) {
      size_t end = 1;
      while (end < rest.size() && rest[end] != rest[0]) end += rest[end] == '\\' ? 2 : 1;
      end = std::min(end, rest.size());
      if (rest[0] == '"') {
        if (!joins) literals.push_back({line, ""});
        literals.back().text += rest.substr(1, end - 1);
      }
      joins = rest[0] == '"';
      length = std::min(end + 1, rest.size());
    } else if (std::isspace(static_cast<unsigned char>(rest[0])) == 0) {
      joins = false;
    }
    const std::string_view passed = rest.substr(0, length);
    line += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
    i += length - 1;
  }
  return literals;
}

/// Whether `text` contains `phrase` as whole words; upper and lower case are the same.
bool has_phrase(std::string_view text, std::string_view phrase) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) ==
           std::tolower(static_cast<unsigned char>(b));
  };
  for (auto at = text.begin();; ++at) {
    at = std::search(at, text.end(), phrase.begin(), phrase.end(), same);
    if (at == text.end()) return false;
    const auto end = at + static_cast<std::ptrdiff_t>(phrase.size());
    if ((at == text.begin() || !is_word(at[-1])) && (end == text.end() || !is_word(*end))) {
      return true;
    }
  }
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
  constexpr std::array<std::string_view, 2> kOurs{"core/numeric/elementary/elementary.h",
                                                  "core/numeric/elementary/inverse.h"};
  if (!computes || std::find(kOurs.begin(), kOurs.end(), file.path) != kOurs.end()) return {};
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

Violations check_phrases(const File& file) {
  static constexpr std::array<std::string_view, 22> kPhrases{
      "so many",      "of its own",      "goes along",   "go along",     "works off",
      "work off",     "takes notice",    "take notice",  "leaves aside", "leave aside",
      "stands still", "stand still",     "those of the", "that of the",  "is no number",
      "is no file",   "no whole number", "holds no",     "by itself",    "all the same",
      "but for",      "asked for"};
  if (!wants_plain_english(file.path) || file.path.starts_with("tests/")) return {};
  Violations violations;
  for (const Literal& literal : literals_of(file.text)) {
    for (const std::string_view phrase : kPhrases) {
      if (!has_phrase(literal.text, phrase)) continue;
      violations.push_back({file.path, literal.line, "not plain English: " + std::string(phrase)});
    }
  }
  return violations;
}

Violations check_comment_beginnings(const File& file) {
  static constexpr std::array<std::string_view, 6> kWords{"Of",    "What",  "That",
                                                          "Those", "Which", "Whose"};
  if (!wants_plain_english(file.path)) return {};
  Violations violations;
  bool continues = false;
  each_line(file.text, [&](int number, std::string_view line) {
    const size_t begin = std::min(line.find_first_not_of(' '), line.size());
    std::string_view comment = line.substr(begin);
    const bool whole = comment.starts_with("//");
    const bool licence = comment.find("SPDX") != comment.npos;
    const bool first = !continues;
    continues = whole && !licence;
    if (!whole || !first) return;
    comment.remove_prefix(std::min(comment.find_first_not_of("/< "), comment.size()));
    for (const std::string_view word : kWords) {
      if (!comment.starts_with(word)) continue;
      if (comment.size() > word.size() && is_word(comment[word.size()])) continue;
      violations.push_back({file.path, number, "a comment begins with " + std::string(word)});
    }
  });
  return violations;
}

}  // namespace halfscope::house
