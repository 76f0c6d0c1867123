// SPDX-License-Identifier: MIT
// `halfscope plan`: what a plan decides about a network and why, and how two plans differ.
#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/args/arguments.h"
#include "cli/args/config_file.h"
#include "cli/args/network.h"
#include "cli/args/setting.h"
#include "cli/args/zoo_case.h"
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

using Names = std::vector<std::string>;

constexpr const char* kUsualPlan = "mixed_float16";
constexpr const char* kUsualGraphPlan = "tf-amp";

/// The words of a command line.
struct PlanCall {
  std::string action;
  Names names{};
  Settings settings{};
  ScalerTraceOptions scalers{};
  Names gpus{};

  bool of_graph() const { return is_tf_graph_file(settings.model); }
};

int show(const PlanCall& call) {
  if (call.of_graph()) {
    return plan_graphdef(call.names[0], call.settings.model, call.settings.json);
  }
  return plan_show(call.names[0], call.settings, keras_message(call.names[0], call.gpus));
}

int explain(const PlanCall& call) {
  const bool named = call.names.size() == 2;
  if (call.of_graph()) {
    return explain_graphdef(named ? call.names[0] : kUsualGraphPlan, call.names.back(),
                            call.settings.model, call.settings.json);
  }
  return plan_explain(named ? call.names[0] : kUsualPlan, call.names.back(), call.settings);
}

int scalers(const PlanCall& call) {
  ScalerTraceOptions options = call.scalers;
  options.json = call.settings.json;
  return plan_scalers(options);
}

struct Action {
  const char* name;
  Commands bit;
  size_t least, most;  ///< arguments after the action
  const char* usage;
  unsigned subjects;  ///< bits of PlanSubject that it can be about
  int (*run)(const PlanCall& call);
};

constexpr Action kActions[] = {
    {"list", kPlanList, 0, 0, "list", kOfNothing,
     [](const PlanCall& call) { return plan_list(call.settings.json); }},
    {"show", kPlanShow, 1, 1, "show PLAN [--model NETWORK]", kOfNothing | kOfNetworks | kOfTfGraph,
     show},
    {"explain", kPlanExplain, 1, 2, "explain [PLAN] NODE --model NETWORK", kOfNetworks | kOfTfGraph,
     explain},
    {"diff", kPlanDiff, 2, 2, "diff PLAN PLAN --model NETWORK", kOfNetworks,
     [](const PlanCall& call) { return plan_diff(call.names[0], call.names[1], call.settings); }},
    {"lint", kPlanLint, 1, 1, "lint PLAN --model NETWORK", kOfNetworks,
     [](const PlanCall& call) { return plan_lint(call.names[0], call.settings); }},
    {"scalers", kPlanScalers, 0, 1, "scalers [RUN]", kOfGradients, scalers},
};

Names action_names() {
  Names names;
  for (const Action& each : kActions) names.emplace_back(each.name);
  return names;
}

/// Flags that are not in the table of settings, with bits of Commands and PlanSubject.
struct OwnFlag {
  const char* flag;
  unsigned uses;
};
constexpr OwnFlag kOwnFlags[] = {
    {"--gpu", kPlanShow | kOfNetworks},
    {"--pattern", kPlanScalers | kOfGradients},  // plan_scalers() wants one of these three
    {"--trajectory", kPlanScalers | kOfGradients},
    {"--shape", kPlanScalers | kOfGradients},
    {"--scaler", kPlanScalers | kOfGradients},
    {"--interval", kPlanScalers | kOfGradients},
    {"--steps", kPlanScalers | kOfPattern | kOfShape},
    {"--format", kPlanScalers | kOfTrajectory | kOfShape},
    {"--lane", kPlanScalers | kOfRun},
    {"--csv", kPlanScalers | kOfGradients},
    {"--force", kPlanScalers | kOfGradients},
};

/// Returns where a flag has an effect; nothing for flags of every command, such as --help.
std::optional<unsigned> uses_of(const std::string& flag) {
  for (const OwnFlag& each : kOwnFlags) {
    if (flag == each.flag) return each.uses;
  }
  for (const Setting* row : settings_of(kPlan)) {
    if (row->flag == flag) return row->commands;
  }
  return std::nullopt;
}

struct Subject {
  PlanSubject bit;
  const char* name;
};
constexpr Subject kSubjects[] = {
    {kOfNothing, "without a network"},
    {kOfBuiltIn, "on a built-in network"},
    {kOfZoo, "on a network of the zoo, which has its own data and settings"},
    {kOfZooForward, "on a network of the zoo that is not trained"},
    {kOfFile, "on an ONNX file"},
    {kOfFileForward, "on a network without a loss"},
    {kOfTfGraph, "on a TensorFlow graph"},
    {kOfRun, "on a run file"},
    {kOfPattern, "with --pattern"},
    {kOfTrajectory, "with --trajectory"},
    {kOfShape, "on a built-in trajectory"},
};

PlanSubject subject_of(const Action& action, const PlanCall& call) {
  if (action.bit == kPlanScalers) {
    const ScalerTraceOptions& options = call.scalers;
    if (!options.run.empty()) return kOfRun;
    if (!options.pattern.empty()) return kOfPattern;
    return options.trajectory.empty() ? kOfShape : kOfTrajectory;
  }
  const std::string& model = call.settings.model;
  if (model.empty() || action.bit == kPlanList) return kOfNothing;
  if (call.of_graph()) return kOfTfGraph;
  if (zoo::is_zoo(model)) return zoo_case(model).trains() ? kOfZoo : kOfZooForward;
  if (!is_network_file(model)) return kOfBuiltIn;
  return call.settings.loss.empty() ? kOfFileForward : kOfFile;
}

