// SPDX-License-Identifier: MIT
// `halfscope inspect`: one line per lane of run files; of an ONNX file what would train; of files
// of tensors what they would lose in reduced formats.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "analysis/run_view.h"
#include "cli/args/arguments.h"
#include "cli/args/config_file.h"
#include "cli/args/network.h"
#include "cli/args/setting.h"
#include "cli/commands/command.h"
#include "cli/tasks/inspect_ranks.h"
#include "cli/tasks/inspect_tensors.h"
#include "cli/terminal/lane_summary.h"
#include "cli/terminal/network_summary.h"
#include "core/numeric/formats/float_format.h"

namespace halfscope {
namespace {

Json run_json(const std::string& file, const RunView& run) {
  const RunInfo& info = run.info();
  Json json;
  json["run"] = file;
  json["version"] = info.version;
  json["model"] = info.model;
  json["data"] = info.data;
  json["optimizer"] = info.optimizer;
  json["batch"] = info.batch;
  json["seed"] = info.seed;
  json["status"] = status_name(run.status());
  json["steps_planned"] = info.steps_planned;
  json["settings"] = info.settings;
  json["command"] = info.command;
  json["lanes"] = to_json(lane_summaries(run));
  return json;
}

/// Prints which weights of the file would train. Trains nothing.
int inspect_network(const std::string& file, const Settings& settings) {
  NetworkOptions wanted = network_options(settings);
  wanted.batch = std::max<int64_t>(settings.batch, 1);
  wanted.batch_given = settings.batch > 0;
  wanted.quiet = true;
  const OnnxImport import = load_network_file(file, wanted);
  const NetworkSummary summary = summary_of(import, file, samples_at_once(import));
  if (!settings.json) {
    write_out(listing_text(summary));
    return 0;
  }
  Json nodes = Json::array();
  for (const Node& node : import.model.graph.nodes()) {
    nodes.push_back({{"path", node.path},
                     {"op", node.op},
                     {"file_name", node.alias.empty() ? node.path : node.alias}});
  }
  Json json{{"schema", "halfscope.network/1"}, {"version", kVersion}};
  json.update(listing_json(summary));
  json["nodes"] = nodes;
  write_json(json);
  return 0;
}

/// Returns the steps done, of those planned if the run says how many. A folder of tensors may leave
/// steps out, and a program may train longer than it said.
std::string steps_text(const LaneSummary& lane, int64_t planned) {
  if (planned <= 0) return std::to_string(lane.steps_done());
  return fmt::format("{}/{}", std::min(lane.steps_done(), std::max(planned, lane.steps)), planned);
}

int inspect_runs(const std::vector<std::string>& files, const Settings& settings, bool by_ranks) {
  std::string reductions;
  std::vector<std::vector<std::string>> rows{
      {"run", "model", "data", "lane", "status", "steps", "last loss", "skipped", "test acc"}};
  Json runs = Json::array();
  for (const std::string& file : files) {
    const RunView run = RunView::open(file);
    const RunInfo& info = run.info();
    if (settings.json) {
      runs.push_back(run_json(file, run));
      if (by_ranks) runs.back()["reductions"] = reductions_json(run);
      continue;
    }
    if (by_ranks) {
      reductions += reductions_text(file, run);
      continue;
    }
    for (const LaneSummary& lane : lane_summaries(run)) {
      rows.push_back({file, info.model, info.data, lane.name,
                      lane.lost ? "lost" : status_name(run.status()),
                      steps_text(lane, info.steps_planned), lane.last_loss_text(),
                      std::to_string(lane.skipped), lane.accuracy_text()});
    }
  }
  if (settings.json) {
    write_json(Json{{"schema", "halfscope.runs/1"}, {"version", kVersion}, {"runs", runs}});
  } else if (by_ranks) {
    write_out(reductions);
  } else {
    write_out(aligned(rows, {false, false, false, false, false, true, true, true, true}));
  }
  return 0;
}

void refuse_network_flags(const Settings& settings) {
  for (const char* key : {"batch", "dimension", "trainable", "frozen", "untie"}) {
    if (!settings.is_given(key)) continue;
    throw usage_error(std::string("--") + key + " is for ONNX files", "leave it out");
  }
}

int inspect(const CLI::App& app, const std::vector<std::string>& files, const Settings& settings,
            const InspectOptions& options, bool by_ranks) {
  const bool only_runs = std::none_of(files.begin(), files.end(), [](const std::string& file) {
    return is_tensor_path(file) || is_network_file(file);
  });
  if (by_ranks && !only_runs) throw usage_error("--by-ranks is for run files", "leave it out");
  const auto tensors = std::find_if(files.begin(), files.end(), is_tensor_path);
  if (tensors != files.end()) {
    const auto other = std::find_if_not(files.begin(), files.end(), is_tensor_path);
    if (other != files.end()) {
      throw usage_error("'" + *other + "' is not a file of tensors, but '" + *tensors + "' is",
                        "inspect them in two commands");
    }
    refuse_network_flags(settings);
    return inspect_tensors(files, options, settings.json);
  }
  for (const char* flag : {"--format", "--top", "--csv", "--threads", "--force"}) {
    if (app.count(flag) == 0) continue;
    throw usage_error(std::string(flag) + " is for .npy, .npz and .safetensors files",
                      "leave it out");
  }
  const auto network = std::find_if(files.begin(), files.end(), is_network_file);
  if (network == files.end()) {
    refuse_network_flags(settings);
    return inspect_runs(files, settings, by_ranks);
  }
  if (files.size() > 1)
    throw usage_error("inspect takes one ONNX file at a time",
                      "run halfscope inspect " + *network + " alone");
  return inspect_network(*network, settings);
}

}  // namespace

void add_inspect(CLI::App& app, Invocation& call) {
  auto files = std::make_shared<std::vector<std::string>>();
  CLI::App* sub = app.add_subcommand(
      "inspect", "List the lanes of runs, the weights of ONNX files, or tensors");
  sub->footer(
      "Example:  halfscope inspect run.hscope hot.hscope\n"
      "          halfscope inspect net.onnx\n"
      "          halfscope inspect model.safetensors --format fp16,bf16 --top 20");
  offer(sub->add_option("run", *files, "Run files, one ONNX file, or files and folders of tensors")
            ->required()
            ->type_name("RUN")
            ->group(group::kArguments),
        {.files = "*.[ho][sn]*[ex]"});
  add_settings(*sub, kInspect);
  auto by_ranks = std::make_shared<bool>(false);
  sub->add_flag("--by-ranks", *by_ranks, "Show errors of gradient sums by number of ranks")
      ->group(group::kOutput);
  auto options = std::make_shared<InspectOptions>();
  constexpr const char* kTensors = "Tensors";
  offer(sub->add_option("--format", options->formats,
                        "Formats to try, separated by commas [fp16,bf16,e4m3fn]")
            ->type_name("LIST")
            ->group(kTensors),
        {.words = format_names(), .list = true});
  sub->add_option_function<std::string>(
         "--top",
         [options](const std::string& text) {
           options->top = static_cast<int>(parse_integer("--top", text, 1, 1'000'000'000));
         },
         "List only the N worst tensors [all]")
      ->type_name("N")
      ->group(kTensors);
  add_integer(*sub, "--threads", options->threads, 1, 1024, "Threads to use [all cores]")
      ->group(kTensors);
  add_output(*sub, "--csv", options->csv, "*.csv", "Write the table of tensors as CSV");
  add_force(*sub, options->force);
  sub->callback([files, options, by_ranks, sub, &call] {
    call.action = [files, options, by_ranks, sub] {
      const Settings settings = read_settings(*sub, kInspect);
      return naming_keys(settings,
                         [&] { return inspect(*sub, *files, settings, *options, *by_ranks); });
    };
  });
}

}  // namespace halfscope
