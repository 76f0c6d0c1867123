// SPDX-License-Identifier: MIT
// `halfscope plan`: what a plan decides about a network and why, and how two plans differ.
#include <memory>
#include <string>
#include <vector>

#include "cli/args/arguments.h"
#include "cli/args/config_file.h"
#include "cli/args/network.h"
#include "cli/args/setting.h"
#include "cli/commands/command.h"
#include "cli/tasks/plan_show.h"
#include "core/error.h"
#include "core/near_miss.h"

namespace halfscope {
namespace {

constexpr const char* kUsualPlan = "mixed_float16";

/// Throws Error (usage) unless the action has as many arguments as it takes.
void check_count(const std::vector<std::string>& names, size_t least, size_t most,
                 const std::string& usage) {
  if (names.size() >= least && names.size() <= most) return;
  throw usage_error(names.size() < least ? "plan: an argument is missing"
                                         : "plan: '" + names[most] + "' is one argument too many",
                    "use halfscope plan " + usage);
}

void check_model(const Settings& settings, const char* action) {
  if (!settings.model.empty()) return;
  throw usage_error(std::string("plan ") + action + " needs a network", "add --model");
}

int plan_command(const std::string& action, const std::vector<std::string>& names,
                 const Settings& settings) {
  if (action == "list") {
    check_count(names, 0, 0, "list");
    return plan_list(settings.json);
  }
  if (action == "show") {
    check_count(names, 1, 1, "show PLAN [--model NETWORK]");
    return plan_show(names[0], settings);
  }
  if (action == "explain") {
    check_count(names, 1, 2, "explain [PLAN] NODE --model NETWORK");
    check_model(settings, "explain");
    return plan_explain(names.size() == 2 ? names[0] : kUsualPlan, names.back(), settings);
  }
  if (action == "diff") {
    check_count(names, 2, 2, "diff PLAN PLAN --model NETWORK");
    check_model(settings, "diff");
    return plan_diff(names[0], names[1], settings);
  }
  const std::vector<std::string> actions{"list", "show", "explain", "diff"};
  throw usage_error("plan: unknown action '" + action + "'",
                    did_you_mean(action, actions, "use " + comma_list(actions)));
}

}  // namespace

void add_plan(CLI::App& app, Invocation& call) {
  auto action = std::make_shared<std::string>();
  auto names = std::make_shared<std::vector<std::string>>();
  CLI::App* sub =
      app.add_subcommand("plan", "Show which format a precision plan gives each layer, and why");
  sub->footer(
      "Example:  halfscope plan list\n"
      "          halfscope plan show mixed_float16 --model lenet\n"
      "          halfscope plan explain mixed_float16 conv1 --model lenet\n"
      "          halfscope plan diff mixed_float16 float16 --model lenet");
  offer(sub->add_option("action", *action, "Action: list, show, explain or diff")
            ->required()
            ->type_name("ACTION")
            ->group(group::kArguments),
        {.words = {"list", "show", "explain", "diff"}});
  offer(sub->add_option("name", *names,
                        "Plans, by name or JSON file; for explain a plan [mixed_float16] and a "
                        "node, by path, module or operator")
            ->type_name("NAME")
            ->group(group::kArguments),
        {.words = plan_words(), .files = "*.json"});
  add_settings(*sub, kPlan);
  sub->callback([action, names, sub, &call] {
    call.action = [action, names, sub] {
      const Settings settings = read_settings(*sub, kPlan);
      return naming_keys(settings, [&] { return plan_command(*action, *names, settings); });
    };
  });
}

}  // namespace halfscope
