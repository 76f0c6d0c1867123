// SPDX-License-Identifier: MIT
#include "core/lab/microscope.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "core/error.h"
#include "core/lab/lane_stations.h"

namespace halfscope::lab {
namespace {

/// Returns the twin's station to compare with. fp32 reads operands as they are stored, so it has
/// no stations for that.
const Station* twin_station(const std::vector<Station>& twin, const std::string& key) {
  static const std::map<std::string, std::string> kStoredAs{
      {"read weight", "weight"}, {"read gradient", "output gradient"}};
  const auto find = [&](const std::string& name) -> const Station* {
    const auto found = std::find_if(twin.begin(), twin.end(),
                                    [&](const Station& each) { return each.key == name; });
    return found == twin.end() ? nullptr : &*found;
  };
  if (const Station* same = find(key)) return same;
  const auto other = kStoredAs.find(key);
  return other == kStoredAs.end() ? nullptr : find(other->second);
}

}  // namespace

const char* station_part_name(StationPart part) noexcept {
  constexpr std::array<const char*, 4> kNames{"Forward", "Backward", "Ranks", "Update"};
  return kNames.at(static_cast<size_t>(part));
}

const char* station_loss_name(StationLoss loss) noexcept {
  constexpr std::array<const char*, 7> kNames{"exact",
                                              "rounded",
                                              "subnormal: few bits left",
                                              "underflow to zero",
                                              "overflow",
                                              "lost in the addition",
                                              "step skipped"};
  return kNames.at(static_cast<size_t>(loss));
}

Microscope look(const SmallTraining& training, const MicroscopePlace& place,
                const Backend& backend) {
  SmallRun run = train_small(training, place.step, backend);
  Microscope result;
  result.problem = std::move(run.problem);
  result.lane = std::move(run.lane.steps);
  result.twin = std::move(run.twin.steps);
  if (!result.problem.empty()) return result;
  if (run.lane.watched.ranks.empty() || run.twin.watched.ranks.empty()) {
    result.problem = "The run has no step " + std::to_string(place.step) + ".";
    return result;
  }
  try {
    result.sample =
        place.sample >= 0 ? place.sample : largest_sample(run.twin.watched, place);
    result.stations = lane_stations(run.lane.watched, place, result.sample);
    const std::vector<Station> twin = lane_stations(run.twin.watched, place, result.sample);
    SampleRow row = sample_row(run.lane.watched, place, result.sample);
    for (Station& station : result.stations) {
      if (const Station* other = twin_station(twin, station.key)) {
        station.twin = other->stored * station.twin_factor;
      } else {
        station.twin = std::numeric_limits<double>::quiet_NaN();
      }
      // The input is the same in both lanes for pixels; fp32 reads it as it is.
      if (station.key.starts_with("read input") && !station.key.ends_with("scale")) {
        const SampleRow of_twin = sample_row(run.twin.watched, place, result.sample);
        station.twin = static_cast<double>(of_twin.inputs.at(static_cast<size_t>(place.column)));
      }
    }
    result.rank = row.rank;
    result.pixels = std::move(row.pixels);
    result.inputs = std::move(row.inputs);
    result.weights = std::move(row.weights);
  } catch (const Error& error) {
    result.problem = error.what();
    return result;
  }
  const size_t sample = static_cast<size_t>(run.samples.at(static_cast<size_t>(result.sample)));
  result.label = small_digits().train.arrays.at(1).integers.at(sample);
  result.skipped = !run.lane.watched.updated;
  result.loss_scale = result.lane.at(static_cast<size_t>(place.step)).loss_scale;
  return result;
}

const Station* station(const Microscope& microscope, std::string_view key) noexcept {
  for (const Station& each : microscope.stations) {
    if (each.key == key) return &each;
  }
  return nullptr;
}

}  // namespace halfscope::lab
