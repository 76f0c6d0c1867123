// SPDX-License-Identifier: MIT
#include "core/numeric/scaling/tensor_scale.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <vector>

#include "core/number_text.h"

namespace halfscope {
namespace {

template <class T>
std::optional<T> number(std::string_view text, T least, T most) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || !(value >= least && value <= most)) return std::nullopt;
  return value;
}

/// Applies one option; returns false if the kind has no such option or the value is out of range.
bool set_option(TensorScale& scale, std::string_view key, std::string_view value) {
  constexpr int kLongestHistory = 1 << 16, kLargestMargin = 64;
  const bool flag = value.empty();
  if (scale.kind == TensorScale::Kind::current && key == "power-of-two" && flag) {
    scale.grid = ScaleGrid::power_of_two;
    return true;
  }
  if (scale.kind == TensorScale::Kind::delayed && key == "history") {
    const std::optional<int> steps = number(value, 1, kLongestHistory);
    scale.history = steps.value_or(1);
    return steps.has_value();
  }
  if (scale.kind == TensorScale::Kind::delayed && key == "margin") {
    const std::optional<int> binades = number(value, 0, kLargestMargin);
    scale.margin = binades.value_or(0);
    return binades.has_value();
  }
  if (scale.kind == TensorScale::Kind::delayed && key == "amax" &&
      (value == "max" || value == "recent")) {
    scale.amax = value == "max" ? AmaxChoice::max : AmaxChoice::most_recent;
    return true;
  }
  if (scale.kind == TensorScale::Kind::block && key == "up" && flag) {
    scale.rule = ScaleRule::up;
    return true;
  }
  if (scale.kind == TensorScale::Kind::block && key == "scales" && value == "fp32") {
    scale.fp32_scales = true;
    return true;
  }
  const bool of_amax =
      scale.kind == TensorScale::Kind::current || scale.kind == TensorScale::Kind::block;
  if (of_amax && key == "unguarded" && flag) {
    scale.unguarded = true;
    return true;
  }
  if (of_amax && key == "amax-floor") {
    const std::optional<float> floor =
        number(value, std::numeric_limits<float>::min(), std::numeric_limits<float>::max());
    scale.amax_floor = floor.value_or(0);
    return floor.has_value();
  }
  if (scale.block() > 0 && key == "weights" && value == "square") {
    scale.square_weights = true;
    return true;
  }
  return false;
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t comma = text.find(',');
    parts.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

std::string scale_name(const TensorScale& scale) {
  const TensorScale plain;
  std::string name;
  char separator = ':';
  const auto option = [&](const std::string& text) {
    name += separator + text;
    separator = ',';
  };
  switch (scale.kind) {
    case TensorScale::Kind::none:
      return "none";
    case TensorScale::Kind::fixed:
      return "static:" + number_text(scale.factor);
    case TensorScale::Kind::divided:
      return "divide:" + number_text(scale.factor);
    case TensorScale::Kind::channel:
      return "channel";
    case TensorScale::Kind::current:
      name = "current";
      if (scale.grid == ScaleGrid::power_of_two) option("power-of-two");
      break;
    case TensorScale::Kind::delayed:
      name = "delayed";
      if (scale.history != plain.history) option("history=" + std::to_string(scale.history));
      if (scale.margin != plain.margin) option("margin=" + std::to_string(scale.margin));
      if (scale.amax != plain.amax) option("amax=recent");
      return name;
    case TensorScale::Kind::block:
      if (scale.block_size == plain.block_size && !scale.fp32_scales) {
        name = "mx";
        if (scale.rule == ScaleRule::up) option("up");
      } else {
        name = "block";
        option(std::to_string(scale.block_size));
      }
      break;
    case TensorScale::Kind::nvfp4:
      name = "nvfp4";
      break;
  }
  if (scale.square_weights) option("weights=square");
  if (scale.fp32_scales) option("scales=fp32");
  if (scale.unguarded) option("unguarded");
  if (scale.amax_floor > 0) option("amax-floor=" + number_text(scale.amax_floor));
  return name;
}

std::optional<TensorScale> parse_scale(std::string_view text) {
  constexpr int kLargestBlock = 1 << 20;
  const size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  std::vector<std::string_view> options;
  if (colon != std::string_view::npos) options = split(text.substr(colon + 1));
  TensorScale scale;
  // Mandatory options of a kind come first.
  const auto take_first = [&]() -> std::string_view {
    if (options.empty()) return {};
    const std::string_view first = options.front();
    options.erase(options.begin());
    return first;
  };
  if (kind == "none") {
    scale.kind = TensorScale::Kind::none;
  } else if (kind == "static" || kind == "divide") {
    scale.kind = kind == "static" ? TensorScale::Kind::fixed : TensorScale::Kind::divided;
    const std::optional<float> factor =
        number(take_first(), std::numeric_limits<float>::min(), std::numeric_limits<float>::max());
    if (!factor) return std::nullopt;
    scale.factor = *factor;
  } else if (kind == "current") {
    scale.kind = TensorScale::Kind::current;
  } else if (kind == "delayed") {
    scale.kind = TensorScale::Kind::delayed;
  } else if (kind == "mx") {
    scale.kind = TensorScale::Kind::block;
  } else if (kind == "block") {
    scale.kind = TensorScale::Kind::block;
    const std::optional<int> size = number(take_first(), 1, kLargestBlock);
    if (!size) return std::nullopt;
    scale.block_size = *size;
    scale.rule = ScaleRule::up;
  } else if (kind == "channel") {
    scale.kind = TensorScale::Kind::channel;
  } else if (kind == "nvfp4") {
    scale.kind = TensorScale::Kind::nvfp4;
  } else {
    return std::nullopt;
  }
  std::vector<std::string_view> seen;
  for (const std::string_view option : options) {
    const size_t equals = std::min(option.find('='), option.size());
    const std::string_view key = option.substr(0, equals);
    const std::string_view value = option.substr(std::min(equals + 1, option.size()));
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) return std::nullopt;
    if (!set_option(scale, key, value)) return std::nullopt;
    seen.push_back(key);
  }
  // A power of two is never 0 and needs no guard, and MX has only these.
  const bool of_powers = scale.kind == TensorScale::Kind::block && !scale.fp32_scales;
  if ((of_powers && scale.unguarded) || (scale.fp32_scales && kind == "mx")) return std::nullopt;
  return scale;
}

}  // namespace halfscope
