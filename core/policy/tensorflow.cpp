// SPDX-License-Identifier: MIT
// TensorFlow's automatic mixed precision as presets. They are made for one network: the pass
// decides node by node (core/policy/grappler).
#include "core/policy/frameworks.h"
#include "core/policy/grappler/training_graph.h"

namespace halfscope {

std::vector<Preset> tensorflow_presets() {
  using grappler::AmpMode;
  const auto row = [](const char* name, const char* summary, AmpMode mode) {
    return Preset{.info = {name, "TensorFlow", summary, true, "tf-keras"},
                  .make_for = [mode](const Model& net) {
                    grappler::AmpOptions options;
                    options.mode = mode;
                    if (!options.on_gpu()) options.compute_capability = 0;
                    return grappler::tf_amp_plan(net, options);
                  }};
  };
  return {row("tf-amp", "the graph rewrite auto_mixed_precision on a GPU, in fp16",
              AmpMode::cuda_float16),
          row("tf-amp-bf16", "the graph rewrite auto_mixed_precision_onednn_bfloat16 on a CPU",
              AmpMode::cpu_bfloat16)};
}

}  // namespace halfscope
