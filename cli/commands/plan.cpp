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
#include "cli/tasks/keras_message.h"
#include "cli/tasks/plan_graphdef.h"
#include "cli/tasks/plan_lint.h"
#include "cli/tasks/plan_scalers.h"
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
                 const Settings& settings, ScalerTraceOptions scalers,
                 const std::vector<std::string>& gpus) {
  if (action == "list") {
    check_count(names, 0, 0, "list");
    return plan_list(settings.json);
  }
  if (action == "show") {
    check_count(names, 1, 1, "show PLAN [--model NETWORK]");
    if (is_tf_graph_file(settings.model))
      return plan_graphdef(names[0], settings.model, settings.json);
    return plan_show(names[0], settings, keras_message(names[0], gpus));
  }
  if (action == "explain") {
    check_count(names, 1, 2, "explain [PLAN] NODE --model NETWORK");
    check_model(settings, "explain");
    if (is_tf_graph_file(settings.model)) {
      return explain_graphdef(names.size() == 2 ? names[0] : "tf-amp", names.back(), settings.model,
                              settings.json);
    }
    return plan_explain(names.size() == 2 ? names[0] : kUsualPlan, names.back(), settings);
  }
  if (action == "diff") {
    check_count(names, 2, 2, "diff PLAN PLAN --model NETWORK");
    check_model(settings, "diff");
    return plan_diff(names[0], names[1], settings);
  }
  if (action == "lint") {
    check_count(names, 1, 1, "lint PLAN --model NETWORK");
    check_model(settings, "lint");
    return plan_lint(names[0], settings);
  }
  if (action == "scalers") {
    check_count(names, 0, 1, "scalers [RUN]");
    if (!names.empty()) scalers.run = names[0];
    scalers.json = settings.json;
    return plan_scalers(scalers);
  }
  const std::vector<std::string> actions{"list", "show", "explain", "diff", "lint", "scalers"};
  throw usage_error("plan: unknown action '" + action + "'",
                    did_you_mean(action, actions, "use " + comma_list(actions)));
}

}  // namespace

void add_plan(CLI::App& app, Invocation& call) {
  auto action = std::make_shared<std::string>();
  auto names = std::make_shared<std::vector<std::string>>();
  auto scalers = std::make_shared<ScalerTraceOptions>();
  auto gpus = std::make_shared<std::vector<std::string>>();
  CLI::App* sub =
      app.add_subcommand("plan", "Show which format a precision plan gives each layer, and why");
  sub->footer(
      "Example:  halfscope plan list\n"
      "          halfscope plan show mixed_float16 --model lenet\n"
      "          halfscope plan explain mixed_float16 conv1 --model lenet\n"
      "          halfscope plan diff mixed_float16 float16 --model lenet\n"
      "          halfscope plan lint float16 --model lenet --optimizer adam\n"
      "          halfscope plan scalers run.hscope");
  offer(sub->add_option("action", *action, "Action: list, show, explain, diff, lint or scalers")
            ->required()
            ->type_name("ACTION")
            ->group(group::kArguments),
        {.words = {"list", "show", "explain", "diff", "lint", "scalers"}});
  offer(sub->add_option("name", *names,
                        "Plans, by name or JSON file; for explain a plan [mixed_float16] and a "
                        "node, by path, module or operator; for scalers a run file")
            ->type_name("NAME")
            ->group(group::kArguments),
        {.words = plan_words(), .files = "*.json"});
  add_settings(*sub, kPlan);
  sub->add_option("--gpu", *gpus,
                  "GPU for the message of keras-mixed_float16 in show, as NAME:7.5 (repeatable) "
                  "[this machine's]")
      ->type_name("GPU")
      ->expected(1)
      ->take_all();
  add_scaler_flags(*sub, *scalers);
  sub->callback([action, names, scalers, gpus, sub, &call] {
    call.action = [action, names, scalers, gpus, sub] {
      const Settings settings = read_settings(*sub, kPlan);
      return naming_keys(settings,
                         [&] { return plan_command(*action, *names, settings, *scalers, *gpus); });
    };
  });
}

}  // namespace halfscope
