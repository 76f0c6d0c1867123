// SPDX-License-Identifier: MIT
#include "cli/args/tf_amp.h"

#include <cstdlib>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/near_miss.h"

namespace halfscope {

bool is_tf_amp(const std::string& plan) { return plan == "tf-amp" || plan == "tf-amp-bf16"; }

grappler::AmpOptions amp_options(const std::string& plan) {
  if (!is_tf_amp(plan)) {
    throw usage_error("a TensorFlow graph has no plan '" + plan + "'",
                      did_you_mean(plan, std::vector<std::string>{"tf-amp", "tf-amp-bf16"},
                                   "use tf-amp or tf-amp-bf16"));
  }
  grappler::AmpOptions options;
  if (plan == "tf-amp-bf16") {
    options.mode = grappler::AmpMode::cpu_bfloat16;
    options.compute_capability = 0;
  }
  read_environment(options, [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
  return options;
}

}  // namespace halfscope
