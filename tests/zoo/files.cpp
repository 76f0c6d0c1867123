// SPDX-License-Identifier: MIT
#include "tests/zoo/files.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/args/lanes.h"
#include "cli/args/network.h"
#include "cli/tasks/run_input.h"
#include "cli/tasks/training.h"

namespace halfscope::zoo {
namespace {

namespace fs = std::filesystem;
using CaseJson = nlohmann::json;

std::vector<std::string> texts(const CaseJson& json, const char* key) {
  return json.contains(key) ? json[key].get<std::vector<std::string>>()
                            : std::vector<std::string>{};
}

/// The settings of the case with that lane beside float32.
Settings settings_of(const fs::path& folder, const CaseJson& json, const std::string& lane) {
  const bool trains = json.at("kind") == "train";
  std::istringstream stream(lane);
  std::string plan, word;
  stream >> plan;
  const fs::path file = folder.parent_path() / "plans" / (plan + ".json");
  const std::string named = fs::exists(file) ? file.string() : plan;
  std::vector<std::string> words;
  if (trains) {
    words = {"--model", (folder / "net.onnx").string(), "--loss", json.at("loss"),
             "--data",  (folder / "data.npz").string()};
    for (const std::string& flag : texts(json, "flags")) words.push_back(flag);
    if (json.contains("scale")) words.insert(words.end(), {"--loss-scale", json["scale"]});
  } else {
    words = {(folder / "net.onnx").string(), "--input", (folder / "data.npz").string()};
  }
  words.insert(words.end(), {"--lanes", "float32," + named});
  while (stream >> word) words.push_back(word);
  return parse_settings(trains ? kTrain : kRun, words);
}

Setup setup_of(const Settings& settings) {
  Setup setup;
  setup.trains = settings.command == kTrain;
  if (!setup.trains) {
    NetworkOptions wanted = network_options(settings);
    wanted.quiet = true;
    setup.data = read_inputs(settings.inputs);
    describe_samples(setup.data, wanted);
    wanted.batch = std::min<int64_t>(128, setup.data.test.size());
    setup.model = load_network_file(settings.model, wanted).model;
    return setup;
  }
  setup.train = train_config(settings);
  setup.data = load_training_data(settings);
  attach_network(setup.train, settings, setup.data);
  setup.model = setup.train.build(setup.train.batch / setup.train.micro_batches);
  setup.train.sum_format = setup.train.state_format = std::nullopt;
  if (setup.train.average)
    setup.train.average->format = setup.train.average->compute = std::nullopt;
  return setup;
}

LaneChoice lane_of_file(const Settings& settings) {
  const LaneConfig lane = lanes_of(settings).at(1);
  LaneChoice choice{.plan = lane.plan, .scaler = lane.scaler};
  choice.sum_format = settings.accumulate_grads;
  choice.state_format = settings.optimizer_state;
  return choice;
}

/// The nodes that the file blames, and how many changes it takes.
Labels labels_of(const CaseJson& json) {
  Labels labels;
  const CaseJson& names = json.at("labels");
  for (const char* key : {"root", "root2", "layer"}) {
    for (const std::string& name : texts(names, key)) labels.root.push_back(name);
  }
  labels.decoys = texts(names, "decoy");
  for (int i = 0; i < json.value("min_set", 1); ++i) {
    labels.fix.add(Change{.kind = FixKind::operator_fp32, .path = std::to_string(i)});
  }
  return labels;
}

Case file_case(const fs::path& folder) {
  std::ifstream stream(folder / "case.json");
  const CaseJson json = CaseJson::parse(stream);
  Case result;
  result.id = folder.filename().string();
  result.what = "file";
  result.fails = !json.value("healthy", false);
  result.right = texts(json, "expert");
  result.plain = texts(json, "lanes");
  const bool trains = json.at("kind") == "train",
             averages = json.dump().find("\"--ema\"") != std::string::npos;
  if (trains) {
    result.measure = !result.fails ? Measure::loss
                     : averages    ? Measure::averages
                                   : Measure::weights;
  }
  if (!result.fails) {  // a control has no plan of the right kind
    result.plain.insert(result.plain.end(), result.right.begin(), result.right.end());
    result.right.clear();
  }
  result.make = [folder, json] {
    Setup setup = setup_of(settings_of(folder, json, "float16"));
    setup.labels = labels_of(json);
    return setup;
  };
  result.lane = [folder, json](const std::string& lane) {
    return lane_of_file(settings_of(folder, json, lane));
  };
  return result;
}

}  // namespace

std::vector<Case> file_cases(const fs::path& folder) {
  std::vector<fs::path> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (fs::exists(entry.path() / "case.json")) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  std::vector<Case> cases;
  for (const fs::path& each : folders) cases.push_back(file_case(each));
  return cases;
}

}  // namespace halfscope::zoo
