// SPDX-License-Identifier: MIT
// The device compatibility message of tf.keras. Every word is that of
// tf_keras/mixed_precision/device_compatibility_check.py (Apache License 2.0), because users
// search for it.
#include <fmt/format.h>

#include "core/policy/keras.h"

namespace halfscope {
namespace keras {
namespace {

constexpr const char* kPrefix = "Mixed precision compatibility check (mixed_float16): ";
constexpr const char* kSuffix =
    "If you will use compatible GPU(s) not attached to this host, e.g. by running a multi-worker "
    "model, you can ignore this warning. This message will only be logged once";
/// The first GPUs with tensor cores.
constexpr std::pair kLeastCapability{7, 0};

/// Merges neighbours that are equal: "GPU 2 (x2)".
std::vector<std::string> merged(const std::vector<std::string>& devices) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < devices.size();) {
    size_t end = i;
    while (end < devices.size() && devices[end] == devices[i]) ++end;
    lines.push_back(end - i == 1 ? devices[i] : fmt::format("{} (x{})", devices[i], end - i));
    i = end;
  }
  return lines;
}

}  // namespace
}  // namespace keras

KerasDeviceMessage keras_device_message(std::string_view policy,
                                        const std::vector<KerasDevice>& gpus) {
  if (policy != "mixed_float16") return {};
  std::vector<std::string> fast, slow;
  for (const KerasDevice& gpu : gpus) {
    const std::string name = gpu.name.empty() ? "Unknown GPU" : gpu.name;
    if (!gpu.capability) {
      slow.push_back(name + ", no compute capability (probably not an Nvidia GPU)");
      continue;
    }
    const auto& [major, minor] = *gpu.capability;
    std::vector<std::string>& list = *gpu.capability >= keras::kLeastCapability ? fast : slow;
    list.push_back(fmt::format("{}, compute capability {}.{}", name, major, minor));
  }
  if (slow.empty() && fast.empty()) {
    return {true, fmt::format("{}WARNING\nThe dtype policy mixed_float16 may run slowly because "
                              "this machine does not have a GPU. Only Nvidia GPUs with compute "
                              "capability of at least 7.0 run quickly with mixed_float16.\n{}",
                              keras::kPrefix, keras::kSuffix)};
  }
  if (slow.empty() && fast.size() == 1) {
    return {false, fmt::format("{}OK\nYour GPU will likely run quickly with dtype policy "
                               "mixed_float16 as it has compute capability of at least 7.0. Your "
                               "GPU: {}",
                               keras::kPrefix, fast.front())};
  }
  if (slow.empty()) {
    return {false, fmt::format("{}OK\nYour GPUs will likely run quickly with dtype policy "
                               "mixed_float16 as they all have compute capability of at least 7.0",
                               keras::kPrefix)};
  }
  std::string text = fmt::format("{}WARNING\n", keras::kPrefix);
  if (!fast.empty()) {
    text +=
        "Some of your GPUs may run slowly with dtype policy mixed_float16 because they do not all "
        "have compute capability of at least 7.0. Your GPUs:\n";
  } else if (slow.size() == 1) {
    text +=
        "Your GPU may run slowly with dtype policy mixed_float16 because it does not have compute "
        "capability of at least 7.0. Your GPU:\n";
  } else {
    text +=
        "Your GPUs may run slowly with dtype policy mixed_float16 because they do not have compute "
        "capability of at least 7.0. Your GPUs:\n";
  }
  fast.insert(fast.end(), slow.begin(), slow.end());
  for (const std::string& line : keras::merged(fast)) text += "  " + line + "\n";
  text +=
      "See https://developer.nvidia.com/cuda-gpus for a list of GPUs and their compute "
      "capabilities.\n";
  return {true, text + keras::kSuffix};
}

}  // namespace halfscope
