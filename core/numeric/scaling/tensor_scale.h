// SPDX-License-Identifier: MIT
// TensorScale: how the narrowed operands of a product are scaled, and its text form
// KIND[:OPTION,...]: "current", "delayed:history=16,margin=1", "static:0.5", "divide:2", "channel",
// "mx", "block:128".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/numeric/scaling/block_format.h"
#include "core/numeric/scaling/tensor_scaling.h"

namespace halfscope {

struct TensorScale {
  enum class Kind : uint8_t {
    none,     ///< rounded without scaling
    fixed,    ///< operands are multiplied by a fixed number
    divided,  ///< operands are divided by a fixed number, as ONNX QuantizeLinear does
    current,  ///< from the tensor's own largest magnitude
    delayed,  ///< from the largest magnitudes of earlier steps
    block,    ///< a power of two (ue8m0) for every block of the summed dimension
    nvfp4,    ///< e4m3fn for every 16 elements of the summed dimension, and fp32 for the tensor
    /// fp32 for all elements that enter the same sums: an output channel of weights, a row of a
    /// product's first operand, a sample that a convolution reads.
    channel,
  };
  Kind kind = Kind::none;
  float factor = 1;                   ///< for fixed and divided
  ScaleGrid grid = ScaleGrid::any;    ///< for current
  int history = 1024;                 ///< for delayed
  AmaxChoice amax = AmaxChoice::max;  ///< for delayed
  int margin = 0;                     ///< for delayed
  int block_size = 32;                ///< for block
  ScaleRule rule = ScaleRule::floor;  ///< for block
  /// For block and nvfp4: blocks of weights are squares, so that both products with them, forward
  /// and backward, read the same values.
  bool square_weights = false;
  bool fp32_scales = false;  ///< for block: fp32 scales instead of powers of two
  /// For current, and for block with fp32 scales: no guard against a largest magnitude of 0, so
  /// that 0 * infinity or 0 / 0 is computed.
  bool unguarded = false;
  float amax_floor = 0;  ///< for current and block: smaller magnitudes count as this one

  friend constexpr bool operator==(const TensorScale&, const TensorScale&) = default;

  constexpr bool any() const noexcept { return kind != Kind::none; }
  /// Returns whether parts of a tensor have their own scales.
  constexpr bool by_block() const noexcept {
    return kind == Kind::block || kind == Kind::nvfp4 || kind == Kind::channel;
  }
  /// Returns the number of elements along a block; 0 if there are no blocks, or if the size of the
  /// tensor decides.
  constexpr int block() const noexcept {
    return kind == Kind::block ? block_size : kind == Kind::nvfp4 ? 16 : 0;
  }
};

/// Returns "none", "current:power-of-two", "mx:up,weights=square".
std::string scale_name(const TensorScale& scale);
/// Parses the text of scale_name(); returns nothing for any other text.
std::optional<TensorScale> parse_scale(std::string_view text);

}  // namespace halfscope
