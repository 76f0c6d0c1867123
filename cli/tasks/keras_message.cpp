// SPDX-License-Identifier: MIT
#include "cli/tasks/keras_message.h"

#include <charconv>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/policy/keras.h"
#include "gpu/device_info.h"

namespace halfscope {
namespace {

std::optional<int> number_in(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

KerasDevice device_in(const std::string& text) {
  const size_t colon = text.rfind(':');
  const size_t dot = colon == std::string::npos ? colon : text.find('.', colon);
  if (dot != std::string::npos && colon > 0) {
    const std::optional<int> major = number_in(text.substr(colon + 1, dot - colon - 1));
    const std::optional<int> minor = number_in(text.substr(dot + 1));
    if (major && minor) return {text.substr(0, colon), std::pair(*major, *minor)};
  }
  throw usage_error("--gpu '" + text + "': not a name and a compute capability",
                    "write for example --gpu 'Tesla V100:7.0'");
}

}  // namespace

std::string keras_message(const std::string& plan, const std::vector<std::string>& gpus) {
  std::vector<KerasDevice> devices;
  for (const std::string& text : gpus) devices.push_back(device_in(text));
  const std::optional<KerasPolicy> policy = keras_policy(plan);
  if (!policy || policy->keras3 || policy->compute != kFp16) {
    if (gpus.empty()) return "";
    throw usage_error("plan show: --gpu has no effect on " + plan +
                          ": only tf.keras's policy mixed_float16 checks the GPUs",
                      "leave it out, or name keras-mixed_float16");
  }
  if (gpus.empty()) {
    for (const GpuDevice& gpu : query_gpus().devices)
      devices.push_back({gpu.name, std::pair(gpu.major, gpu.minor)});
    if (devices.empty()) return "";
  }
  constexpr size_t kPrefix = std::string_view("keras-").size();
  return keras_device_message(plan.substr(kPrefix), devices).text;
}

}  // namespace halfscope
