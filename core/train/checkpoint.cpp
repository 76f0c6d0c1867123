// SPDX-License-Identifier: MIT
#include "core/train/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "core/data/npz.h"
#include "core/error.h"

namespace halfscope {
namespace {

// Lane names contain no comma (core/policy/plan_json.cpp), so a comma can end them.
constexpr std::string_view kLane = "lane,", kSetup = "setup,";
constexpr std::string_view kVariable = "variable,";
constexpr const char* kStep = "step";
constexpr const char* kStale = "stale_evaluations";
constexpr double kLargestCount = 0x1p53;

}  // namespace

void save_checkpoint(const std::filesystem::path& file, const Checkpoint& checkpoint) {
  NamedDoubleTensors all;
  const auto put = [&](const std::string& key, double value) { all[key] = {{}, {value}}; };
  put(kStep, static_cast<double>(checkpoint.step));
  put(kStale, static_cast<double>(checkpoint.stale_evaluations));
  for (const auto& [key, value] : checkpoint.setup) put(std::string(kSetup) + key, value);
  for (const auto& [name, lane] : checkpoint.lanes) {
    const std::string prefix = std::string(kLane) + name + ",";
    put(prefix + "scale", lane.scaler.scale);
    put(prefix + "tracker", static_cast<double>(lane.scaler.tracker));
    put(prefix + "updates", static_cast<double>(lane.updates));
    if (lane.scaler.iteration > 0) {  // DeepSpeed and apex_fp16_utils
      put(prefix + "hysteresis", static_cast<double>(lane.scaler.hysteresis));
      put(prefix + "iteration", static_cast<double>(lane.scaler.iteration));
      put(prefix + "last_overflow", static_cast<double>(lane.scaler.last_overflow));
    }
    put(prefix + "best_loss", lane.best_loss);
    for (const auto& [path, tensor] : lane.variables)
      all[prefix + std::string(kVariable) + path] = tensor;
  }
  write_npz_double(file, all);
}

Checkpoint load_checkpoint(const std::filesystem::path& file) {
  const NamedDoubleTensors all = read_npz_double(file);
  if (!all.contains(kStep)) {
    throw usage_error("'" + file.string() + "' is not a checkpoint",
                      "pass a file that --checkpoint wrote");
  }
  const auto damaged = [&](const std::string& what) {
    return Error("checkpoint '" + file.string() + "' is damaged: " + what,
                 "use another checkpoint");
  };
  const auto scalar = [&](const std::string& key) {
    const auto found = all.find(key);
    if (found == all.end() || found->second.data.size() != 1) throw damaged(key + " is missing");
    return found->second.data[0];
  };
  const auto count = [&](const std::string& key) {
    const double value = scalar(key);
    if (!(value >= 0.0 && value <= kLargestCount) || value != std::floor(value)) {
      throw damaged(key + " is not a count");
    }
    return static_cast<int64_t>(value);
  };
  const auto small = [&](const std::string& key) {
    const int64_t value = count(key);
    if (value > std::numeric_limits<int32_t>::max()) throw damaged(key + " is not a count");
    return static_cast<int32_t>(value);
  };
  Checkpoint checkpoint;
  checkpoint.step = count(kStep);
  checkpoint.stale_evaluations = count(kStale);
  for (const auto& [key, tensor] : all) {
    if (key.starts_with(kSetup)) checkpoint.setup[key.substr(kSetup.size())] = scalar(key);
    if (!key.starts_with(kLane)) continue;
    const std::string rest = key.substr(kLane.size());
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string name = rest.substr(0, comma);
    const auto [place, is_new] = checkpoint.lanes.try_emplace(name);
    LaneCheckpoint& lane = place->second;
    if (is_new) {
      const std::string prefix = std::string(kLane) + name + ",";
      const double scale = scalar(prefix + "scale");
      if (!(scale >= 0.0)) throw damaged(prefix + "scale is not a loss scale");
      lane.scaler.scale = scale;
      lane.scaler.tracker = small(prefix + "tracker");
      if (all.contains(prefix + "iteration")) {
        lane.scaler.hysteresis = small(prefix + "hysteresis");
        lane.scaler.iteration = count(prefix + "iteration");
        // -1 until a step has overflowed
        const std::string last = prefix + "last_overflow";
        lane.scaler.last_overflow = scalar(last) == -1.0 ? -1 : count(last);
      }
      lane.updates = count(prefix + "updates");
      lane.best_loss = scalar(prefix + "best_loss");
    }
    const std::string what = rest.substr(std::min(comma + 1, rest.size()));
    if (what.starts_with(kVariable)) lane.variables[what.substr(kVariable.size())] = tensor;
  }
  return checkpoint;
}

}  // namespace halfscope
