// SPDX-License-Identifier: MIT
// TensorScale: how the narrow operands of a product are scaled (ARCHITECTURE: Plan), and its text
// form KIND[:OPTION,...]: "current", "delayed:history=16,margin=1", "static:0.5", "mx",
// "block:128".
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
    none,     ///< rounded as it is
    fixed,    ///< one number
    current,  ///< from the tensor's own largest magnitude
    delayed,  ///< from those of the steps before
    block,    ///< a power of two (ue8m0) for every block of the summed dimension
    nvfp4,    ///< e4m3fn for every 16 elements of the summed dimension, and fp32 for the tensor
  };
  Kind kind = Kind::none;
  float factor = 1;                   ///< of fixed
  ScaleGrid grid = ScaleGrid::any;    ///< of current
  int history = 1024;                 ///< of delayed
  AmaxChoice amax = AmaxChoice::max;  ///< of delayed
  int margin = 0;                     ///< of delayed
  int block_size = 32;                ///< of block
  ScaleRule rule = ScaleRule::floor;  ///< of block
  /// Of block and nvfp4: blocks of weights are squares, so that both products with them, forward
  /// and backward, read the same values.
  bool square_weights = false;
  bool fp32_scales = false;  ///< of block: in place of powers of two
  /// Of current, and of block with scales in fp32: no guard where the largest magnitude is 0, so
  /// that 0 * infinity or 0 / 0 comes out.
  bool unguarded = false;
  float amax_floor = 0;  ///< of current and block: smaller magnitudes count as this one

  friend constexpr bool operator==(const TensorScale&, const TensorScale&) = default;

  constexpr bool any() const noexcept { return kind != Kind::none; }
  constexpr bool by_block() const noexcept { return kind == Kind::block || kind == Kind::nvfp4; }
  /// Elements along a block; 0 where there are none.
  constexpr int block() const noexcept {
    return kind == Kind::block ? block_size : kind == Kind::nvfp4 ? 16 : 0;
  }
};

/// "none", "current:power-of-two", "mx:up,weights=square".
std::string scale_name(const TensorScale& scale);
/// The way back; nothing for anything else.
std::optional<TensorScale> parse_scale(std::string_view text);

}  // namespace halfscope
