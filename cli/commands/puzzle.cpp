// SPDX-License-Identifier: MIT
// `halfscope puzzle`: broken runs to repair, judged by running them again.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "cli/args/arguments.h"
#include "cli/commands/command.h"
#include "cli/tasks/puzzle_page.h"
#include "core/error.h"
#include "core/lab/puzzle_html.h"
#include "core/near_miss.h"
#include "emulation/backends.h"

namespace halfscope {
namespace {

using lab::Puzzle;
using lab::PuzzleDesk;

struct PuzzleOptions {
  std::string level, answer, html;
  bool hint = false, solve = false, reset = false, json = false, force = false;
};

/// A level, and its place in the list of levels; 0 for a file.
struct Level {
  Puzzle puzzle;
  size_t number = 0;
};

Puzzle read_level_file(const std::string& path) {
  constexpr size_t kLargest = 1 << 20;
  std::error_code failed;
  if (!std::filesystem::exists(path, failed)) {
    throw Error("cannot open '" + path + "': file not found", "check the path");
  }
  if (!std::filesystem::is_regular_file(path, failed)) {
    throw Error("cannot read '" + path + "': not a file", "give the JSON file of a level");
  }
  if (std::filesystem::file_size(path, failed) > kLargest) {
    throw Error("'" + path + "' is larger than 1 MB", "levels are small JSON files");
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error("cannot open '" + path + "'", "check its permissions");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return lab::read_puzzle(text, std::filesystem::path(path).stem().string());
}

Level find_level(const std::string& text) {
  const std::vector<Puzzle>& all = lab::puzzles();
  if (text.ends_with(".json")) return {read_level_file(text), 0};
  const bool digits = text.find_first_not_of("0123456789") == std::string::npos;
  std::vector<std::string> names;
  for (size_t i = 0; i < all.size(); ++i) {
    if ((digits && text == std::to_string(i + 1)) || all[i].name == text) return {all[i], i + 1};
    names.push_back(all[i].name);
  }
  throw usage_error("there is no level '" + text + "'",
                    did_you_mean(text, names,
                                 "levels are 1 to " + std::to_string(all.size()) +
                                     ", or a file that ends in .json"));
}

/// Notes a try of one of the levels that come with HalfScope.
void keep_try(const Level& level, const lab::PuzzleAnswer& answer, int64_t par) {
  if (level.number == 0) return;
  const std::filesystem::path file = lab::progress_file();
  lab::PuzzleProgress progress = lab::read_progress(file);
  lab::note_try(progress, level.puzzle.name, answer, par);
  if (!lab::write_progress(file, progress)) {
    write_message("note: cannot keep your progress in '" + file.string() + "'\n", true);
  }
}

int puzzle_command(const PuzzleOptions& options) {
  const TextStyle style = text_style(STDOUT_FILENO);
  if (options.reset) {
    if (!options.level.empty())
      throw usage_error("--reset forgets all levels", "leave out the level");
    const std::filesystem::path file = lab::progress_file();
    if (!lab::write_progress(file, {})) {
      throw Error("cannot write '" + file.string() + "'", "check HALFSCOPE_PROGRESS");
    }
    return 0;
  }
  const int pages = (options.hint ? 1 : 0) + (options.solve ? 1 : 0) +
                    (options.answer.empty() ? 0 : 1) + (options.html.empty() ? 0 : 1);
  if (pages > 1) {
    throw usage_error("an answer, --hint, --solve and --html cannot be combined",
                      "give one of them at a time");
  }
  if (options.json && (options.hint || options.solve || !options.html.empty())) {
    throw usage_error("--json is for the list, a level and an answer", "leave it out");
  }
  const zoo::Backends backends{.emulated = &emulation_backend(), .in_double = &float64_backend()};
  if (!options.html.empty()) {
    check_files({.read = {options.level}, .written = {options.html}}, options.force);
    std::vector<Puzzle> levels = lab::puzzles();
    if (!options.level.empty()) levels = {find_level(options.level).puzzle};
    write_result(options.html, lab::puzzle_html(levels, backends, kVersion), options.force);
    if (options.html != kStandardOutput) write_out("wrote " + options.html + "\n");
    return 0;
  }
  if (options.level.empty()) {
    if (options.hint || options.solve) {
      throw usage_error("--hint and --solve need a level", "for example halfscope puzzle 1 --hint");
    }
    const lab::PuzzleProgress progress = lab::read_progress(lab::progress_file());
    if (options.json) {
      write_json(lab::list_json(progress));
    } else {
      write_out(lab::list_text(progress));
    }
    return 0;
  }
  const Level level = find_level(options.level);
  if (options.hint) {
    write_out(level.puzzle.hint.empty() ? "This level has no hint.\n"
                                        : paragraph(level.puzzle.hint, style, 0, 0));
    return 0;
  }
  // Fails before anything runs.
  const uint32_t choices =
      options.answer.empty() ? 0 : lab::read_choices(level.puzzle, options.answer);
  PuzzleDesk desk(level.puzzle, backends);
  if (desk.answer(0).solved) {
    throw Error("level '" + level.puzzle.name + "' is not broken: its plan gives the right results",
                "choose another plan, or lower \"ok\"");
  }
  if (options.solve) {
    write_out(lab::solution_text(desk));
    return 0;
  }
  if (choices == 0) {
    if (options.json) {
      write_json(lab::level_json(desk));
    } else {
      write_out(lab::level_text(desk, level.number, style));
    }
    return 0;
  }
  const lab::PuzzleAnswer& answer = desk.answer(choices);
  if (options.json) {
    write_json(lab::answer_json(desk, choices));
  } else {
    write_out(lab::answer_text(desk, choices, style));
  }
  keep_try(level, answer, answer.solved ? desk.par() : 0);
  return answer.solved ? 0 : 1;
}

}  // namespace

void add_puzzle(CLI::App& app, Invocation& call) {
  auto options = std::make_shared<PuzzleOptions>();
  CLI::App* sub = app.add_subcommand("puzzle", "Repair broken runs, with as few bits as you can");
  sub->footer(
      "Example:  halfscope puzzle\n"
      "          halfscope puzzle 1\n"
      "          halfscope puzzle 1 a");
  std::vector<std::string> names;
  for (size_t i = 1; i <= lab::puzzle_names().size(); ++i) names.push_back(std::to_string(i));
  offer(sub->add_option("level", options->level, "Number of a level, or a file [list them]")
            ->type_name("LEVEL")
            ->group(group::kArguments),
        {.words = names, .files = "*.json"});
  sub->add_option("answer", options->answer, "Letters of your choices, for example a or ac")
      ->type_name("ANSWER")
      ->group(group::kArguments);
  sub->add_flag("--hint", options->hint, "Print a hint for the level")->group("Help");
  sub->add_flag("--solve", options->solve, "Print what every choice does")->group("Help");
  sub->add_flag("--reset", options->reset, "Forget which levels you solved")->group("Help");
  add_output(*sub, "--html", options->html, "*.html",
             "Write the level, or all of them, as a page to play");
  add_force(*sub, options->force);
  sub->add_flag("--json", options->json, "Print the result as JSON")->group(group::kOutput);
  sub->callback([options, &call] { call.action = [options] { return puzzle_command(*options); }; });
}

}  // namespace halfscope
