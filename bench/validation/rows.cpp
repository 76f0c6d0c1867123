// SPDX-License-Identifier: MIT
#include "bench/validation/rows.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <sstream>

#include "core/error.h"

namespace halfscope::validation {

Row exact(std::string what, std::string source, std::string published, std::string ours,
          std::string note) {
  const bool same = published == ours;
  return {.what = std::move(what),
          .source = std::move(source),
          .published = std::move(published),
          .ours = std::move(ours),
          .accepted = "equal",
          .pass = same,
          .note = std::move(note)};
}

Row differs(std::string what, std::string source, std::string published, std::string ours,
            std::string note) {
  Row row = exact(std::move(what), std::move(source), std::move(published), std::move(ours),
                  std::move(note));
  row.accepted = "differs";
  row.pass = !row.pass;
  return row;
}

Row in_zoo(std::string id, Row row) {
  row.zoo = std::move(id);
  return row;
}

Row within(std::string what, std::string source, std::string published, double ours,
           Accepted accepted, std::string note, Unit unit) {
  const auto text = [&](double x) { return unit == Unit::percent ? percent(x) : short_number(x); };
  return {.what = std::move(what),
          .source = std::move(source),
          .published = std::move(published),
          .ours = text(ours),
          .accepted = text(accepted.low) + " to " + text(accepted.high),
          .pass = ours >= accepted.low && ours <= accepted.high,  // not for NaN
          .note = std::move(note)};
}

std::string short_number(double x) { return fmt::format("{:.3g}", x); }

std::string long_number(double x) {
  if (std::isnan(x)) return "NaN";
  if (std::isinf(x)) return x < 0 ? "-inf" : "inf";
  return fmt::format("{:.8g}", x);
}

std::string percent(double share) { return fmt::format("{:.3g}%", 100.0 * share); }

std::string power(double x) {
  int exponent = 0;
  if (!(x > 0.0) || std::frexp(x, &exponent) != 0.5) return long_number(x);
  return fmt::format("2^{}", exponent - 1);
}

namespace {

std::string link(const std::string& repository, const std::string& kind, int number) {
  const std::string name = repository.substr(repository.find('/') + 1);
  return fmt::format("[{} {}{}](https://github.com/{}/{}/{})", name, kind == "pull" ? "PR #" : "#",
                     number, repository, kind, number);
}

}  // namespace

std::string issue(const std::string& repository, int number) {
  return link(repository, "issues", number);
}

std::string pull(const std::string& repository, int number) {
  return link(repository, "pull", number);
}

std::string paper(const std::string& number, const std::string& where) {
  return fmt::format("[{0}](https://arxiv.org/abs/{0}), {1}", number, where);
}

namespace {

/// Escapes the character that ends a cell.
std::string cell(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

/// Breaks lines at spaces, as in pages that people write.
std::string wrapped(const std::string& text, const std::string& indent) {
  constexpr size_t kWidth = 118;
  std::string result, line;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (!line.empty() && line.size() + 1 + word.size() > kWidth) {
      result += line + "\n";
      line = indent + word;
    } else {
      line += (line.empty() ? "" : " ") + word;
    }
  }
  return result + line;
}

/// Returns a sentence with all rows that belong to cases of the zoo, in the order of the cases.
std::string cases_of_zoo(const std::vector<Table>& tables) {
  std::map<int, std::string> rows;
  for (const Table& table : tables) {
    int number = 0;
    for (const Row& row : table.rows) {
      ++number;
      if (row.zoo.empty()) continue;
      std::string& list = rows[std::stoi(row.zoo.substr(1))];
      list += fmt::format("{}{}{}", list.empty() ? "" : ", ", table.letter, number);
    }
  }
  std::string text;
  for (const auto& [id, list] : rows) {
    text += fmt::format("{}F{} ({})", text.empty() ? "" : "; ", id, list);
  }
  return wrapped(
      "Rows that belong to cases of the [zoo](zoo.md) (`halfscope zoo run F1` runs one): " + text +
          ".",
      "");
}

}  // namespace

std::string markdown(const std::vector<Table>& tables) {
  int rows = 0, equals = 0, corrected = 0;
  for (const Table& table : tables) {
    rows += static_cast<int>(table.rows.size());
    for (const Row& row : table.rows) {
      equals += row.accepted == "equal" ? 1 : 0;
      corrected += row.accepted == "differs" ? 1 : 0;
    }
  }
  std::string text = fmt::format(
      "{} of {} rows pass: {} figures must be equal to ours, {} must be near ours, and {} are "
      "published figures that do not hold.\n",
      rows - failures(tables), rows, equals, rows - equals - corrected, corrected);
  for (const Table& table : tables) {
    text += fmt::format("\n## {}\n{}\n\n", table.title, wrapped(table.introduction, ""));
    text += "| | what is measured | source | published | ours | accepted | result |\n";
    text += "| --- | --- | --- | --- | --- | --- | --- |\n";
    std::string notes;
    int number = 0;
    for (const Row& row : table.rows) {
      const std::string id = fmt::format("{}{}", table.letter, ++number);
      text += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", id, cell(row.what), row.source,
                          cell(row.published), cell(row.ours), row.accepted,
                          row.pass ? "PASS" : "**FAIL**");
      if (!row.note.empty()) notes += wrapped(fmt::format("- {}: {}", id, row.note), "  ") + "\n";
    }
    if (!notes.empty()) text += "\n" + notes;
  }
  return text + "\n" + cases_of_zoo(tables);
}

int failures(const std::vector<Table>& tables) {
  int count = 0;
  for (const Table& table : tables) {
    for (const Row& row : table.rows) count += row.pass ? 0 : 1;
  }
  return count;
}

std::string with_generated(const std::string& page, const std::string& generated) {
  const size_t begin = page.find(kBegin), end = page.find(kEnd);
  if (begin == page.npos || end == page.npos || end < begin) {
    throw Error("the page has no generated part",
                fmt::format("add the lines '{}' and '{}'", kBegin, kEnd));
  }
  return page.substr(0, begin) + kBegin + "\n" + generated + "\n" + page.substr(end);
}

std::string first_difference(const std::string& page, const std::string& now) {
  if (page == now) return "";
  std::istringstream old_lines(page), new_lines(now);
  std::string before, after;
  for (int line = 1;; ++line) {
    const bool more = static_cast<bool>(std::getline(old_lines, before));
    const bool other = static_cast<bool>(std::getline(new_lines, after));
    if (more && other && before == after) continue;
    if (!more && !other) return fmt::format("{} differs: the end of the last line", line);
    return fmt::format("{} differs\n  in the page: {}\n  computed:    {}", line,
                       more ? before : "(end)", other ? after : "(end)");
  }
}

}  // namespace halfscope::validation
