// SPDX-License-Identifier: MIT
// check_arguments() walks the words as CLI11 will, and speaks first: CLI11's own messages are
// meant for programmers, know no near misses, and its options swallow a flag as a value.
#include "cli/args/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <span>

#include "core/error.h"
#include "core/near_miss.h"

namespace halfscope {
namespace {

/// The name under which a validator that checks nothing carries an Offer as text: words, then
/// "files=GLOB", "folder=PREFIX" and "list", separated by blanks.
constexpr const char* kOffer = "offer";

bool is_help(const std::string& word) { return word == "--help" || word == "-h"; }

/// Looks like a flag; "-", "-1" and "-.5" do not.
bool is_flag(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && (word[1] == '-' || std::isalpha(word[1]) != 0);
}

/// The flag that a word, with or without its dashes, was probably meant to be; "" if none is near.
/// Compared without the dashes, which would make short words look alike.
std::string near_flag(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::Option* option : flags_of(app)) names.push_back(option->get_lnames()[0]);
  const size_t dashes = std::min(word.find_first_not_of('-'), word.size());
  const std::string near = closest(word.substr(dashes), names);
  return near.empty() ? "" : "--" + near;
}

std::string question(const std::string& meant) {
  return meant.empty() ? "" : "did you mean " + meant + "?";
}

/// The flag and value that a word which stands alone was probably meant to be: "--model lenet".
std::string flag_of_value(const CLI::App& app, const std::string& word) {
  for (const CLI::Option* option : flags_of(app)) {
    const std::optional<Offer> values = offered(*option);
    if (!values) continue;
    for (const std::string& each : values->words) {
      if (each == word || (each.ends_with(':') && word.starts_with(each))) {
        return long_name(*option) + " " + word;
      }
    }
  }
  return "";
}

const CLI::Option* find_flag(const CLI::App& app, const std::string& name) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->check_name(name) && !option->get_positional()) return option;
  }
  return nullptr;
}

std::string list_of_flags(const CLI::App& sub) {
  return fmt::format("see halfscope {} --help", sub.get_name());
}

/// Returns "try halfscope inspect run.hscope", from the footer of the subcommand's help.
std::string example_of(const CLI::App& sub) {
  const std::string footer = sub.get_footer();
  const size_t start = footer.find("halfscope ");
  if (start == std::string::npos) return list_of_flags(sub);
  return "try " + footer.substr(start, footer.find('\n', start) - start);
}

Error unknown_flag(const CLI::App& root, const CLI::App& sub, const std::string& flag) {
  const std::string near = near_flag(sub, flag);
  // The opposite is never what was meant.
  std::string hint = near == "--no-" + flag.substr(std::min<size_t>(2, flag.size()))
                         ? fmt::format("that is the default; {} turns it off", near)
                         : question(near);
  if (hint.empty()) {
    std::string owners;
    for (const CLI::App* other : subcommands_of(root)) {
      if (find_flag(*other, flag) == nullptr) continue;
      owners += (owners.empty() ? "" : ", ") + ("halfscope " + other->get_name());
    }
    hint = owners.empty() ? list_of_flags(sub) : flag + " is a flag of " + owners;
  }
  return usage_error(fmt::format("{} has no flag {}", sub.get_name(), flag), hint);
}

/// The words after the subcommand.
class Checker {
 public:
  Checker(const CLI::App& root, const CLI::App& sub) : root_(root), sub_(sub) {}

  void check(std::span<const std::string> words) {
    bool only_positionals = false;
    for (size_t i = 0; i < words.size(); ++i) {
      if (!only_positionals && words[i] == "--") {
        only_positionals = true;
      } else if (!only_positionals && is_flag(words[i])) {
        i += take_flag(words.subspan(i));
      } else {
        positionals_.push_back(words[i]);
      }
    }
    check_positionals();
  }

 private:
  /// Returns how many words beside the flag itself it takes.
  size_t take_flag(std::span<const std::string> words) {
    const std::string& word = words[0];
    const size_t equals = word.starts_with("--") ? word.find('=') : std::string::npos;
    const std::string name = word.substr(0, equals);
    const CLI::Option* option = find_flag(sub_, name);
    if (option == nullptr) throw unknown_flag(root_, sub_, name);
    const std::string flag = long_name(*option);
    if (!takes_value(*option)) {
      if (equals != std::string::npos) throw usage_error(flag + " takes no value");
      return 0;
    }
    const bool many = option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
    if (++seen_[option] > 1 && !many) {
      const std::string hint = offered(*option) && offered(*option)->list
                                   ? "separate several values with commas"
                                   : "keep one of them";
      throw usage_error(flag + " is given twice", hint);
    }
    if (equals != std::string::npos) {
      if (equals + 1 == word.size()) throw lacks_value(*option);
      return 0;
    }
    if (words.size() < 2 || words[1] == "--" || is_flag(words[1])) throw lacks_value(*option);
    if (words[1].empty()) throw lacks_value(*option);
    return 1;
  }

