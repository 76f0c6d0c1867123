// SPDX-License-Identifier: MIT
// Networks that benchmarks train, with random data of the right shape and an optimizer:
//   mlp:A-B-...-Z, lenet, resnet20   the built-in ones, for 1x28x28 images; batch 512, SGD
//   resnet50[:image=N:classes=N:width=N:depth=N]
//       torchvision's ResNet-50 (v1.5: a block's stride is in its 3x3 convolution); batch 256, SGD
//       with momentum. `width` is the channels of the first stage, `depth` the most blocks a stage.
//   gpt2[:layers=N:width=N:heads=N:sequence=N:vocabulary=N]
//       GPT-2 small (Radford et al. 2019) without dropout; the head shares the token table; cross
//       entropy over all tokens; batch 8, AdamW. Attention is written as operators.
// bench/torch_gpu_step.py has the same networks for PyTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/data/dataset.h"
#include "core/graph/model.h"
#include "core/lower/optimizer.h"

namespace halfscope {

struct Workload {
  std::string name;
  int64_t batch = 0;   ///< usual number of samples in a step
  bool large = false;  ///< a step takes long, so benchmarks run fewer
  Optimizer optimizer;
  std::function<Model(int64_t batch)> build;
  std::function<Dataset(int64_t samples)> data;  ///< random samples
};

/// Returns the workload of that name. Throws Error (usage) if it is unknown.
Workload workload(const std::string& name);

}  // namespace halfscope
