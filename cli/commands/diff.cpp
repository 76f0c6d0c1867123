// SPDX-License-Identifier: MIT
// `halfscope diff`: two runs, two lanes of a run, or two files of tensors compared.
#include <fmt/format.h>

#include <memory>
#include <vector>

#include "cli/args/arguments.h"
#include "cli/args/settings.h"
#include "cli/commands/command.h"
#include "cli/tasks/diff_runs.h"
#include "cli/tasks/diff_tensors.h"
#include "cli/terminal/output.h"
#include "core/error.h"
#include "core/near_miss.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

struct DiffOptions {
  std::vector<std::string> files;
  std::string lanes, as;
  size_t limit = 10;
  double ulps = 0.0;
  bool json = false, quiet = false;
};

int finish(const DiffOptions& options, bool same, const std::string& text, Json json) {
  if (options.json) {
    Json result{{"schema", "halfscope.diff/1"}, {"version", kVersion}, {"files", options.files}};
    result["same"] = same;
    result.update(json);
    write_json(result);
  } else if (!options.quiet) {
    write_out(text);
  }
  return same ? 0 : 1;
}

int lane_of(const RunView& run, const std::string& file, const std::string& name) {
  if (const std::optional<int> lane = run.find_lane(name)) return *lane;
  std::vector<std::string> names;
  for (const LaneInfo& lane : run.info().lanes) names.push_back(lane.name);
  throw usage_error(fmt::format("'{}' has no lane '{}'", file, name),
                    did_you_mean(name, names, "lanes: " + comma_list(names)));
}

/// Returns the two lanes of --lanes A,B; one name stands for both.
std::pair<std::string, std::string> named_lanes(const std::string& text) {
  const size_t comma = text.find(',');
  if (comma == std::string::npos) return {text, text};
  const std::string second = text.substr(comma + 1);
  if (comma == 0 || second.empty() || second.find(',') != std::string::npos) {
    throw usage_error("--lanes takes one or two lanes, not '" + text + "'",
                      "write for example --lanes float32,mixed_float16");
  }
  return {text.substr(0, comma), second};
}

int diff_runs(const DiffOptions& options) {
  const std::string &file_a = options.files.front(), &file_b = options.files.back();
  if (options.files.size() == 1 && options.lanes.find(',') == std::string::npos) {
    throw usage_error("diff needs two files, or two lanes of one run",
                      "add another file, or --lanes A,B");
  }
  const RunView a = RunView::open(file_a), b = RunView::open(file_b);
  std::vector<LaneDiff> diffs;
  std::vector<std::string> only_a, only_b;
  if (!options.lanes.empty()) {
    const auto [first, second] = named_lanes(options.lanes);
    diffs.push_back(diff_lanes(a, lane_of(a, file_a, first), b, lane_of(b, file_b, second)));
  } else {
    for (int lane = 0; lane < a.lane_count(); ++lane) {
      const std::optional<int> other = b.find_lane(a.lane(lane).name);
      if (other) diffs.push_back(diff_lanes(a, lane, b, *other));
      if (!other) only_a.push_back(a.lane(lane).name);
    }
    for (const LaneInfo& lane : b.info().lanes) {
      if (!a.find_lane(lane.name)) only_b.push_back(lane.name);
    }
    if (diffs.empty()) {
      throw usage_error(
          "the runs have no lane of the same name",
          fmt::format("choose lanes with --lanes {},{}", comma_list(only_a), comma_list(only_b)));
    }
  }
  bool same = only_a.empty() && only_b.empty();
  std::string text;
  Json lanes = Json::array();
  for (const LaneDiff& diff : diffs) {
    same = same && diff.same();
    text += (text.empty() ? "" : "\n") + lane_diff_text(diff, options.limit);
    lanes.push_back(lane_diff_json(diff));
  }
  for (const auto& [which, names] : {std::pair{"first", only_a}, {"second", only_b}}) {
    if (!names.empty()) text += fmt::format("lanes only in the {}: {}\n", which, comma_list(names));
  }
  return finish(options, same, text,
                {{"kind", "runs"}, {"only", Json::array({only_a, only_b})}, {"lanes", lanes}});
}

int diff(const DiffOptions& options) {
  if (options.files.size() > 2) {
    throw usage_error("diff compares two files", "leave out the others");
  }
  const bool tensors = names_tensors(options.files.front());
  if (tensors != names_tensors(options.files.back())) {
    throw usage_error("a file of tensors cannot be compared with a run",
                      "give two runs, or two files of tensors");
  }
  for (const auto& [flag, given] :
       {std::pair{"--as", !options.as.empty()}, std::pair{"--ulps", options.ulps > 0.0}}) {
    if (!tensors && given) {
      throw usage_error(std::string(flag) + " is for files of tensors", "leave it out");
    }
  }
  if (!tensors) return diff_runs(options);
  if (!options.lanes.empty()) throw usage_error("--lanes is for runs", "leave it out");
  if (options.files.size() == 1) {
    throw usage_error("diff needs two files of tensors", "add another file");
  }
  std::optional<FloatFormat> format;
  if (!options.as.empty()) {
    format = parse_format(options.as);
    if (!format) {
      throw usage_error("--as: unknown format '" + options.as + "'", format_hint(options.as));
    }
  }
  const TensorsDiff result = diff_tensors(read_tensors(options.files[0]),
                                          read_tensors(options.files[1]), format, options.ulps);
  Json json{{"kind", "tensors"}};
  json.update(tensors_diff_json(result));
  return finish(options, result.same(), tensors_diff_text(result, options.limit), json);
}

}  // namespace

void add_diff(CLI::App& app, Invocation& call) {
  auto options = std::make_shared<DiffOptions>();
  CLI::App* sub = app.add_subcommand("diff", "Compare two runs, two lanes or two files of tensors");
  sub->footer(
      "Example:  halfscope diff old.hscope new.hscope\n"
      "          halfscope diff run.hscope --lanes float32,mixed_float16\n"
      "          halfscope diff a.npz b.npz --as fp16 --ulps 2");
  offer(sub->add_option("file", options->files,
                        "Two run files, one run file with --lanes, or two files *.npy, *.npz or "
                        "*.safetensors")
            ->required()
            ->type_name("FILE")
            ->group(group::kArguments),
        {.files = "*.[hns]*"});
  sub->add_option("--lanes", options->lanes,
                  "Lane of each run to compare [all lanes with the same name]")
      ->type_name("A,B")
      ->group("Comparison");
  offer(sub->add_option("--as", options->as,
                        "Round tensors to this format and compare them there [exact values]")
            ->type_name("FORMAT")
            ->group("Comparison"),
        {.words = format_names()});
  add_number(*sub, "--ulps", options->ulps, 0.0, 1e15,
             "Distance at which elements still count as equal, in ulps of --as or fp32 [0]")
      ->type_name("N")
      ->group("Comparison");
  add_integer(*sub, "--limit", options->limit, 1, 1000000, "Most tensors to list [10]")
      ->group(group::kOutput);
  sub->add_flag("--json", options->json, "Print everything as JSON")->group(group::kOutput);
  sub->add_flag("--quiet", options->quiet, "Print nothing")->group(group::kOutput);
  sub->callback([options, &call] { call.action = [options] { return diff(*options); }; });
}

}  // namespace halfscope
