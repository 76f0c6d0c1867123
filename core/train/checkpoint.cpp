// SPDX-License-Identifier: MIT
#include "core/train/checkpoint.h"

#include <string_view>

#include "core/data/npz.h"
#include "core/error.h"

namespace halfscope {
namespace {

constexpr std::string_view kRun = "run/", kSetup = "run/setup/", kVariable = "/variable/";
constexpr const char* kStep = "run/step";
constexpr const char* kStale = "run/stale_evaluations";

}  // namespace

void save_checkpoint(const std::filesystem::path& file, const Checkpoint& checkpoint) {
  NamedDoubleTensors all;
  const auto put = [&](const std::string& key, double value) { all[key] = {{}, {value}}; };
  put(kStep, static_cast<double>(checkpoint.step));
  put(kStale, static_cast<double>(checkpoint.stale_evaluations));
  for (const auto& [key, value] : checkpoint.setup) put(std::string(kSetup) + key, value);
  for (const auto& [name, lane] : checkpoint.lanes) {
    put(name + "/scale", static_cast<double>(lane.scaler.scale));
    put(name + "/tracker", static_cast<double>(lane.scaler.tracker));
    put(name + "/updates", static_cast<double>(lane.updates));
    put(name + "/best_loss", lane.best_loss);
    for (const auto& [path, tensor] : lane.variables)
      all[name + std::string(kVariable) + path] = tensor;
  }
  write_npz_double(file, all);
}

Checkpoint load_checkpoint(const std::filesystem::path& file) {
  const NamedDoubleTensors all = read_npz_double(file);
  if (!all.contains(kStep)) {
    throw usage_error(file.string() + " is not a checkpoint",
                      "give a file that --checkpoint has written");
  }
  const auto scalar = [&](const std::string& key) {
    const auto found = all.find(key);
    if (found == all.end() || found->second.data.size() != 1) {
      throw Error(file.string() + ": damaged: " + key + " is missing", "use another checkpoint");
    }
    return found->second.data[0];
  };
  Checkpoint checkpoint;
  checkpoint.step = static_cast<int64_t>(scalar(kStep));
  checkpoint.stale_evaluations = static_cast<int64_t>(scalar(kStale));
  for (const auto& [key, tensor] : all) {
    if (key.starts_with(kSetup)) checkpoint.setup[key.substr(kSetup.size())] = scalar(key);
    if (key.starts_with(kRun)) continue;
    if (const size_t at = key.find(kVariable); at != std::string::npos) {
      checkpoint.lanes[key.substr(0, at)].variables[key.substr(at + kVariable.size())] = tensor;
    } else if (key.ends_with("/scale")) {
      const std::string name = key.substr(0, key.size() - std::string_view("/scale").size());
      LaneCheckpoint& lane = checkpoint.lanes[name];
      lane.scaler = {static_cast<float>(scalar(key)),
                     static_cast<int32_t>(scalar(name + "/tracker"))};
      lane.updates = static_cast<int64_t>(scalar(name + "/updates"));
      lane.best_loss = scalar(name + "/best_loss");
    }
  }
  return checkpoint;
}

}  // namespace halfscope