  static Error lacks_value(const CLI::Option& option) {
    const std::string flag = long_name(option);
    std::string meaning = option.get_description();
    if (meaning.size() > 1 && std::islower(static_cast<unsigned char>(meaning[1])) != 0) {
      meaning[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(meaning[0])));
    }
    return usage_error(flag + " needs a value",
                       fmt::format("write {} {}: {}", flag, value_name(option), meaning));
  }

  void check_positionals() const {
    size_t least = 0, most = 0;
    std::string missing;  // the first that is
    for (const CLI::Option* option : positionals_of(sub_)) {
      const bool many = option->get_items_expected_max() > 1;
      least += option->get_required() ? 1 : 0;
      most = many ? std::numeric_limits<size_t>::max() : most + 1;
      if (least > positionals_.size() && missing.empty()) missing = value_name(*option);
    }
    for (const std::string& word : positionals_) {
      if (word.empty()) throw usage_error(fmt::format("{}: an argument is empty", sub_.get_name()));
    }
    if (positionals_.size() < least) {
      throw usage_error(fmt::format("{} needs {}", sub_.get_name(), article(missing)),
                        example_of(sub_));
    }
    if (positionals_.size() > most) {
      const std::string& extra = positionals_[most];
      std::string meant = flag_of_value(sub_, extra);
      if (meant.empty()) meant = near_flag(sub_, extra);
      throw usage_error(fmt::format("{}: unexpected argument '{}'", sub_.get_name(), extra),
                        meant.empty() ? example_of(sub_) : question(meant));
    }
  }

  static std::string article(const std::string& name) {
    if (name == "RUN") return "a run file";
    return (name.starts_with('A') ? "an " : "a ") + name;
  }

  const CLI::App& root_;
  const CLI::App& sub_;
  std::map<const CLI::Option*, int> seen_;
  std::vector<std::string> positionals_;
};

std::string limits_text(double least, double most, double value = 0.0) {
  constexpr double kNoLimit = 1e15;  // beyond it a limit helps nobody who keeps it
  if (most < kNoLimit) return fmt::format("use {} to {}", least, most);
  if (value > most) return fmt::format("use at most {}", most);
  return least > 0.0 ? fmt::format("use {} or more", least) : "use 0 or more";
}

/// The whole text as a finite number.
std::optional<double> number_in(const std::string& text) {
  double value = 0.0;
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const auto [end, code] = std::from_chars(begin, text.data() + text.size(), value);
  const bool whole = code == std::errc() && end == text.data() + text.size();
  return whole && std::isfinite(value) ? std::optional<double>(value) : std::nullopt;
}

}  // namespace

CLI::Option* offer(CLI::Option* option, const Offer& values) {
  std::string text;
  const auto add = [&text](const std::string& item) { text += (text.empty() ? "" : " ") + item; };
  for (const std::string& word : values.words) add(word);
  if (!values.files.empty()) add("files=" + values.files);
  for (const std::string& prefix : values.folders_after) add("folder=" + prefix);
  if (values.list) add("list");
  CLI::Validator validator([](std::string&) { return std::string(); }, text, kOffer);
  return option->check(validator, kOffer);
}

std::optional<Offer> offered(const CLI::Option& option) {
  std::string text;
  try {  // CLI11 has no const getter and no question for it
    text = const_cast<CLI::Option&>(option).get_validator(kOffer)->get_description();
  } catch (const CLI::OptionNotFound&) {
    return std::nullopt;
  }
  Offer values;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find(' ', start), text.size());
    const std::string item = text.substr(start, end - start);
    start = end + 1;
    if (item.starts_with("files=")) {
      values.files = item.substr(6);
    } else if (item.starts_with("folder=")) {
      values.folders_after.push_back(item.substr(7));
    } else if (item == "list") {
      values.list = true;
    } else {
      values.words.push_back(item);
    }
  }
  return values;
}

CLI::Option* add_run_file(CLI::App& app, std::string& file) {
  CLI::Option* option = app.add_option("run", file, "Run file written by halfscope train or run")
                            ->required()
                            ->type_name("RUN")
                            ->group(group::kArguments);
  return offer(option, {.files = "*.hscope"});
}

CLI::Option* add_output(CLI::App& app, const std::string& flag, std::string& file,
                        const std::string& glob, const std::string& description) {
  CLI::Option* option = app.add_option(flag, file, description)->type_name("FILE");
  return offer(option->group(group::kOutput), {.files = glob});
}

