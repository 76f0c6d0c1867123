// SPDX-License-Identifier: MIT
// `halfscope help TOPIC`: explains a small language of the flags. main() turns
// `halfscope help COMMAND` into `halfscope COMMAND --help`.
#include <memory>
#include <string>
#include <vector>

#include "cli/args/arguments.h"
#include "cli/args/topics.h"
#include "cli/commands/command.h"
#include "cli/terminal/output.h"
#include "core/error.h"
#include "core/near_miss.h"

namespace halfscope {

void add_help(CLI::App& app, Invocation& call) {
  auto name = std::make_shared<std::string>();
  CLI::App* sub = app.add_subcommand("help", "Explain a command or a topic");
  sub->footer("Example:  halfscope help plans");
  std::vector<std::string> words;
  for (const CLI::App* other : subcommands_of(app)) {
    if (other != sub) words.push_back(other->get_name());
  }
  std::string names;
  for (const Topic& topic : topics()) {
    words.emplace_back(topic.name);
    names += (names.empty() ? "" : ", ") + std::string(topic.name);
  }
  offer(sub->add_option("name", *name, "Name of a command, or a topic: " + names)
            ->required()
            ->type_name("NAME")
            ->group(group::kArguments),
        {.words = words});
  sub->callback([name, words, names, &call] {
    call.action = [name, words, names] {
      for (const Topic& topic : topics()) {
        if (topic.name != *name) continue;
        write_out(topic.text());
        return 0;
      }
      throw usage_error("unknown command or topic '" + *name + "'",
                        did_you_mean(*name, words, "see halfscope help; topics: " + names));
    };
  });
}

}  // namespace halfscope
