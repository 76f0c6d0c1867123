// SPDX-License-Identifier: MIT
// Parameters and loops of integer quantisation.
#include "core/numeric/scaling/linear_quantization.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace halfscope {
namespace {

void check_shape(std::span<const float> in, const ChannelShape& shape) {
  const bool negative = shape.outer < 0 || shape.channels < 0 || shape.inner < 0;
  if (negative || static_cast<int64_t>(in.size()) != shape.outer * shape.channels * shape.inner) {
    throw Error("quantize_linear: the size of the span does not match the shape");
  }
}

/// Calls visit(index, channel) for every element.
template <class Visit>
void each_element(const ChannelShape& shape, Visit visit) {
  size_t index = 0;
  for (int64_t outer = 0; outer < shape.outer; ++outer) {
    for (int64_t channel = 0; channel < shape.channels; ++channel) {
      for (int64_t inner = 0; inner < shape.inner; ++inner) {
        visit(index++, static_cast<size_t>(channel));
      }
    }
  }
}

/// Returns whether one can divide by it; a range too small for fp32 has no scale.
bool is_usable(float scale) { return scale > 0 && std::isfinite(scale); }

}  // namespace

LinearQuantization symmetric_quantization(float amax, const IntegerRange& range) noexcept {
  const float scale = amax / static_cast<float>(range.highest);
  return {.scale = is_usable(scale) ? scale : 1.0f, .zero_point = 0};
}

LinearQuantization asymmetric_quantization(float smallest, float largest,
                                           const IntegerRange& range) noexcept {
  const double low = std::min(0.0, static_cast<double>(smallest));
  const double high = std::max(0.0, static_cast<double>(largest));
  const float scale = static_cast<float>((high - low) / (range.highest - range.lowest));
  if (!is_usable(scale))
    return {.scale = 1, .zero_point = std::clamp(0, range.lowest, range.highest)};
  const float steps = static_cast<float>(low) / scale;
  const int64_t zero_point = detail::round_half_even(static_cast<float>(range.lowest) - steps);
  return {.scale = scale,
          .zero_point =
              static_cast<int32_t>(std::clamp<int64_t>(zero_point, range.lowest, range.highest))};
}

std::vector<LinearQuantization> calibrate(std::span<const float> in, const ChannelShape& shape,
                                          Symmetry symmetry, const IntegerRange& range) {
  check_shape(in, shape);
  struct Extremes {
    float smallest = 0, largest = 0;
  };
  std::vector<Extremes> extremes(static_cast<size_t>(shape.channels));
  each_element(shape, [&](size_t index, size_t channel) {
    if (!std::isfinite(in[index])) return;
    extremes[channel].smallest = std::min(extremes[channel].smallest, in[index]);
    extremes[channel].largest = std::max(extremes[channel].largest, in[index]);
  });
  std::vector<LinearQuantization> result;
  for (const auto& [smallest, largest] : extremes) {
    result.push_back(symmetry == Symmetry::symmetric
                         ? symmetric_quantization(std::max(-smallest, largest), range)
                         : asymmetric_quantization(smallest, largest, range));
  }
  return result;
}

void quantize_linear(std::span<const float> in, const ChannelShape& shape,
                     std::span<const LinearQuantization> channels, const IntegerRange& range,
                     std::span<float> out, std::span<int32_t> codes, BlockStats* stats) {
  check_shape(in, shape);
  if (static_cast<int64_t>(channels.size()) != shape.channels || out.size() != in.size() ||
      (!codes.empty() && codes.size() != in.size())) {
    throw Error("quantize_linear: the sizes of the spans do not match the shape");
  }
  // Compares with a range in which nothing is clipped.
  constexpr IntegerRange kWide{-(1 << 30), 1 << 30};
  BlockStats counts{.values = static_cast<int64_t>(in.size())};
  each_element(shape, [&](size_t index, size_t channel) {
    const LinearQuantization& by = channels[channel];
    const float x = in[index];
    const int32_t code = quantize_linear(x, by, range);
    counts.clipped += code != quantize_linear(x, by, kWide) ? 1 : 0;
    counts.flushed += x != 0 && code == by.zero_point ? 1 : 0;
    out[index] = dequantize_linear(code, by);
    if (!codes.empty()) codes[index] = code;
  });
  if (stats != nullptr) *stats = counts;
}

}  // namespace halfscope
