// SPDX-License-Identifier: MIT
// Networks that benchmarks train, with random data of the right shape and an optimizer:
//   others   the built-in ones, for 1x28x28 images; batch 512, SGD
//   resnet50[:image=N:classes=N:width=N:depth=N]
//       the built-in one, with other sizes if asked for; batch 256, SGD with momentum. `width` is
//       the channels of the first stage, `depth` the most blocks a stage.
//   gpt2[:layers=N:width=N:heads=N:sequence=N:vocabulary=N]
//       the built-in gpt, by default with the sizes of GPT-2 small (Radford et al. 2019); batch 8,
//       AdamW
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
