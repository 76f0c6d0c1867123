// SPDX-License-Identifier: MIT
// `halfscope float`: numbers, arithmetic and sums in any float format, explained.
#include <unistd.h>

#include <memory>

#include "cli/args/arguments.h"
#include "cli/commands/command.h"
#include "cli/tasks/float_pages.h"
#include "core/error.h"
#include "core/lab/block_view.h"
#include "core/lab/expression.h"
#include "core/lab/number_text.h"
#include "core/near_miss.h"

namespace halfscope {
namespace {

struct FloatOptions {
  std::vector<std::string> words{};
  std::string sum, table, compare, block, rule, rounding;
  uint64_t seed = 1;
  bool seeded = false;  ///< the seed was given
  bool json = false;
};

constexpr const char* kUsualFormat = "fp16";

/// Throws Error if there are words that the page does not read.
void check_words(const FloatOptions& options, size_t most, const char* flag, const char* reads) {
  if (options.words.size() <= most) return;
  throw usage_error(std::string(flag) + ": unexpected '" + options.words[most] + "'", reads);
}

lab::FloatChoice choice_of(const FloatOptions& options) {
  lab::FloatChoice choice{
      .seed = options.seed, .json = options.json, .style = text_style(STDOUT_FILENO)};
  if (options.rounding.empty()) return choice;
  const std::optional<RoundingMode> mode = parse_rounding_mode(options.rounding);
  if (!mode) {
    throw usage_error("--rounding: unknown mode '" + options.rounding + "'",
                      "use nearest-even, nearest-away, toward-zero, up, down, odd or stochastic");
  }
  choice.mode = *mode;
  return choice;
}

int show(const FloatOptions& options) {
  const lab::FloatChoice choice = choice_of(options);
  const std::vector<std::string>& words = options.words;
  const int pages = (options.sum.empty() ? 0 : 1) + (options.table.empty() ? 0 : 1) +
                    (options.compare.empty() ? 0 : 1) + (options.block.empty() ? 0 : 1);
  if (pages > 1) {
    throw usage_error("--sum, --table, --compare and --block cannot be combined",
                      "give one of them at a time");
  }
  if (!options.rule.empty() && options.block.empty()) {
    throw usage_error("--rule is for --block", "add --block mxfp8");
  }
  if (!options.rounding.empty() && pages > 0 && options.compare.empty()) {
    throw usage_error("--rounding is for numbers and expressions",
                      "leave it out; --sum has a line for stochastic rounding");
  }
  if (options.seeded && options.sum.empty() && choice.mode != RoundingMode::stochastic) {
    throw usage_error("--seed is for stochastic rounding", pages == 0 || !options.compare.empty()
                                                               ? "add --rounding stochastic"
                                                               : "leave it out");
  }
  if (!options.sum.empty()) {
    check_words(options, 1, "--sum", "after the terms, only a format is read");
    lab::show_sums(lab::read_format(words.empty() ? kUsualFormat : words[0]), options.sum, choice);
  } else if (!options.table.empty()) {
    check_words(options, 0, "--table", "--table reads one format, for example --table e3m4");
    lab::show_format(lab::read_format(options.table), choice);
  } else if (!options.compare.empty()) {
    check_words(options, 0, "--compare", "put an expression in quotes: --compare '256*256'");
    lab::show_compared(options.compare, choice);
  } else if (!options.block.empty()) {
    lab::show_block(options.block, options.rule.empty() ? "floor" : options.rule, words, choice);
  } else if (words.empty()) {
    throw usage_error("float needs a format, a number or a flag",
                      "for example halfscope float fp16 0.1");
  } else if (words.size() == 1 && parse_format(words[0])) {
    lab::show_format(lab::read_format(words[0]), choice);
  } else if (words.size() == 1) {
    std::string problem;
    const bool shape = words[0][0] == 'e' && words[0].find('m') != std::string::npos;
    if (shape) static_cast<void>(lab::read_format(words[0]));  // says why it is none
    if (!lab::is_expression(words[0]) && !lab::read_number(words[0], kFp32, problem)) {
      throw usage_error(
          "'" + words[0] + "' is neither a format nor a number",
          did_you_mean(words[0], format_names(), "for example halfscope float fp16 0.1"));
    }
    lab::show_compared(words[0], choice);
  } else {
    const FloatFormat format = lab::read_format(words[0]);
    check_words(options, 2, "float", "put an expression in quotes: float fp16 '256 * 256'");
    lab::show_number(format, words[1], choice);
  }
  return 0;
}

}  // namespace

void add_float(CLI::App& app, Invocation& call) {
  auto options = std::make_shared<FloatOptions>();
  CLI::App* sub = app.add_subcommand(
      "float", "Show numbers, arithmetic and sums in any float format, bit by bit");
  sub->footer(
      "Example:  halfscope float fp16 0.1\n"
      "          halfscope float fp16 '256*256'\n"
      "          halfscope float --sum 4096x1.0 fp16\n"
      "          halfscope float --block mxfp8 0.1 0.5 300");
  std::vector<std::string> formats = format_names();
  offer(sub->add_option("words", options->words,
                        "Format, then a number, a code or an expression (for --block: numbers)")
            ->type_name("WORD")
            ->group(group::kArguments),
        {.words = formats});
  constexpr const char* kPages = "Other pages";
  sub->add_option("--compare", options->compare, "Show this number in every format")
      ->type_name("NUMBER")
      ->group(kPages);
  offer(sub->add_option("--table", options->table, "List the values of this format")
            ->type_name("FORMAT")
            ->group(kPages),
        {.words = formats});
  sub->add_option("--sum", options->sum, "Add terms one by one: 4096x1.0 or 1,9x1e-4")
      ->type_name("TERMS")
      ->group(kPages);
  offer(sub->add_option("--block", options->block, "Store the numbers as a block of this format")
            ->type_name("FORMAT")
            ->group(kPages),
        {.words = lab::viewed_block_formats()});
  constexpr const char* kRounding = "Rounding";
  std::vector<std::string> modes;
  for (const RoundingMode mode : kAllRoundingModes) modes.emplace_back(rounding_mode_name(mode));
  offer(sub->add_option("--rounding", options->rounding, "Rounding mode [nearest-even]")
            ->type_name("MODE")
            ->group(kRounding),
        {.words = modes});
  offer(sub->add_option("--rule", options->rule,
                        "How --block rounds its scale: floor, nearest or ceil [floor]")
            ->type_name("RULE")
            ->group(kRounding),
        {.words = {"floor", "nearest", "ceil"}});
  CLI::Option* const seed =
      add_integer(*sub, "--seed", options->seed, 0, UINT64_MAX, "Seed of stochastic rounding [1]")
          ->group(kRounding);
  sub->add_flag("--json", options->json, "Print the result as JSON")->group(group::kOutput);
  sub->callback([options, seed, &call] {
    options->seeded = seed->count() > 0;
    call.action = [options] { return show(*options); };
  });
}

}  // namespace halfscope
