// SPDX-License-Identifier: MIT
#include "cli/tasks/twin_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "analysis/memory_sink.h"
#include "analysis/proof/twins.h"
#include "analysis/rules/text.h"
#include "cli/args/backends.h"
#include "cli/args/config_file.h"
#include "cli/args/setting.h"
#include "cli/tasks/training.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/stop.h"
#include "core/error.h"
#include "core/ops/dropout.h"
#include "core/plan/plan.h"
#include "core/policy/policy.h"
#include "core/train/trainer.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "twin.json";
constexpr const char* kSchema = "halfscope.twin/1";
constexpr const char* kAgain = "write the folder again with save_twin() of the Python package";
constexpr int64_t kMostSteps = 1'000'000;

/// The flags that a twin may set. Files of others have no effect on its folder.
constexpr std::array kFlags{"--model",    "--data",      "--loss",       "--optimizer",
                            "--batch",    "--steps",     "--no-shuffle", "--frozen",
                            "--schedule", "--clip-norm", "--param-group"};
/// Begins a schedule whose rates are in a file.
constexpr std::string_view kRates = "file:";

/// Twins moved by one ulp show how sensitive the training is. PyTorch sums in another order, which
/// is a few such errors in every operation.
constexpr double kFew = 8.0;
/// Difference of a module's outputs that is not rounding: fp32 sums of one forward pass are a
/// hundred times closer.
constexpr double kOutputGap = 1e-3;
/// Difference that is rounding in any training: 16 fp32 ulps of the loss.
constexpr double kFloor = 0x1p-20;

Error twin_error(const TwinFolder& twin, const std::string& what) {
  return Error(fmt::format("twin '{}': {}", twin.folder, what), kAgain);
}

const Setting* row_of(const std::string& flag) {
  for (const Setting* row : settings_of(kTrain)) {
    if (row->flag == flag) return row;
  }
  return nullptr;
}

/// Returns the path of a file of the twin. Throws Error if it is missing or outside the folder.
std::string file_inside(const TwinFolder& twin, const std::string& name) {
  const fs::path path(name);
  const auto outside = [&] {
    return twin_error(twin, fmt::format("{} names '{}', which is not in the folder", kFile, name));
  };
  if (name.empty() || path.is_absolute()) throw outside();
  std::error_code failed;
  const fs::path whole = fs::path(twin.folder) / path;
  const fs::path base = fs::canonical(twin.folder, failed);
  const fs::path target = failed ? fs::path() : fs::weakly_canonical(whole, failed);
  if (failed) throw twin_error(twin, "cannot read it: " + failed.message());
  if (std::mismatch(base.begin(), base.end(), target.begin(), target.end()).first != base.end()) {
    throw outside();
  }
  if (!fs::is_regular_file(target, failed)) {
    throw twin_error(twin, fmt::format("file not found: {}", name));
  }
  return whole.lexically_normal().string();
}

void read_arguments(TwinFolder& twin, const Json& json) {
  const auto bad = [&](const std::string& what) {
    return twin_error(twin, fmt::format("{}: \"arguments\" {}", kFile, what));
  };
  if (!json.is_array()) throw bad("is not a list");
  for (size_t i = 0; i < json.size(); ++i) {
    if (!json[i].is_string()) throw bad("contains something other than texts");
    const std::string flag = json[i].get<std::string>();
    const Setting* row =
        std::find(kFlags.begin(), kFlags.end(), flag) == kFlags.end() ? nullptr : row_of(flag);
    if (row == nullptr) throw bad("has '" + flag + "', which twins do not set");
    std::string value;
    if (row->value.name != nullptr) {
      if (i + 1 == json.size() || !json[i + 1].is_string()) throw bad(flag + " has no value");
      value = json[++i].get<std::string>();
    }
    if (flag == "--model" || flag == "--data") value = file_inside(twin, value);
    if (flag == "--schedule" && value.starts_with(kRates)) {
      value = std::string(kRates) + file_inside(twin, value.substr(kRates.size()));
    }
    twin.settings.emplace_back(flag, value);
  }
  for (const char* flag : {"--model", "--data", "--loss", "--optimizer", "--batch"}) {
    const auto is_it = [&](const auto& each) { return each.first == flag; };
    if (std::none_of(twin.settings.begin(), twin.settings.end(), is_it)) {
      throw bad(fmt::format("lacks {}", flag));
    }
  }
}

void read_losses(TwinFolder& twin, const Json& json) {
  const bool usable = json.is_array() && !json.empty() && json.size() <= kMostSteps;
  if (!usable) throw twin_error(twin, fmt::format("{} has no losses", kFile));
  for (const Json& each : json) {
    const double loss = each.is_number() ? each.get<double>() : std::nan("");
    if (!std::isfinite(loss)) {
      throw twin_error(twin, fmt::format("{}: the loss of step {} is not a finite number", kFile,
                                         twin.losses.size()));
    }
    twin.losses.push_back(loss);
  }
}

