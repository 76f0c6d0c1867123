// SPDX-License-Identifier: MIT
// Scaling of fp8 tensors.
#include "core/numeric/scaling/tensor_scaling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "core/error.h"
#include "core/numeric/formats/round.h"

namespace halfscope {

float largest_magnitude(std::span<const float> in) noexcept {
  // Compared as integers, magnitudes have the same order, with infinity and then NaN last.
  uint32_t largest = 0;
  for (const float x : in) largest = std::max(largest, std::bit_cast<uint32_t>(x) & 0x7fffffffu);
  return std::bit_cast<float>(largest);
}

void quantize_scaled(std::span<const float> in, float scale, const FloatFormat& format,
                     std::span<float> out, BlockStats* stats) {
  if (out.size() != in.size()) throw Error("quantize_scaled: in and out differ in size");
  FloatFormat stored = format;
  stored.saturate = true;
  const float inverse = 1 / scale;
  BlockStats counts{.values = static_cast<int64_t>(in.size()), .tensor_scale = scale};
  for (size_t i = 0; i < in.size(); ++i) {
    const float x = in[i];
    const Rounded<float> code = round_to_format(x * scale, stored);
    counts.clipped += (code.flags & kOverflow) != 0 ? 1 : 0;
    counts.flushed += x != 0 && code.value == 0 ? 1 : 0;
    out[i] = code.value * inverse;
  }
  if (stats != nullptr) *stats = counts;
}

float delayed_scale(std::span<const float> history, float latest, float scale,
                    const FloatFormat& format, AmaxChoice choice, int margin) noexcept {
  float chosen = latest;
  if (choice == AmaxChoice::max) {
    chosen = 0;
    for (const float each : history) chosen = std::fmax(chosen, each);
  }
  return next_delayed_scale(chosen, scale, format, margin);
}

DelayedScale::DelayedScale(const Options& options) : options_(options) {
  if (options.history_length < 1) throw Error("the amax history must be at least one step long");
  ring_.resize(static_cast<size_t>(options.history_length), 0.0f);
}

std::vector<float> DelayedScale::history() const {
  const int64_t length = options_.history_length;
  std::vector<float> result;
  for (int64_t step = std::max<int64_t>(0, steps_ - length); step < steps_; ++step) {
    result.push_back(ring_[static_cast<size_t>(step % length)]);
  }
  return result;
}

void DelayedScale::update(float amax) {
  ring_[static_cast<size_t>(steps_ % options_.history_length)] = amax;
  ++steps_;
  scale_ = delayed_scale(ring_, amax, scale_, options_.format, options_.choice, options_.margin);
}

}  // namespace halfscope
