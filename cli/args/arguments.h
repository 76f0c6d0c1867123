// SPDX-License-Identifier: MIT
// Additions to CLI11 for all subcommands: numbers with limits, values that a shell can complete,
// and one plain sentence for each mistake.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace halfscope {

/// Headings of the groups in --help.
namespace group {
inline constexpr const char* kArguments = "Arguments";
inline constexpr const char* kCommon = "Common";  ///< the flags most people need, listed first
inline constexpr const char* kOutput = "Output";
inline constexpr const char* kOther = "Other";
/// Flags that another command's help explains: --help leaves them out, completion does not.
inline constexpr const char* kElsewhere = "Elsewhere";
}  // namespace group

/// Completions for the value of an option. Everything is optional.
struct Offer {
  std::vector<std::string> words{};          ///< "sgd"; after "mlp:", "every=" more has to follow
  std::string files{};                       ///< file names of this glob: "*.npz"
  std::vector<std::string> folders_after{};  ///< folders after these prefixes: "mnist:"
  bool list = false;                         ///< several of these, separated by commas
};

/// Attaches the offer to the option, where the completion script and error messages find it.
CLI::Option* offer(CLI::Option* option, const Offer& values);
/// Returns the attached offer, if any.
std::optional<Offer> offered(const CLI::Option& option);

/// The largest number of samples that an option takes.
inline constexpr uint64_t kMostSamples = 1'000'000'000;

/// Adds an option for a whole number from `least` to `most`.
template <typename Integer>
CLI::Option* add_integer(CLI::App& app, const std::string& flag, Integer& value, uint64_t least,
                         uint64_t most, const std::string& description);
/// Adds an option for a number from `least` to `most`.
CLI::Option* add_number(CLI::App& app, const std::string& flag, double& value, double least,
                        double most, const std::string& description);
/// Add the argument RUN, and flags that several subcommands share.
CLI::Option* add_run_file(CLI::App& app, std::string& file);
CLI::Option* add_output(CLI::App& app, const std::string& flag, std::string& file,
                        const std::string& glob, const std::string& description);
CLI::Option* add_fail_on(CLI::App& app, std::string& severity);
CLI::Option* add_force(CLI::App& app, bool& force);

/// Reads "1000" or "1e3", a whole number between the limits. Throws Error (usage) that names the
/// flag.
uint64_t parse_integer(const std::string& flag, const std::string& text, uint64_t least,
                       uint64_t most);
double parse_number(const std::string& flag, const std::string& text, double least, double most);

/// Throws Error (usage) for what CLI11 would refuse or misread: an unknown subcommand or flag, a
/// flag given twice, a value or a positional argument that is missing or too many. `words` are
/// the program's arguments.
void check_arguments(const CLI::App& app, const std::vector<std::string>& words);

/// Returns the command whose help the words request, wherever --help is; null if none.
const CLI::App* asks_for_help(const CLI::App& app, const std::vector<std::string>& words);

/// Returns the visible options of a subcommand that start with "--", in order.
std::vector<const CLI::Option*> flags_of(const CLI::App& app);
/// Returns its positional arguments.
std::vector<const CLI::Option*> positionals_of(const CLI::App& app);
/// Returns "--steps".
std::string long_name(const CLI::Option& option);
/// Returns the name of its value in --help: "N", "FILE".
std::string value_name(const CLI::Option& option);
bool takes_value(const CLI::Option& option);
std::vector<const CLI::App*> subcommands_of(const CLI::App& app);

// --- implementation of the template ---------------------------------------------------------

template <typename Integer>
CLI::Option* add_integer(CLI::App& app, const std::string& flag, Integer& value, uint64_t least,
                         uint64_t most, const std::string& description) {
  static_assert(std::numeric_limits<Integer>::is_integer);
  return app
      .add_option_function<std::string>(
          flag,
          [&value, flag, least, most](const std::string& text) {
            value = static_cast<Integer>(parse_integer(flag, text, least, most));
          },
          description)
      ->type_name("N");
}

}  // namespace halfscope
