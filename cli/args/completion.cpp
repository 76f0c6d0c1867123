// SPDX-License-Identifier: MIT
// Each script is a fixed part that knows its shell and one line per flag that the App tree fills
// in. A flag's values come from its Offer (cli/args/arguments.h); one without an Offer has none.
#include "cli/args/completion.h"

#include <fmt/format.h>

#include <vector>

#include "cli/args/arguments.h"
#include "core/near_miss.h"

namespace halfscope {
namespace {

/// In single quotes, as all three shells take them.
std::string shell_word(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

/// The first sentence or clause, for the narrow column beside a flag.
std::string brief(const std::string& description) {
  return description.substr(0, description.find_first_of(";("));
}

/// The arguments of the scripts' function for values: words, files, prefixes of folders, list.
std::string offer_arguments(const Offer& values) {
  return fmt::format("{} {} {} {}", shell_word(joined(values.words)), shell_word(values.files),
                     shell_word(joined(values.folders_after)),
                     shell_word(values.list ? "list" : ""));
}

std::string flag_names(const CLI::App& app) {
  std::string names;
  for (const CLI::Option* option : flags_of(app)) {
    names += (names.empty() ? "" : " ") + long_name(*option);
  }
  return names;
}

std::string subcommand_names(const CLI::App& app) {
  std::string names;
  for (const CLI::App* sub : subcommands_of(app)) {
    names += (names.empty() ? "" : " ") + sub->get_name();
  }
  return names;
}

constexpr const char* kBashValues = R"(# Load it with:  source <(halfscope completion bash)

# Offers WORDS, FILES of a glob, folders after PREFIXES, LIST items for the value that is typed.
_halfscope_values() {
  local before=$stuck rest=$value prefix folder= IFS=$' \t\n'
  if [[ -n $4 && $rest == *,* ]]; then
    before+=${rest%,*},
    rest=${rest##*,}
  fi
  for prefix in $3; do
    [[ $rest == "$prefix"* ]] && folder=$prefix
  done
  if [[ -n $folder ]]; then
    before+=$folder
    rest=${rest#"$folder"}
    IFS=$'\n'
    COMPREPLY=($(compgen -d -S / -- "$rest"))
  else
    COMPREPLY=($(compgen -W "$1" -- "$rest"))
    if [[ -n $2 ]]; then
      IFS=$'\n'
      COMPREPLY+=($(compgen -f -X "!$2" -- "$rest") $(compgen -d -- "$rest"))
      [[ -z $before ]] && compopt -o filenames 2>/dev/null
    fi
  fi
  # Bash takes the word apart at ':' and '=' and replaces the last part only.
  local keep=${current%"${current##*[:=]}"} i
  for i in "${!COMPREPLY[@]}"; do
    COMPREPLY[i]=$before${COMPREPLY[i]}
    COMPREPLY[i]=${COMPREPLY[i]#"$keep"}
  done
  [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[:=/] ]] && compopt -o nospace 2>/dev/null
  return 0
}

_halfscope() {
  local line=${COMP_LINE:0:COMP_POINT} command= flag= stuck= value= current=
  local -a words
  read -ra words <<<"$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  local last=$((${#words[@]} - 1))
  current=${words[last]}
  ((last > 1)) && command=${words[1]} && flag=${words[last - 1]}
  value=$current
  if [[ $current == --*=* ]]; then
    flag=${current%%=*}
    stuck=$flag=
    value=${current#*=}
  fi
  COMPREPLY=()
)";

std::string bash_values(const CLI::App& sub) {
  std::string text;
  for (const CLI::Option* option : flags_of(sub)) {
    if (!takes_value(*option)) continue;
    const std::optional<Offer> values = offered(*option);
    const std::string action = values ? "_halfscope_values " + offer_arguments(*values) : ":";
    text += fmt::format("    {}) {}; return ;;\n",
                        shell_word(sub.get_name() + " " + long_name(*option)), action);
  }
  return text;
}

/// Returns the offers after a subcommand that are not a flag's value.
std::string bash_words(const CLI::App& sub) {
  const std::vector<const CLI::Option*> positionals = positionals_of(sub);
  const std::optional<Offer> values =
      positionals.empty() ? std::nullopt : offered(*positionals.front());
  const std::string flags = shell_word(flag_names(sub)) + " '' '' ''";
  if (!values) return fmt::format("    {}) _halfscope_values {} ;;\n", sub.get_name(), flags);
  return fmt::format(
      "    {})\n      if [[ $current == -* ]]; then _halfscope_values {}\n"
      "      else _halfscope_values {}; fi ;;\n",
      sub.get_name(), flags, offer_arguments(*values));
}

constexpr const char* kZshValues = R"(
# Offers WORDS, FILES of a glob, folders after PREFIXES, LIST items for the value that is typed.
_halfscope_values() {
  local ret=1 prefix
  local -a whole open
  [[ -n $4 ]] && compset -P '*,'
  for prefix in ${=3}; do
    if compset -P "$prefix"; then
      _files -/
      return
    fi
  done
  whole=(${(M)${=1}:#*[^:=]})
  open=(${(M)${=1}:#*[:=]})
  if [[ -n $4 ]]; then
    (( $#whole )) && compadd -qS , -- $whole && ret=0
  else
    (( $#whole )) && compadd -- $whole && ret=0
  fi
  (( $#open )) && compadd -S '' -- $open && ret=0
  [[ -n $2 ]] && _files -g "$2" && ret=0
  return ret
}

_halfscope() {
  local curcontext=$curcontext state line ret=1
  local -a commands
)";

/// Text inside a specification of _arguments, where ':' and brackets mean something.
std::string zsh_text(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == ':' || c == '[' || c == ']' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

/// The leading blank keeps _arguments from adding arguments of its own.
std::string zsh_action(const std::optional<Offer>& values) {
  std::string action = values ? " _halfscope_values " + offer_arguments(*values) : "";
  for (size_t at = 0; (at = action.find(':', at)) != std::string::npos; at += 2) {
    action.insert(at, 1, '\\');
  }
  return action;
}

std::string zsh_arguments(const CLI::App& sub) {
  std::string text = fmt::format("        {})\n          _arguments -s -S", sub.get_name());
  const auto add = [&text](const std::string& spec) {
    text += " \\\n            " + shell_word(spec);
  };
  for (const CLI::Option* option : flags_of(sub)) {
    const bool again = option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
    std::string spec = (again ? "*" : "") + long_name(*option);
    if (takes_value(*option)) spec += "=";
    spec += "[" + zsh_text(brief(option->get_description())) + "]";
    if (takes_value(*option)) {
      spec += fmt::format(":{}:{}", value_name(*option), zsh_action(offered(*option)));
    }
    add(spec);
  }
  for (const CLI::Option* option : positionals_of(sub)) {
    const bool many = option->get_items_expected_max() > 1;
    add(fmt::format("{}:{}:{}", many ? "*" : "1", value_name(*option),
                    zsh_action(offered(*option))));
  }
  return text + " && ret=0 ;;\n";
}

constexpr const char* kFishHelpers = R"(# Load it with:  halfscope completion fish | source

function __halfscope_folders --description 'folders after a prefix'
    set -l token (commandline -ct | string replace --regex '^--[^=]*=' '')
    if string match --quiet -- "$argv[1]*" $token
        set -l rest (string sub --start (math (string length -- $argv[1]) + 1) -- $token)
        for folder in $rest*/
            echo $argv[1]$folder
        end
    end
end

function __halfscope_list --description 'one more item of a comma-separated list'
    set -l token (commandline -ct | string replace --regex '^--[^=]*=' '')
    set -l before (string match --regex '^.*,' -- $token)
    for item in $argv
        echo $before$item
    end
end

complete -c halfscope -f
)";

std::string fish_flag(const CLI::App& sub, const CLI::Option& option) {
  std::string text = fmt::format(
      "complete -c halfscope -n '__fish_seen_subcommand_from {}' -l {} -d {}", sub.get_name(),
      option.get_lnames().at(0), shell_word(brief(option.get_description())));
  if (!takes_value(option)) return text + "\n";
  text += " -x";
  const std::optional<Offer> values = offered(option);
  if (!values) return text + "\n";
  const std::string words = joined(values->words);
  std::string all;
  if (!words.empty()) all += values->list ? "(__halfscope_list " + words + ")" : words;
  const auto add = [&all](const std::string& item) { all += (all.empty() ? "" : " ") + item; };
  if (!values->files.empty()) {
    add("(__fish_complete_suffix " + values->files.substr(values->files.rfind('.')) + ")");
  }
  for (const std::string& prefix : values->folders_after) {
    add("(__halfscope_folders " + prefix + ")");
  }
  return text + " -a " + shell_word(all) + "\n";
}

}  // namespace

std::string bash_completion(const CLI::App& app) {
  std::string text = std::string("# bash completion for halfscope\n") + kBashValues;
  text += "  case \"$command $flag\" in\n";
  for (const CLI::App* sub : subcommands_of(app)) text += bash_values(*sub);
  text += "  esac\n  case $command in\n";
  text += fmt::format("    '') _halfscope_values {} '' '' '' ;;\n",
                      shell_word(subcommand_names(app) + " " + flag_names(app)));
  for (const CLI::App* sub : subcommands_of(app)) text += bash_words(*sub);
  return text + "  esac\n}\n\ncomplete -F _halfscope halfscope\n";
}

std::string zsh_completion(const CLI::App& app) {
  std::string text =
      "#compdef halfscope\n# Load it with:  source <(halfscope completion zsh)\n"
      "# or save it as _halfscope in a folder of $fpath.\n";
  text += kZshValues;
  text += "  commands=(\n";
  for (const CLI::App* sub : subcommands_of(app)) {
    text += "    " + shell_word(sub->get_name() + ":" + zsh_text(sub->get_description())) + "\n";
  }
  text += "  )\n  _arguments -C";
  for (const CLI::Option* option : flags_of(app)) {
    text += " " + shell_word(long_name(*option) + "[" + zsh_text(option->get_description()) + "]");
  }
  text +=
      " '1: :->command' '*:: :->rest' && ret=0\n"
      "  case $state in\n"
      "    command) _describe -t commands subcommand commands && ret=0 ;;\n"
      "    rest)\n      case $words[1] in\n";
  for (const CLI::App* sub : subcommands_of(app)) text += zsh_arguments(*sub);
  return text +
         "      esac ;;\n  esac\n  return ret\n}\n\n"
         "if [[ $funcstack[1] == _halfscope ]]; then\n  _halfscope \"$@\"\n"
         "else\n  compdef _halfscope halfscope\nfi\n";
}

std::string fish_completion(const CLI::App& app) {
  std::string text = std::string("# fish completion for halfscope\n") + kFishHelpers;
  for (const CLI::Option* option : flags_of(app)) {
    text += fmt::format("complete -c halfscope -n __fish_use_subcommand -l {} -d {}\n",
                        option->get_lnames().at(0), shell_word(option->get_description()));
  }
  for (const CLI::App* sub : subcommands_of(app)) {
    text += fmt::format("complete -c halfscope -n __fish_use_subcommand -a {} -d {}\n",
                        sub->get_name(), shell_word(sub->get_description()));
    for (const CLI::Option* option : flags_of(*sub)) text += fish_flag(*sub, *option);
    for (const CLI::Option* option : positionals_of(*sub)) {
      const std::optional<Offer> values = offered(*option);
      if (!values) continue;
      const std::string words =
          values->files.empty()
              ? joined(values->words)
              : "(__fish_complete_suffix " + values->files.substr(values->files.rfind('.')) + ")";
      text += fmt::format("complete -c halfscope -n '__fish_seen_subcommand_from {}' -a {}\n",
                          sub->get_name(), shell_word(words));
    }
  }
  return text;
}

}  // namespace halfscope
