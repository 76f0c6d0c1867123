// SPDX-License-Identifier: MIT
// The message that tf.keras logs about the GPUs of a machine when a policy is set.
#pragma once

#include <string>
#include <vector>

namespace halfscope {

/// Returns tf.keras's message for a preset of tf.keras and these GPUs, each as NAME:MAJOR.MINOR, or
/// for the GPUs of this machine if none are given. Returns "" for other plans, and where there is
/// no GPU. Throws Error (usage) for a GPU that is written differently.
std::string keras_message(const std::string& plan, const std::vector<std::string>& gpus);

}  // namespace halfscope
