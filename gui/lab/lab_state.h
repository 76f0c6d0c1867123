// SPDX-License-Identifier: MIT
// The choices of the user in tabs of the float lab that have more than a few fields.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "core/lab/block_view.h"
#include "core/lab/stochastic_drops.h"
#include "core/lab/walk.h"

namespace halfscope::gui {

struct BlocksState {
  std::array<float, lab::kMostBlockValues> values = lab::block_example(lab::BlockExample::normal);
  std::string format = "mxfp4";
  lab::BlockScaleRule rule = lab::BlockScaleRule::floor;
  int selected = 3;
  bool logarithmic = false;
  double others =
      0.0;            ///< nvfp4: log2 of the rest of the tensor's largest magnitude, to the block's
  float span = 0.0f;  ///< largest magnitude of the chart; kept while a bar is dragged
  std::string entry{};  ///< the selected value as typed
};

struct DropsState {
  std::string value = "2048.75";
  uint64_t seed = 1;
  lab::StochasticDrops drops{};
  std::string drops_of{};
  /// Balls that have left the top, with the fraction of the next; drops.count() have landed.
  double released = 0.0, per_second = 0.0;
  int64_t wanted = 0;
};

struct WalkState {
  enum class Kind : uint8_t { fma, tensor_core, dot };
  Kind kind = Kind::fma;
  std::string a = "1.0009765625", b = "1.0009765625", c = "-1.001953125";
  std::string list_a = "4096,1,0.5,3x0.0003", list_b = "6x1", start = "0";
  std::string arch = "h100-wgmma", accumulation = "fp32";
  int step = 0;
  int first = 0;  ///< step to show after the next edit
  bool playing = false;
  double clock = 0.0;  ///< seconds since the last step while playing
  lab::Walk walk{};
  std::string walk_of{};
};

}  // namespace halfscope::gui