/// Reads what modules wrote, which older twins do not say.
void read_outputs(TwinFolder& twin, const Json& json) {
  const auto bad = [&] {
    return twin_error(twin, fmt::format("{}: \"outputs\" is damaged", kFile));
  };
  if (!json.is_array()) throw bad();
  for (const Json& each : json) {
    if (!each.is_object()) throw bad();
    for (const char* key : {"module", "node"}) {
      if (!each.contains(key) || !each[key].is_string()) throw bad();
    }
    for (const char* key : {"n", "norm", "max_abs"}) {
      if (!each.contains(key) || !each[key].is_number()) throw bad();
    }
    twin.outputs.push_back({.module = each["module"].get<std::string>(),
                            .node = each["node"].get<std::string>(),
                            .n = each["n"].get<int64_t>(),
                            .norm = each["norm"].get<double>(),
                            .max_abs = each["max_abs"].get<double>()});
  }
}

/// Sets what the twin sets, except `--steps` if `settings` has its own.
void add_to(Settings& settings, const TwinFolder& twin) {
  for (const auto& [flag, value] : twin.settings) {
    const Setting* row = row_of(flag);
    if (flag == "--steps" && settings.is_given("steps")) continue;
    try {
      row->value.read(settings, flag, value);
    } catch (const Error& error) {
      throw twin_error(twin, error.what());
    }
  }
  for (const auto& [flag, value] : twin.settings) settings.given.insert(row_of(flag)->key());
}

/// Returns the twin's own training.
Settings own_settings(const TwinFolder& twin) {
  Settings settings = default_settings(kTrain);
  add_to(settings, twin);
  settings.steps = static_cast<int64_t>(twin.losses.size());
  return settings;
}

/// How far the twins of HalfScope's float32 moved up to a step.
double moved(const Twins& twins, size_t step) {
  double most = 0.0;
  for (const std::vector<StepRow>& rows : twins.moved) {
    if (step < rows.size()) {
      most = std::max(most, std::fabs(rows[step].loss - twins.reference[step].loss));
    }
  }
  return most;
}

bool differs(double own, double theirs) {
  return !(std::fabs(own - theirs) <= kOutputGap * std::fabs(theirs));
}

/// Trains one step of float32 and returns a sentence about the first module whose outputs differ
/// from PyTorch's; "" if the twin does not say what they were.
std::string first_difference(const TwinFolder& twin, TrainConfig config, const Dataset& data,
                             const Backend* backend) {
  if (twin.outputs.empty()) return "";
  config.steps = 1;
  config.every = 1;
  config.evaluate = false;
  config.errors.enabled = false;
  config.lanes = {{.plan = *preset_plan("float32"), .scaler = {}, .backend = backend}};
  MemorySink sink;
  Trainer trainer(config, data);
  sink.begin(trainer.describe());
  trainer.run(&sink, {}, catch_stop_signals());
  const LaneInfo& lane = sink.view().lane(0);
  std::map<std::string, int> sites;  // by path, and by the name in the network's file
  for (const SiteInfo& site : lane.sites) {
    if (site.role == Role::activation && site.phase == Phase::forward) {
      sites.emplace(site.path, site.order);
    }
  }
  for (const LayerInfo& layer : lane.layers) {
    const auto found = sites.find(layer.path);
    if (!layer.alias.empty() && found != sites.end()) sites.emplace(layer.alias, found->second);
  }
  int64_t compared = 0;
  for (const TwinOutput& theirs : twin.outputs) {
    // A module that is one node in the file gives the node its name.
    const auto by_node = sites.find(theirs.node);
    const auto found = by_node != sites.end() ? by_node : sites.find(theirs.module);
    if (found == sites.end()) continue;
    const TensorStats& own = sink.view().total(0, found->second);
    const double norm = own.non_finite() > 0 ? std::nan("") : std::sqrt(own.sum_sq);
    ++compared;
    if (own.n == theirs.n && !differs(norm, theirs.norm) &&
        !differs(static_cast<double>(own.max_abs), theirs.max_abs)) {
      continue;
    }
    return fmt::format(
        ". The first module that differs is '{}' (node '{}'): in step 0 its outputs have the "
        "2-norm {:.6g}, and PyTorch's had {:.6g}",
        theirs.module, theirs.node, norm, theirs.norm);
  }
  if (compared == 0) return "";
  return fmt::format(
      ". The outputs of {} agree in step 0, so the cause is in the loss, the gradients or the "
      "optimizer",
      counted(compared, "module"));
}

}  // namespace

std::string TwinFolder::file() const { return (fs::path(folder) / kFile).string(); }

bool is_twin_folder(const std::string& name) {
  std::error_code ignored;
  return fs::is_directory(name, ignored);
}

