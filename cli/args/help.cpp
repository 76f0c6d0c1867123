// SPDX-License-Identifier: MIT
#include "cli/args/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "cli/args/arguments.h"
#include "cli/args/topics.h"
#include "cli/terminal/output.h"

namespace halfscope {
namespace {

/// A term and its meaning.
using Row = std::pair<std::string, std::string>;

/// Headings and their rows, in the order in which add_row() first meets the headings.
using Groups = std::vector<std::pair<std::string, std::vector<Row>>>;

void add_row(Groups& groups, const std::string& heading, Row row) {
  const auto same = [&heading](const auto& each) { return each.first == heading; };
  const auto found = std::find_if(groups.begin(), groups.end(), same);
  if (found == groups.end()) {
    groups.push_back({heading, {std::move(row)}});
  } else {
    found->second.push_back(std::move(row));
  }
}

/// Stands for a blank inside `code`, which must not be broken.
constexpr char kNoBreak = '\x01';

/// Returns the text in lines of at most `width` characters, with `code` in one piece.
std::vector<std::string> wrapped_meaning(std::string text, size_t width) {
  bool code = false;
  for (char& c : text) {
    if (c == '`') code = !code;
    if (c == ' ' && code) c = kNoBreak;
  }
  std::vector<std::string> lines = wrapped(text, width);
  for (std::string& line : lines) std::replace(line.begin(), line.end(), kNoBreak, ' ');
  return lines;
}

std::string table(const std::string& title, const std::vector<Row>& rows, size_t column,
                  size_t width) {
  std::string text = "\n" + title + ":\n";
  for (const auto& [term, meaning] : rows) {
    const std::vector<std::string> lines = wrapped_meaning(meaning, width - column - 4);
    text += fmt::format("  {:<{}}  {}\n", term, column, lines[0]);
    for (size_t i = 1; i < lines.size(); ++i) {
      text += fmt::format("{:<{}}{}\n", "", column + 4, lines[i]);
    }
  }
  return text;
}

Row row_of(const CLI::Option& option) {
  std::string term;
  if (option.get_positional()) {
    term = value_name(option) + (option.get_items_expected_max() > 1 ? "..." : "");
  } else {
    for (const std::string& name : option.get_snames()) term += "-" + name + ", ";
    term += long_name(option) + (takes_value(option) ? " " + value_name(option) : "");
  }
  std::string meaning = option.get_description();
  const std::string value = option.get_default_str();
  if (takes_value(option) && !value.empty()) meaning += fmt::format(" [{}]", value);
  return {term, meaning};
}

std::string usage(const CLI::App& app) {
  std::string text = app.get_parent() == nullptr ? "halfscope" : "halfscope " + app.get_name();
  if (!subcommands_of(app).empty()) return text + " COMMAND [FLAGS]";
  for (const CLI::Option* option : positionals_of(app)) {
    const std::string term = row_of(*option).first;
    // A configuration file may name the network instead.
    const bool needed =
        option->get_required() || value_name(*option).find("NETWORK") != std::string::npos;
    text += needed ? " " + term : " [" + term + "]";
  }
  return flags_of(app).size() > 1 ? text + " [FLAGS]" : text;  // more than --help
}

}  // namespace

std::string HelpFormatter::make_help(const CLI::App* app, std::string /*name*/,
                                     CLI::AppFormatMode /*mode*/) const {
  std::string text = app->get_description() + "\n\nUsage: " + usage(*app) + "\n";
  Groups groups;
  const std::string common = group::kCommon;
  const auto has_common = [&common](const CLI::Option* option) {
    return option->get_group() == common;
  };
  const std::vector<const CLI::Option*> all = app->get_options();
  for (const CLI::Option* option : positionals_of(*app)) {
    add_row(groups, group::kArguments, row_of(*option));
  }
  if (std::any_of(all.begin(), all.end(), has_common)) groups.push_back({common, {}});
  std::vector<Row> others;  // the group that CLI11 puts --help into comes last
  for (const CLI::Option* option : app->get_options()) {
    const std::string& name = option->get_group();
    if (name.empty() || name == group::kElsewhere || option->get_positional()) continue;
    if (name == "Options" || name == group::kOther) {
      others.push_back(row_of(*option));
      continue;
    }
    add_row(groups, name, row_of(*option));
  }
  // --help and --version, which came first, end the list.
  std::stable_partition(others.begin(), others.end(), [](const Row& row) {
    return row.first != "-h, --help" && row.first != "--version";
  });
  for (const CLI::App* sub : subcommands_of(*app)) {
    add_row(groups, sub->get_group(), {sub->get_name(), sub->get_description()});
  }
  if (app->get_parent() == nullptr) {
    for (const Topic& topic : topics()) add_row(groups, "Topics", {topic.name, topic.summary});
  }
  groups.push_back({groups.empty() ? "Flags" : group::kOther, others});

  size_t column = 0;
  for (const auto& [name, rows] : groups) {
    for (const Row& row : rows) column = std::max(column, row.first.size());
  }
  for (const auto& [name, rows] : groups) text += table(name, rows, column, width_);
  return text + "\n" + app->get_footer() + "\n";
}

}  // namespace halfscope
