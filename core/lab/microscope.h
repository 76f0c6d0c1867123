// SPDX-License-Identifier: MIT
// The training step under a microscope: one weight of a small network on its way through one step,
// from station to station. The engine computed all stored values. What lies between them is
// computed here again from the engine's tensors, in the same order and with the same rounding, so
// that the exact values before each rounding can be shown.
//
//   weight -> as read -> product -> accumulator -> output -> loss -> scaled loss -> gradients ->
//   product -> accumulator -> stored gradient -> ranks -> unscaled -> Adam m, v -> update -> weight
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/lab/small_training.h"
#include "core/numeric/formats/float_format.h"

namespace halfscope::lab {

/// The weight, the step and the sample that are followed.
struct MicroscopePlace {
  int layer = 2;       ///< 1 or 2
  int64_t row = 3;     ///< output unit
  int64_t column = 5;  ///< input of the layer
  int64_t step = 20;
  int64_t sample = -1;  ///< in the batch; -1: the one with the largest share in the gradient

  friend bool operator==(const MicroscopePlace&, const MicroscopePlace&) = default;
};

enum class StationPart : uint8_t { forward, backward, ranks, update };
const char* station_part_name(StationPart part) noexcept;  // "Forward"

/// Why information is lost at a station.
enum class StationLoss : uint8_t {
  none,       ///< exact, or no rounding
  rounded,    ///< the usual rounding error
  subnormal,  ///< rounded below the smallest normal number, where bits are missing
  flushed,    ///< became zero
  overflow,   ///< beyond the largest number
  swamped,    ///< an addition that changed nothing
  broken,     ///< infinity or NaN arrived here
  skipped,    ///< the step was skipped: no update
};
const char* station_loss_name(StationLoss loss) noexcept;  // "underflow to zero"
/// Returns whether this is more than a rounding error.
constexpr bool is_harm(StationLoss loss) noexcept { return loss > StationLoss::rounded; }

struct Station {
  std::string key{};   ///< "weight", "sum", "hop 3"
  std::string name{};  ///< "Accumulator"
  std::string text{};  ///< what happens, in plain sentences
  StationPart part = StationPart::forward;
  FloatFormat format = kFp32;  ///< of `stored`
  /// The format's values are multiplied by this: the scale of a block.
  double unit = 1.0;
  double exact = 0.0;   ///< before rounding
  double stored = 0.0;  ///< by the engine, or computed here where the engine stores nothing
  /// The same, computed here from the station's operands; equals `stored`.
  double recomputed = 0.0;
  bool rounds = true;     ///< false: the value passes unchanged
  bool by_engine = true;  ///< `stored` was read from the engine
  /// Values of the format on both sides of `exact`; NaN beyond the largest, and where nothing
  /// is rounded.
  double below = 0.0, above = 0.0;
  std::string kept{};     ///< significand bits that fit, "1.0110011010"
  std::string dropped{};  ///< the ones after them, up to 24, without zeros at the end
  uint8_t flags = 0;      ///< RoundFlags of the rounding
  StationLoss loss = StationLoss::none;
  /// fp32's value here, times `twin_factor`; NaN if fp32 has no such station.
  double twin = std::numeric_limits<double>::quiet_NaN();
  double twin_factor = 1.0;  ///< the loss scale, where gradients carry it
  double previous = 0.0;     ///< additions: the larger addend, before this station
};

struct Microscope {
  std::string problem{};  ///< why there is nothing; empty if there is
  std::vector<SmallStep> lane{}, twin{};
  std::vector<Station> stations{};
  // The place in the network and in the batch.
  int64_t sample = 0;  ///< in the batch
  int64_t rank = 0;    ///< that computes it
  int64_t label = 0;
  std::vector<float> pixels{};   ///< of the sample
  std::vector<float> inputs{};   ///< of the layer, for this sample
  std::vector<float> weights{};  ///< of this output unit, before the step
  bool skipped = false;
  double loss_scale = 1.0;
};

/// Follows a weight through the watched step of a run. Uses place.layer, row, column and sample.
Microscope follow(const SmallRun& run, const MicroscopePlace& place);
/// Trains and follows. `backend` computes both lanes.
Microscope look(const SmallTraining& training, const MicroscopePlace& place,
                const Backend& backend);

/// Returns the station with this key, or null.
const Station* station(const Microscope& microscope, std::string_view key) noexcept;

}  // namespace halfscope::lab