TwinFolder read_twin(const std::string& folder) {
  TwinFolder twin{.folder = folder};
  const std::string file = TwinFolder{.folder = folder}.file();
  std::error_code failed;
  if (!fs::exists(file, failed)) {
    throw usage_error(
        fmt::format("'{}' is a folder without a {}, so it is not a twin", folder, kFile),
        "name a run file, a network, or a folder that save_twin() wrote");
  }
  const Json json = read_json(file);
  if (!json.is_object()) throw twin_error(twin, fmt::format("{} is not a JSON object", kFile));
  if (!json.contains("schema") || json["schema"] != kSchema) {
    throw twin_error(twin, fmt::format("{} does not say \"schema\": \"{}\"", kFile, kSchema));
  }
  for (const char* key : {"arguments", "losses"}) {
    if (!json.contains(key)) throw twin_error(twin, fmt::format("{} lacks \"{}\"", kFile, key));
  }
  read_arguments(twin, json["arguments"]);
  read_losses(twin, json["losses"]);
  if (json.contains("outputs")) read_outputs(twin, json["outputs"]);
  return twin;
}

Settings twin_settings(const CLI::App& app, const TwinFolder& twin) {
  const auto refuse = [&](const std::string& flag) {
    return usage_error(fmt::format("{} does not go with the twin '{}', which has its own settings",
                                   flag, twin.folder),
                       "leave it out");
  };
  const auto other = [&](const std::string& flag, unsigned commands) {
    const bool own = std::find(kFlags.begin(), kFlags.end(), flag) != kFlags.end();
    const bool sets = std::any_of(twin.settings.begin(), twin.settings.end(),
                                  [&](const auto& each) { return each.first == flag; });
    const bool open = flag == "--steps" || flag == "--frozen" || (flag == "--clip-norm" && !sets);
    return commands == kRun || flag == "--config" || flag == "--lr" || (own && !open);
  };
  if (const std::optional<std::string> flag = given_recording_flag(app, other)) {
    throw refuse(*flag);
  }
  Settings settings = read_recording_settings(app, kTrain, "");
  add_to(settings, twin);
  return settings;
}

std::string TwinMatch::text() const {
  std::string text = fmt::format("twin: HalfScope repeats PyTorch's {} fp32 losses{} ", steps,
                                 dropouts > 0 ? " without dropout" : "");
  if (bitwise) {
    text += "bit for bit";
  } else {
    text += fmt::format("within rounding: they differ by at most {:.2g}, and {:.2g} is allowed",
                        largest, allowed);
  }
  if (dropouts > 0) text += ". Plans are judged with dropout";
  return text;
}

Json TwinMatch::json() const {
  return Json{{"repeats", bitwise ? "bitwise" : "rounding"},
              {"steps", steps},
              {"largest_difference", largest},
              {"allowed_difference", allowed},
              {"dropouts", dropouts}};
}

TwinMatch repeat_twin(const TwinFolder& twin, bool quiet) {
  const Settings settings = own_settings(twin);
  TrainConfig config = train_config(settings);
  const Dataset data = load_training_data(settings);
  attach_network(config, settings, data);
  TwinMatch match{.steps = settings.steps};
  config.build = [build = config.build, &match](int64_t batch) {
    Model network = build(batch);
    match.dropouts = switch_dropout_off(network.graph);
    return network;
  };
  TwinRequest request{.training = config, .plan = *preset_plan("float32")};
  request.backend = &backend_for(request.plan, settings.backend);
  RunInfo shown;
  shown.lanes.emplace_back().name = "repeating PyTorch's losses";
  std::optional<ProgressLine> line(std::in_place, settings.steps, shown, quiet);
  const auto progress = [&](const std::string&, int, const StepRow& row) { (*line)({row}); };
  const std::atomic<bool>& stop = catch_stop_signals();
  const std::optional<Twins> twins = train_twins(request, data, progress, stop);
  line.reset();
  if (!twins) throw Error("stopped before the twin was repeated");

  double spread = 0.0;
  for (size_t i = 0; i < twin.losses.size(); ++i) {
    const double wanted = twin.losses[i];
    const double got = i < twins->reference.size() ? twins->reference[i].loss : std::nan("");
    if (static_cast<float>(got) == static_cast<float>(wanted)) continue;
    match.bitwise = false;
    spread = std::max(spread, moved(*twins, i));
    const double gap = std::fabs(got - wanted), size = std::max(std::fabs(wanted), 1e-30);
    const double allowed = kFew * spread + kFloor * std::max(std::fabs(wanted), twin.losses[0]);
    if (!(gap <= allowed)) {
      throw Error(
          fmt::format("twin '{}': at step {} the fp32 loss is {:.9g}, but PyTorch's was {:.9g}; "
                      "rounding explains a difference of {:.2g}{}",
                      twin.folder, i, got, wanted, allowed,
                      first_difference(twin, config, data, request.backend)),
          "this is another training, so plans are not judged on it. If no file was changed, "
          "compare halfscope inspect of the network with your model");
    }
    match.largest = std::max(match.largest, gap / size);
    match.allowed = std::max(match.allowed, allowed / size);
  }
  return match;
}

}  // namespace halfscope
