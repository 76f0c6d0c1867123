// SPDX-License-Identifier: MIT
#include "core/lab/microscope.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "core/error.h"
#include "core/lab/lane_stations.h"
#include "core/lab/rounding_place.h"
#include "core/numeric/formats/round.h"

namespace halfscope::lab {
namespace {

/// Returns the twin's station to compare with. fp32 reads operands as they are stored, so it has
/// no stations for that.
const Station* twin_station(const std::vector<Station>& twin, const std::string& key) {
  static const std::map<std::string, std::string> kStoredAs{{"read weight", "weight"},
                                                            {"read gradient", "output gradient"}};
  const auto find = [&](const std::string& name) -> const Station* {
    const auto found = std::find_if(twin.begin(), twin.end(),
                                    [&](const Station& each) { return each.key == name; });
    return found == twin.end() ? nullptr : &*found;
  };
  if (const Station* same = find(key)) return same;
  const auto other = kStoredAs.find(key);
  return other == kStoredAs.end() ? nullptr : find(other->second);
}

/// Returns up to 24 binary digits of a fraction below one, without zeros at the end.
std::string digits_of(double fraction) {
  std::string digits;
  while (fraction > 0.0 && digits.size() < 24) {
    fraction *= 2.0;
    digits += fraction >= 1.0 ? '1' : '0';
    if (fraction >= 1.0) fraction -= 1.0;
  }
  return digits;
}

}  // namespace

void describe_rounding(Station& station) {
  station.below = station.above = std::numeric_limits<double>::quiet_NaN();
  const double scaled = station.exact / station.unit;
  if (const auto place = rounding_place(scaled, station.format)) {
    station.below = static_cast<double>(place->below) * station.unit;
    station.above = static_cast<double>(place->above) * station.unit;
    station.kept = place->kept;
    station.dropped = station.rounds ? digits_of(place->fraction) : "";
  } else if (scaled == 0.0) {
    station.below = 0.0;
    station.above = station.format.min_subnormal() * station.unit;
  }
  if (!station.rounds) {
    if (!std::isfinite(station.exact)) station.loss = StationLoss::broken;
    return;
  }
  station.flags = round_to_format(scaled, station.format).flags;
  const double smallest = station.format.min_normal() * station.unit;
  if (!std::isfinite(station.exact)) {
    station.loss = StationLoss::broken;
  } else if ((station.flags & kOverflow) != 0) {
    station.loss = StationLoss::overflow;
  } else if (station.stored == station.exact) {
    station.loss = StationLoss::none;
  } else if (station.stored == 0.0) {
    station.loss = StationLoss::flushed;
  } else if (std::fabs(station.stored) < smallest) {
    station.loss = StationLoss::subnormal;
  } else {
    station.loss = StationLoss::rounded;
  }
}

const char* station_part_name(StationPart part) noexcept {
  constexpr std::array<const char*, 4> kNames{"Forward", "Backward", "Ranks", "Update"};
  return kNames.at(static_cast<size_t>(part));
}

const char* station_loss_name(StationLoss loss) noexcept {
  constexpr std::array<const char*, 8> kNames{"exact",
                                              "rounded",
                                              "subnormal: few bits left",
                                              "underflow to zero",
                                              "overflow",
                                              "lost in the addition",
                                              "infinity or NaN",
                                              "step skipped"};
  return kNames.at(static_cast<size_t>(loss));
}

Microscope follow(const SmallRun& run, const MicroscopePlace& place) {
  Microscope result;
  result.problem = run.problem;
  result.lane = run.lane.steps;
  result.twin = run.twin.steps;
  if (!result.problem.empty()) return result;
  if (run.lane.watched.ranks.empty() || run.twin.watched.ranks.empty()) {
    result.problem = "The run has no such step.";
    return result;
  }
  try {
    result.sample = place.sample >= 0 ? place.sample : largest_sample(run.twin.watched, place);
    result.stations = lane_stations(run.lane.watched, place, result.sample);
    const std::vector<Station> twin = lane_stations(run.twin.watched, place, result.sample);
    const SampleRow of_twin = sample_row(run.twin.watched, place, result.sample);
    for (Station& station : result.stations) {
      const Station* const other = twin_station(twin, station.key);
      if (other != nullptr) station.twin = other->stored * station.twin_factor;
      // Pixels are fp32 numbers, and so are the twin's hidden units.
      if (station.key == "read input" || station.key == "read input back") {
        station.twin = static_cast<double>(of_twin.inputs.at(static_cast<size_t>(place.column)));
      }
    }
    SampleRow row = sample_row(run.lane.watched, place, result.sample);
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
  const WatchedStep& watched = run.lane.watched;
  result.loss_scale = watched.scalars.at(watched.executable->loss_scale);
  return result;
}

Microscope look(const SmallTraining& training, const MicroscopePlace& place,
                const Backend& backend) {
  return follow(train_small(training, place.step, backend), place);
}

const Station* station(const Microscope& microscope, std::string_view key) noexcept {
  for (const Station& each : microscope.stations) {
    if (each.key == key) return &each;
  }
  return nullptr;
}

}  // namespace halfscope::lab
