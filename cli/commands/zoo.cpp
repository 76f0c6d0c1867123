// SPDX-License-Identifier: MIT
// `halfscope zoo`: documented failures of reduced precision, to look at and to run.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "cli/args/arguments.h"
#include "cli/args/config_file.h"
#include "cli/args/lanes.h"
#include "cli/args/network.h"
#include "cli/args/zoo_case.h"
#include "cli/commands/command.h"
#include "cli/terminal/lane_summary.h"  // aligned
#include "cli/terminal/output.h"
#include "core/error.h"
#include "core/near_miss.h"

namespace halfscope {
namespace {

struct ZooOptions {
  std::string action, id, plan, out;
  bool json = false, quiet = false, force = false;
};

std::string spec_of(const zoo::Case& which) { return std::string(zoo::kPrefix) + which.id; }

/// The words of `train` or `run` that show the case under its plan, or under `plan`.
std::vector<std::string> words_of(const zoo::Case& which, const std::string& plan,
                                  const std::string& out) {
  std::vector<std::string> words{"run", spec_of(which)};
  if (which.trains()) words = {"train", "--model", spec_of(which)};
  const std::vector<std::string> lane = plan.empty() ? lane_words(which, plan_of_case(which))
                                                     : std::vector<std::string>{"--plan", plan};
  words.insert(words.end(), lane.begin(), lane.end());
  words.insert(words.end(), {which.trains() ? "--out" : "--record", out});
  return words;
}

std::string command_of(const std::vector<std::string>& words) {
  std::string line = "halfscope";
  for (const std::string& word : words) line += " " + shell_quoted(word);
  return line;
}

std::string fix_names(const zoo::Case& which) {
  std::string names;
  for (const FixKind kind : which.about.fixes) {
    names += (names.empty() ? "" : ", ") + std::string(fix_name(kind));
  }
  return names.empty() ? "-" : names;
}

Json case_json(const zoo::Case& which) {
  const zoo::About& about = which.about;
  Json json{{"id", which.id},
            {"what", which.what},
            {"fails", which.fails},
            {"plan", plan_of_case(which)},
            {"command", words_of(which, "", which.id + ".hscope")},
            {"mechanism", which.fails ? Json(mechanism_name(about.mechanism)) : Json(nullptr)},
            {"fixes", Json::array()},
            {"stagewise", about.stagewise},
            {"seen", about.seen},
            {"decoy", about.decoy}};
  for (const FixKind kind : about.fixes) json["fixes"].push_back(fix_name(kind));
  const zoo::Labels& labels = zoo_setup(spec_of(which)).labels;
  json["root"] = labels.root;
  json["first_symptom"] = labels.first_symptom.empty() ? Json(nullptr) : Json(labels.first_symptom);
  json["decoys"] = labels.decoys;
  json["smallest_fix"] = Json::array();
  for (const Change& change : labels.fix.changes) {
    Json item{{"kind", fix_name(change.kind)},
              {"path", change.path.empty() ? Json(nullptr) : Json(change.path)}};
    if (change.value != 0.0) item["value"] = change.value;
    if (!change.text.empty()) item["text"] = change.text;
    json["smallest_fix"].push_back(std::move(item));
  }
  return json;
}

int list(const ZooOptions& options) {
  if (options.json) {
    Json cases = Json::array();
    for (const zoo::Case& each : zoo::all_cases()) cases.push_back(case_json(each));
    write_json(Json{{"schema", "halfscope.zoo/1"}, {"version", kVersion}, {"cases", cases}});
    return 0;
  }
  std::vector<std::vector<std::string>> rows{
      {"case", "what goes wrong", "plan", "mechanism", "fixes"}};
  for (const zoo::Case& each : zoo::all_cases()) {
    rows.push_back({each.id, each.what, each.fails ? plan_of_case(each) : "-",
                    each.fails ? mechanism_name(each.about.mechanism) : "healthy",
                    fix_names(each)});
  }
  write_out(aligned(rows, {false, false, false, false, false}));
  return 0;
}

/// "bapol3 (Attention)"; variables have their name alone.
std::string place_text(const Graph& graph, const std::string& path) {
  for (const Node& node : graph.nodes()) {
    if (node.path == path) return fmt::format("{} ({})", path, node.op);
  }
  return path;
}

/// Returns the explanation of the case, to print after the verdict.
std::string story_of(const zoo::Case& which, const TextStyle& style) {
  const zoo::Setup& setup = zoo_setup(spec_of(which));
  const Graph& graph = setup.model.graph;
  const zoo::About& about = which.about;
  const auto places = [&](const std::vector<std::string>& paths) {
    std::string text;
    for (const std::string& path : paths) {
      text += (text.empty() ? "" : ", ") + place_text(graph, path);
    }
    return text;
  };
  std::string text = "\n" + paragraph(fmt::format("{}: {}", which.id, which.what), style, 0, 0);
  const auto row = [&](const char* name, const std::string& what) {
    if (!what.empty()) text += paragraph(fmt::format("{:<15}{}", name, what), style, 2, 17);
  };
  if (!which.fails) {
    row("healthy", "whatever is blamed here is a false alarm");
    return text;
  }
  row("mechanism", mechanism_text(about.mechanism));
  row("root", setup.labels.root.empty() ? "a setting or state of the whole lane, not a layer"
                                        : places(setup.labels.root));
  row("first symptom",
      setup.labels.first_symptom.empty() ? "" : place_text(graph, setup.labels.first_symptom));
  std::string decoy = about.decoy;
  if (const std::string paths = places(setup.labels.decoys); !paths.empty()) {
    decoy += (decoy.empty() ? "" : ": ") + paths;
  }
  row("easily blamed", decoy);
  std::string fixes;
  for (const FixKind kind : about.fixes)
    fixes += (fixes.empty() ? "" : ", or ") + std::string(fix_text(kind));
  row("fix", fixes);
  std::string changes;
  for (const Change& change : setup.labels.fix.changes) {
    changes += (changes.empty() ? "" : ", ") + std::string(fix_name(change.kind)) +
               (change.path.empty() ? "" : " of " + place_text(graph, change.path)) +
               (change.text.empty() ? "" : ": " + change.text);
  }
  row("smallest here", changes);
  row("seen in", about.seen);
  return text;
}

int run(const ZooOptions& options) {
  const zoo::Case& which = zoo::find_case(options.id);
  const std::string out = options.out.empty() ? which.id + ".hscope" : options.out;
  std::vector<std::string> words = words_of(which, options.plan, out);
  const std::string line = command_of(words);
  if (options.force) words.emplace_back("--force");
  if (options.quiet) words.emplace_back("--quiet");
  const Commands command = which.trains() ? kTrain : kRun;
  Settings settings = parse_settings(command, {words.begin() + 1, words.end()});
  take_case_settings(settings);
  // Results go to standard output only once the settings are known to work.
  const auto started = [&] {
    if (!options.quiet) write_out(line + "\n\n");
  };
  const int code =
      which.trains() ? train(settings, line, started) : run_network(settings, line, started);
  if (!options.quiet) write_out(story_of(which, text_style(STDOUT_FILENO)));
  return code;
}

int zoo_command(const ZooOptions& options) {
  const std::vector<std::string> actions{"list", "run"};
  if (options.action == "list") {
    if (!options.id.empty() || !options.plan.empty() || !options.out.empty()) {
      throw usage_error("zoo list takes neither a case nor --plan nor --out",
                        "run one case with halfscope zoo run CASE");
    }
    return list(options);
  }
  if (options.action != "run") {
    throw usage_error("zoo: unknown action '" + options.action + "'",
                      did_you_mean(options.action, actions, "use list or run"));
  }
  if (options.id.empty())
    throw usage_error("zoo run needs a case", "list the cases with halfscope zoo list");
  if (options.json) {
    throw usage_error("--json is for zoo list", "add --json to the command that zoo run prints");
  }
  return run(options);
}

}  // namespace

void add_zoo(CLI::App& app, Invocation& call) {
  auto options = std::make_shared<ZooOptions>();
  CLI::App* sub =
      app.add_subcommand("zoo", "List documented failures of reduced precision, or run one");
  sub->footer(
      "Example:  halfscope zoo list\n"
      "          halfscope zoo run F7");
  offer(sub->add_option("action", options->action, "Action: list, or run (one case)")
            ->required()
            ->type_name("ACTION")
            ->group(group::kArguments),
        {.words = {"list", "run"}});
  sub->add_option("case", options->id, "Case to run, for example F7")
      ->type_name("CASE")
      ->group(group::kArguments);
  std::vector<std::string> plans = plan_words();
  offer(sub->add_option("--plan", options->plan, "Plan to run under [the plan in the list]")
            ->type_name("PLAN"),
        {.words = plans, .files = "*.json"});
  add_output(*sub, "--out", options->out, "*.hscope", "Run file to write [CASE.hscope]");
  sub->add_flag("--json", options->json, "Print the list as JSON")->group(group::kOutput);
  add_force(*sub, options->force);
  sub->add_flag("--quiet", options->quiet, "Print nothing")->group(group::kOutput);
  sub->callback([options, &call] { call.action = [options] { return zoo_command(*options); }; });
}

}  // namespace halfscope
