// SPDX-License-Identifier: MIT
// A make-believe training run for the tests of rules and reports: a small convolution net whose
// tensors are log-normal with a magnitude per layer, really rounded and really counted, with a
// real loss scaler. What is wrong with a run is thus known by construction.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/run_view.h"

namespace halfscope::test {

struct LayerSpec {
  std::string path;
  std::string op;
  std::vector<std::string> inputs;
  bool weights = false;
  double activation = 0.0;  ///< log2 of the median magnitude of its output
  double gradient = -12.0;  ///< the same of its unscaled gradients
  bool fp32 = false;        ///< like the loss in the mixed presets
  bool follows = false;
};

struct LaneSpec {
  std::string name = "mixed_float16";
  std::string backend = "emulated";
  FloatFormat format = kFp16;
  FloatFormat storage = kFp32;
  double loss_scale = 65536.0;
  bool dynamic = true;    ///< halves when a gradient is not finite
  double update = -12.0;  ///< log2 of the median update, at weights around 1
  std::vector<std::string> keep_fp32{};
  /// log2 of the median of the optimizer's state ("weight_adam_v"); unset: no state.
  std::optional<double> state{};
  double late_update = update;  ///< in the second half of the run
};

struct RunSpec {
  std::vector<LayerSpec> layers;
  std::vector<LaneSpec> lanes;
  int steps = 20;
  int elements = 512;   ///< per tensor
  double spread = 1.5;  ///< standard deviation of log2 of the magnitudes
  bool evaluate = true;
  bool nan_from_the_start = false;  ///< the data contain NaN
};

/// conv1 relu1 pool1 conv2 rescale2 relu2 fc1 relu3 fc2 loss.
std::vector<LayerSpec> lenet_layers();
LayerSpec& layer_of(RunSpec& spec, const std::string& path);

/// Lanes float32 and mixed_float16 over lenet_layers(): healthy unless changed.
RunSpec healthy_spec();
/// conv2's output around 2^17: fp16 overflows in every step.
RunSpec hot_spec();
/// Gradients of fc2 too large and those of conv1 too small for any common scale.
RunSpec no_scale_spec();

RunView make_run(const RunSpec& spec);

}  // namespace halfscope::test
