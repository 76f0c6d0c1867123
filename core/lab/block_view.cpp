// SPDX-License-Identifier: MIT
#include "core/lab/block_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/lab/number_text.h"
#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/rng.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/scaling/ue8m0.h"

namespace halfscope::lab {
namespace {

constexpr double kMostFloat = static_cast<double>(std::numeric_limits<float>::max());

/// Returns a positive finite amax with only the element's mantissa bits, ties away from zero. Ties
/// matter only below a power of two, where both ways of breaking them go up.
double round_to_precision(float amax, const FloatFormat& element) {
  const double exact = static_cast<double>(amax);
  const double unit = std::ldexp(1.0, exponent_of(exact) - element.mantissa_bits);
  return std::floor(exact / unit + 0.5) * unit;
}

/// Sets scale, code and wanted of a block whose amax is known.
void choose_scale(SharedScale& shared, const BlockView& view) {
  const BlockFormat& format = view.format;
  const double amax = static_cast<double>(shared.amax);
  shared.rounded_amax = amax;
  shared.wanted = amax / format.element.max_finite() / static_cast<double>(view.tensor_scale);
  if (!std::isfinite(shared.amax)) {
    shared.scale = std::numeric_limits<float>::quiet_NaN();
    shared.code = format.scale == ScaleKind::ue8m0 ? kUe8m0Nan : 0x7f;
    return;
  }
  if (format.scale == ScaleKind::e4m3fn_and_fp32) {
    FloatFormat stored = kE4m3fn;
    stored.saturate = true;
    const double wanted =
        amax / (format.element.max_finite() * static_cast<double>(view.tensor_scale));
    shared.scale = static_cast<float>(round_to_format(wanted, stored).value);
    shared.code = detail::code_of_value(shared.scale, kE4m3fn);
    return;
  }
  if (view.rule == BlockScaleRule::nearest && shared.amax > 0.0f) {
    shared.rounded_amax = round_to_precision(shared.amax, format.element);
    const int power = exponent_of(shared.rounded_amax) - format.element.max_exponent();
    shared.code = static_cast<uint32_t>(std::clamp(power + 127, 0, kUe8m0Nan - 1));
  } else {
    shared.code =
        mx_scale_code(shared.amax, format.element,
                      view.rule == BlockScaleRule::ceil ? ScaleRule::up : ScaleRule::floor);
  }
  shared.scale = decode_ue8m0(static_cast<uint8_t>(shared.code));
}

/// Stores one value with the product of its scales.
BlockElement store(float input, double scale, const BlockFormat& format) {
  BlockElement result{.input = input};
  if (std::isnan(scale)) {
    result.scaled = result.error = scale;
    result.element = result.value = std::numeric_limits<float>::quiet_NaN();
    return result;
  }
  FloatFormat element = format.element;
  element.saturate = true;
  if (scale == 0.0 || input == 0.0f) {
    result.scaled = input == 0.0f ? static_cast<double>(input)
                                  : std::copysign(std::numeric_limits<double>::infinity(), input);
    result.element = result.value = std::copysign(0.0f, input);
    result.flushed = input != 0.0f;
  } else {
    result.scaled = static_cast<double>(input) / scale;
    Rounded<double> rounded = round_to_format(result.scaled, element);
    result.clipped = (rounded.flags & kOverflow) != 0;
    if (std::fabs(rounded.value) * scale > kMostFloat) {  // as quantize() does
      rounded = round_to_format(result.scaled, element, {.mode = RoundingMode::toward_zero});
      result.clipped = result.beyond = true;
    }
    result.flushed = (rounded.flags & kFlushed) != 0;
    result.element = static_cast<float>(rounded.value);
    result.value = static_cast<float>(std::clamp(rounded.value * scale, -kMostFloat, kMostFloat));
  }
  result.code = detail::code_of_value(result.element, format.element);
  result.error = static_cast<double>(result.value) - static_cast<double>(input);
  return result;
}

/// Returns scale_reason() without what happens to values.
std::string reason_of_scale(const BlockView& view, const SharedScale& shared) {
  const FloatFormat& element = view.format.element;
  const std::string name = format_name(element);
  if (!std::isfinite(shared.amax)) {
    return "The block contains an infinity or NaN, so its scale is NaN, and all its values are.";
  }
  const double amax = static_cast<double>(shared.amax);
  if (view.format.scale == ScaleKind::e4m3fn_and_fp32) {
    return fmt::format(
        "The tensor's scale, {} / (6 \u00d7 448) = {}, makes room for every block. This block's "
        "largest magnitude is {}, so its scale is {} / (6 \u00d7 {}) = {}, stored in e4m3fn as {}.",
        brief_text(static_cast<double>(view.tensor_amax)),
        brief_text(static_cast<double>(view.tensor_scale)), brief_text(amax), brief_text(amax),
        brief_text(static_cast<double>(view.tensor_scale)), brief_text(shared.wanted),
        brief_text(static_cast<double>(shared.scale)));
  }
  if (shared.amax == 0.0f) return "All values are 0, so the scale is the smallest: 2^-127.";
  const int power = static_cast<int>(shared.code) - 127;
  const int top = element.max_exponent();
  const auto limited = [&](int exponent) {
    return exponent - top == power ? fmt::format("2^({} - {}) = 2^{}", exponent, top, power)
                                   : fmt::format("2^{}, the smallest that exists", power);
  };
  const int exponent = exponent_of(amax);
  switch (view.rule) {
    case BlockScaleRule::floor:
      return fmt::format(
          "floor: {} is at least 2^{} and below 2^{}, and the largest power of two in {} is 2^{}, "
          "so the scale is {}.",
          brief_text(amax), exponent, exponent + 1, name, top, limited(exponent));
    case BlockScaleRule::nearest:
      return fmt::format(
          "nearest: {} in the precision of {} is {}, {} 2^{}, and the largest power of two in {} "
          "is 2^{}, so the scale is {}.",
          brief_text(amax), name, brief_text(shared.rounded_amax),
          exponent_of(shared.rounded_amax) > exponent ? "which reaches" : "at least",
          exponent_of(shared.rounded_amax), name, top, limited(exponent_of(shared.rounded_amax)));
    case BlockScaleRule::ceil:
      break;
  }
  const int floor_power = exponent - top;
  const std::string largest = brief_text(element.max_finite());
  if (power > floor_power && floor_power + 127 >= 0) {
    return fmt::format(
        "ceil: a scale of 2^{} reaches only {} \u00d7 2^{} = {}, less than {}, so the scale is the "
        "next power of two, 2^{}.",
        floor_power, largest, floor_power,
        brief_text(std::ldexp(element.max_finite(), floor_power)), brief_text(amax), power);
  }
  return fmt::format(
      "ceil: 2^{} is the smallest scale that clips nothing, because {} \u00d7 2^{} = {} is at "
      "least {}.",
      power, largest, power, brief_text(std::ldexp(element.max_finite(), power)), brief_text(amax));
}

}  // namespace

std::string_view block_scale_rule_name(BlockScaleRule rule) noexcept {
  switch (rule) {
    case BlockScaleRule::floor:
      return "floor";
    case BlockScaleRule::nearest:
      return "nearest";
    case BlockScaleRule::ceil:
      return "ceil";
  }
  return "unknown";
}

std::optional<BlockScaleRule> parse_block_scale_rule(std::string_view text) noexcept {
  for (const BlockScaleRule each : kAllBlockScaleRules) {
    if (text == block_scale_rule_name(each)) return each;
  }
  return std::nullopt;
}

std::vector<std::string> viewed_block_formats() {
  std::vector<std::string> names;
  for (const BlockFormat& each : {kMxfp8E4m3, kMxfp8E5m2, kMxfp6E3m2, kMxfp6E2m3, kMxfp4, kNvfp4}) {
    names.push_back(block_format_name(each));
  }
  return names;
}

BlockView view_block(std::span<const float> values, const BlockFormat& format, BlockScaleRule rule,
                     std::optional<float> tensor_amax) {
  if (values.size() > kMostBlockValues) {
    throw Error(fmt::format("at most {} values can be viewed as a block", kMostBlockValues));
  }
  if (format.scale == ScaleKind::fp32 || format.block_size < 1 || format.amax_floor != 0.0f ||
      !is_valid(format.element)) {
    throw Error("cannot view this block format: only MX formats and nvfp4 can be shown");
  }
  BlockView view{.format = format, .rule = rule};
  const bool two_levels = format.scale == ScaleKind::e4m3fn_and_fp32;
  if (two_levels) {
    float most = tensor_amax.value_or(0.0f);
    for (const float x : values) {
      if (std::isfinite(x)) most = std::max(most, std::fabs(x));
    }
    view.tensor_amax = most;
    view.tensor_scale = nvfp4_tensor_scale(most);
  }
  double error_squares = 0.0, squares = 0.0;
  for (size_t first = 0; first < values.size(); first += static_cast<size_t>(format.block_size)) {
    SharedScale shared{
        .first = first,
        .count = std::min(static_cast<size_t>(format.block_size), values.size() - first),
        .amax_at = first};
    for (size_t i = first; i < first + shared.count; ++i) {
      const float magnitude = std::fabs(values[i]);
      // NaN counts as more than infinity, like its bits.
      if (magnitude > shared.amax || std::isnan(magnitude)) {
        shared.amax = magnitude;
        shared.amax_at = i;
      }
      if (std::isnan(magnitude)) break;
    }
    choose_scale(shared, view);
    const double scale = static_cast<double>(shared.scale) * static_cast<double>(view.tensor_scale);
    for (size_t i = first; i < first + shared.count; ++i) {
      const BlockElement element = store(values[i], scale, format);
      shared.clipped += element.clipped ? 1 : 0;
      shared.flushed += element.flushed ? 1 : 0;
      error_squares += element.error * element.error;
      squares += static_cast<double>(values[i]) * static_cast<double>(values[i]);
      view.elements.push_back(element);
    }
    view.scales.push_back(shared);
  }
  if (!values.empty()) {
    const double count = static_cast<double>(values.size());
    view.rms_error = std::sqrt(error_squares / count);
    view.rms_input = std::sqrt(squares / count);
  }
  return view;
}

const char* block_example_name(BlockExample example) noexcept {
  switch (example) {
    case BlockExample::normal:
      return "normal";
    case BlockExample::outlier:
      return "one outlier";
    case BlockExample::small:
      return "all small";
    case BlockExample::clipped:
      return "largest clipped";
    case BlockExample::ramp:
      return "ramp";
  }
  return "unknown";
}

std::array<float, kMostBlockValues> block_example(BlockExample example) {
  std::array<float, kMostBlockValues> values{};
  for (size_t i = 0; i < values.size(); ++i) {
    if (example == BlockExample::ramp) {
      values[i] = -4.0f + 8.0f * static_cast<float>(i) / static_cast<float>(values.size() - 1);
      continue;
    }
    // Twelve uniform numbers have a variance of 1: their sum is close to a normal distribution.
    double sum = -6.0;
    for (uint64_t draw = 0; draw < 12; ++draw) {
      sum += static_cast<double>(random_word(3, 0, 0, 12 * i + draw) >> 11) * 0x1p-53;
    }
    // Two decimals are easy to read.
    values[i] = static_cast<float>(std::round(sum * 100.0) / 100.0);
    if (example == BlockExample::small) values[i] *= 1e-5f;
  }
  if (example == BlockExample::outlier) values[11] = 60.0f;
  if (example == BlockExample::clipped) {
    for (float& x : values) x *= 2.0f;
    values[20] = 7.2f;
  }
  return values;
}

std::string scale_reason(const BlockView& view, size_t index) {
  const SharedScale& shared = view.scales.at(index);
  const auto first = view.elements.begin() + static_cast<std::ptrdiff_t>(shared.first);
  const bool beyond = std::any_of(first, first + static_cast<std::ptrdiff_t>(shared.count),
                                  [](const BlockElement& each) { return each.beyond; });
  const char* const limit =
      " A value would round to 2^128, which fp32 cannot represent, so it is "
      "stored as the next smaller one.";
  return reason_of_scale(view, shared) + (beyond ? limit : "");
}

}  // namespace halfscope::lab