/// Returns "plan show, explain and lint": the actions among these bits.
std::string actions_in(unsigned bits) {
  Names names;
  for (const Action& each : kActions) {
    if ((bits & each.bit) != 0) names.emplace_back(each.name);
  }
  std::string text = "plan " + names.front();
  for (size_t i = 1; i < names.size(); ++i) {
    text += (i + 1 == names.size() ? " and " : ", ") + names[i];
  }
  return text;
}

/// Says what to do about a flag that has no effect on this subject.
std::string hint_about(unsigned uses, PlanSubject subject) {
  if (subject == kOfNothing) return "add --model";
  if (subject == kOfFileForward && (uses & kOfFile) != 0) return "add --loss to plan a training";
  std::string others;  // trajectories that the flag is for
  for (const Subject& each : kSubjects) {
    if ((uses & kOfGradients & each.bit) == 0) continue;
    others += (others.empty() ? "" : " or ") + std::string(each.name);
  }
  return others.empty() ? "leave it out" : "leave it out; it has an effect " + others;
}

/// Throws Error (usage) for a flag that the action would ignore.
void check_flags(const CLI::App& app, const Action& action, PlanSubject subject) {
  const std::string name = std::string("plan ") + action.name;
  for (const CLI::Option* option : app.parse_order()) {
    if (option->get_lnames().empty()) continue;
    const std::string flag = long_name(*option);
    const std::optional<unsigned> uses = uses_of(flag);
    if (!uses) continue;
    if ((*uses & action.bit) == 0) {
      throw usage_error(name + " has no flag " + flag, flag + " is a flag of " + actions_in(*uses));
    }
    if ((*uses & subject) != 0) continue;
    const auto found = std::find_if(std::begin(kSubjects), std::end(kSubjects),
                                    [&](const Subject& each) { return each.bit == subject; });
    throw usage_error(name + ": " + flag + " has no effect " + found->name,
                      hint_about(*uses, subject));
  }
}

const Action& find_action(const std::string& name) {
  for (const Action& each : kActions) {
    if (name == each.name) return each;
  }
  throw usage_error("plan: unknown action '" + name + "'",
                    did_you_mean(name, action_names(), "use " + comma_list(action_names())));
}

/// Throws Error (usage) unless the action has as many arguments as it takes.
void check_count(const Action& action, const Names& names) {
  if (names.size() >= action.least && names.size() <= action.most) return;
  throw usage_error(names.size() < action.least
                        ? "plan: an argument is missing"
                        : "plan: '" + names[action.most] + "' is one argument too many",
                    std::string("use halfscope plan ") + action.usage);
}

void check_subject(const Action& action, PlanSubject subject) {
  if ((action.subjects & subject) != 0) return;
  const std::string name = std::string("plan ") + action.name;
  if (subject == kOfNothing) throw usage_error(name + " needs a network", "add --model");
  throw usage_error(name + " cannot read a TensorFlow graph",
                    "use plan show or plan explain, or an ONNX file");
}

int plan_command(const CLI::App& app, PlanCall call) {
  const Action& action = find_action(call.action);
  check_count(action, call.names);
  if (action.bit == kPlanScalers && !call.names.empty()) call.scalers.run = call.names[0];
  const PlanSubject subject = subject_of(action, call);
  check_flags(app, action, subject);
  check_subject(action, subject);
  return action.run(call);
}

}  // namespace

void add_plan(CLI::App& app, Invocation& call) {
  auto words = std::make_shared<PlanCall>();
  CLI::App* sub =
      app.add_subcommand("plan", "Show which format a precision plan gives each layer, and why");
  sub->footer(
      "Example:  halfscope plan list\n"
      "          halfscope plan show mixed_float16 --model lenet\n"
      "          halfscope plan explain mixed_float16 conv1 --model lenet\n"
      "          halfscope plan diff mixed_float16 float16 --model lenet\n"
      "          halfscope plan lint float16 --model lenet --optimizer adam\n"
      "          halfscope plan scalers run.hscope");
  offer(
      sub->add_option("action", words->action, "Action: list, show, explain, diff, lint or scalers")
          ->required()
          ->type_name("ACTION")
          ->group(group::kArguments),
      {.words = action_names()});
  offer(sub->add_option("name", words->names,
                        "Plans, by name or JSON file; for explain a plan [mixed_float16] and a "
                        "node, by path, module or operator; for scalers a run file")
            ->type_name("NAME")
            ->group(group::kArguments),
        {.words = plan_words(), .files = "*.json"});
  add_settings(*sub, kPlan);
  sub->add_option("--gpu", words->gpus,
                  "GPU for the message that show prints of keras-mixed_float16, as NAME:7.5 "
                  "(repeatable) [this machine's]")
      ->type_name("GPU")
      ->expected(1)
      ->take_all();
  add_scaler_flags(*sub, words->scalers);
  sub->callback([words, sub, &call] {
    call.action = [words, sub] {
      words->settings = read_settings(*sub, kPlan);
      return naming_keys(words->settings, [&] { return plan_command(*sub, *words); });
    };
  });
}

}  // namespace halfscope
