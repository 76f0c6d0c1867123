// SPDX-License-Identifier: MIT
// A few values as a block-scaled format stores them, with every intermediate number: the shared
// scale and how its rule made it, and for each value the element, the error, and whether it was
// clipped or flushed. Equal to quantize() for the rules that it has. Meant for showing, not for
// computing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/numeric/scaling/block_format.h"

namespace halfscope::lab {

/// How a power-of-two scale is chosen from a block's largest magnitude.
enum class BlockScaleRule : uint8_t {
  floor,    ///< OCP MX 1.0, 6.3: 2^(floor(log2 amax) - emax); may clip the largest
  nearest,  ///< floor of amax rounded to the element's precision: EVEN in torchao's to_mx
  ceil,     ///< the smallest that clips nothing: ScaleRule::up; RCEIL in torchao
};
inline constexpr BlockScaleRule kAllBlockScaleRules[] = {
    BlockScaleRule::floor, BlockScaleRule::nearest, BlockScaleRule::ceil};
/// Returns "floor", "nearest" or "ceil".
std::string_view block_scale_rule_name(BlockScaleRule rule) noexcept;
std::optional<BlockScaleRule> parse_block_scale_rule(std::string_view text) noexcept;

/// One value of a block.
struct BlockElement {
  float input = 0.0f;
  double scaled = 0.0;   ///< input / (scale times the tensor's scale), before rounding
  uint32_t code = 0;     ///< in the element format; 0 in a block that is NaN
  float element = 0.0f;  ///< the value of the code
  float value = 0.0f;    ///< what the block represents: element times scales, in fp32
  double error = 0.0;    ///< value - input
  bool clipped = false;  ///< beyond the largest element or beyond fp32, so stored as a smaller one
  bool beyond = false;   ///< clipped because it would round to 2^128, which fp32 does not have
  bool flushed = false;  ///< not zero, but stored as zero
};

/// The scale that neighboring values share.
struct SharedScale {
  size_t first = 0, count = 0;  ///< the values it belongs to
  float amax = 0.0f;            ///< largest magnitude; infinity or NaN if a value is
  size_t amax_at = 0;           ///< its index among all values
  /// nearest: amax rounded to the element's precision, in double for the carry to 2^128
  double rounded_amax = 0.0;
  double wanted = 0.0;  ///< the real number that maps amax to the largest element
  float scale = 1.0f;   ///< as stored: a power of two, or e4m3fn; NaN if a value is infinite or NaN
  uint32_t code = 0;    ///< ue8m0 or e4m3fn
  int clipped = 0, flushed = 0;
};

struct BlockView {
  BlockFormat format{};
  BlockScaleRule rule = BlockScaleRule::floor;  ///< of power-of-two scales
  std::vector<BlockElement> elements{};
  std::vector<SharedScale> scales{};  ///< one, but two for more than 16 values in nvfp4
  float tensor_amax = 0.0f;           ///< nvfp4
  float tensor_scale = 1.0f;          ///< nvfp4, in fp32; else 1
  double rms_error = 0.0;             ///< root of the mean squared error
  double rms_input = 0.0;
};

inline constexpr size_t kMostBlockValues = 32;

/// Returns the names of the formats that view_block() shows, as parse_block_format() reads them.
std::vector<std::string> viewed_block_formats();

/// Returns the values as stored in `format`, whose own rule is ignored in favor of `rule`. Takes at
/// most kMostBlockValues and throws Error for more, for fp32 scales, and for options of
/// BlockFormat that named formats do not use. `tensor_amax` is the largest magnitude of the whole
/// tensor for nvfp4, if the values are only a part of it; smaller ones than the values' own count
/// as that.
BlockView view_block(std::span<const float> values, const BlockFormat& format, BlockScaleRule rule,
                     std::optional<float> tensor_amax = std::nullopt);

/// Values that show what a shared scale does.
enum class BlockExample : uint8_t {
  normal,   ///< about normally distributed, standard deviation 1
  outlier,  ///< the same with one value of 60
  small,    ///< the same times 10^-5: the scale adapts
  clipped,  ///< the largest is 7.2, between 6 and 8: the rules differ
  ramp,     ///< evenly spaced from -4 to 4
};
inline constexpr BlockExample kAllBlockExamples[] = {BlockExample::normal, BlockExample::outlier,
                                                     BlockExample::small, BlockExample::clipped,
                                                     BlockExample::ramp};
const char* block_example_name(BlockExample example) noexcept;  ///< "one outlier"
std::array<float, kMostBlockValues> block_example(BlockExample example);

/// Returns in one or two sentences how the scale with this index came about.
std::string scale_reason(const BlockView& view, size_t index);

}  // namespace halfscope::lab
