// SPDX-License-Identifier: MIT
// Names of recorded tensors in sentences, the same in rules and in proofs.
#pragma once

#include <string>

#include "analysis/rules/lane_facts.h"

namespace halfscope {

/// The user's name for a site, and the word for its values: "conv2", "outputs".
struct Subject {
  std::string name;
  const char* values;
};

Subject subject_of(const SiteInfo& site);

/// Returns "the code between conv2 and fc1", or "the code before fc1", of a node that is a
/// function.
std::string code_words(const LaneFacts& lane, int node);

/// Returns how the framework of a captured lane casts to the format of its layers: ".half()".
std::string cast_call(const LaneInfo& lane);

/// Returns how to compute that code in fp32, as sentences for PyTorch.
std::string code_advice(const LaneFacts& lane, int node);

/// Returns how to compute the loss in fp32, as a sentence for PyTorch; "" in full precision.
std::string loss_advice(const LaneFacts& lane);

/// Returns how to get loss scaling that adapts itself. PyTorch's scaler refuses fp16 weights.
std::string scaling_advice(const LaneFacts& lane);

/// Returns "conv2 overflows fp16: 22% of its outputs are larger than 65504", over the whole run.
std::string overflow_text(const LaneFacts& lane, const SiteInfo& site);

}  // namespace halfscope