CLI::Option* add_fail_on(CLI::App& app, std::string& severity) {
  const char* meaning = "Exit with code 1 from this severity on: info, warning or error [never]";
  CLI::Option* option = app.add_option("--fail-on", severity, meaning)->type_name("SEVERITY");
  return offer(option->group(group::kOther), {.words = {"info", "warning", "error"}});
}

CLI::Option* add_force(CLI::App& app, bool& force) {
  return app.add_flag("--force", force, "Replace existing output files")->group(group::kOutput);
}

double parse_number(const std::string& flag, const std::string& text, double least, double most) {
  const std::optional<double> value = number_in(text);
  const std::string hint = limits_text(least, most);
  if (!value) throw usage_error(fmt::format("{} {}: not a number", flag, text), hint);
  if (*value < least || *value > most) {
    throw usage_error(fmt::format("{} {}: out of range", flag, text),
                      limits_text(least, most, *value));
  }
  return *value;
}

CLI::Option* add_number(CLI::App& app, const std::string& flag, double& value, double least,
                        double most, const std::string& description) {
  return app
      .add_option_function<std::string>(
          flag,
          [&value, flag, least, most](const std::string& text) {
            value = parse_number(flag, text, least, most);
          },
          description)
      ->type_name("X");
}

uint64_t parse_integer(const std::string& flag, const std::string& text, uint64_t least,
                       uint64_t most) {
  const std::string hint = limits_text(static_cast<double>(least), static_cast<double>(most));
  uint64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = end == text.data() + text.size();
  if (code != std::errc() || !whole) {
    // "1e3", "-5", "+7": by way of a double, which holds every whole number up to 2^53.
    const std::optional<double> number = number_in(text);
    if (!number || *number != std::floor(*number)) {
      throw usage_error(fmt::format("{} {}: not a whole number", flag, text), hint);
    }
    if (*number < 0.0 || *number > 0x1p53) {
      throw usage_error(
          fmt::format("{} {}: out of range", flag, text),
          limits_text(static_cast<double>(least), static_cast<double>(most), *number));
    }
    value = static_cast<uint64_t>(*number);
  }
  if (value < least || value > most) {
    throw usage_error(fmt::format("{} {}: out of range", flag, text),
                      limits_text(static_cast<double>(least), static_cast<double>(most),
                                  static_cast<double>(value)));
  }
  return value;
}

void check_arguments(const CLI::App& app, const std::vector<std::string>& words) {
  if (words.empty()) {
    throw usage_error("a command is required",
                      "start with halfscope train, or see halfscope --help");
  }
  const std::string& first = words[0];
  if (is_flag(first)) {
    const std::string name = first.substr(0, first.find('='));
    if (find_flag(app, name) != nullptr) return;
    std::string hint = question(near_flag(app, name));
    for (const CLI::App* sub : subcommands_of(app)) {
      if (find_flag(*sub, name) == nullptr) continue;
      hint = fmt::format("flags follow the command: halfscope {} {}", sub->get_name(), name);
      break;
    }
    if (hint.empty()) hint = "see halfscope --help";
    throw usage_error("unknown flag '" + name + "'", hint);
  }
  std::vector<std::string> names;
  for (const CLI::App* sub : subcommands_of(app)) {
    names.push_back(sub->get_name());
    if (sub->get_name() != first) continue;
    const std::span<const std::string> rest = std::span(words).subspan(1);
    if (std::any_of(rest.begin(), rest.end(), is_help)) return;
    Checker(app, *sub).check(rest);
    return;
  }
  throw usage_error("unknown command '" + first + "'",
                    did_you_mean(first, names, "commands: " + comma_list(names)));
}

const CLI::App* asks_for_help(const CLI::App& app, const std::vector<std::string>& words) {
  const auto end = std::find(words.begin(), words.end(), "--");
  if (std::find_if(words.begin(), end, is_help) == end) return nullptr;
  for (const CLI::App* sub : subcommands_of(app)) {
    if (sub->get_name() == words[0]) return sub;
  }
  return &app;
}

std::vector<const CLI::Option*> flags_of(const CLI::App& app) {
  std::vector<const CLI::Option*> flags;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_lnames().empty() && !option->get_group().empty()) flags.push_back(option);
  }
  return flags;
}

std::vector<const CLI::Option*> positionals_of(const CLI::App& app) {
  std::vector<const CLI::Option*> positionals;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) positionals.push_back(option);
  }
  return positionals;
}

std::string long_name(const CLI::Option& option) { return "--" + option.get_lnames().at(0); }

std::string value_name(const CLI::Option& option) {
  const std::string name = option.get_type_name();  // CLI11 appends ":" and its validators
  return name.substr(0, name.find(':'));
}

std::vector<const CLI::App*> subcommands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

}  // namespace halfscope
