// SPDX-License-Identifier: MIT
// Block-scaled tensors: blocks of a few elements of 4 to 8 bits that share a scale. quantize()
// returns the values that such a tensor represents, in fp32, so that lanes and kernels can use
// them. Sources: OCP Microscaling Formats (MX) 1.0, 5.2 (formats), 6.3 (conversion); NVIDIA,
// "Pretraining LLMs with NVFP4", arXiv:2509.25149 (two scales); Mishra et al., arXiv:2506.08027
// (scales rounded up for MXFP8).
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/host_device.h"
#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/scaling/ue8m0.h"

namespace halfscope {

enum class ScaleKind : uint8_t {
  ue8m0,            ///< a power of two, OCP MX
  e4m3fn_and_fp32,  ///< e4m3fn for each block, times one fp32 number for the tensor: NVFP4
  fp32,             ///< any fp32 number: rows of torchao, blocks of DeepSeek-V3
};

/// Chooses the power of two for a block's largest magnitude.
enum class ScaleRule : uint8_t {
  floor,  ///< OCP MX: 2^(floor(log2 amax) - emax of the element); the largest may be clipped
  up,     ///< the smallest for which nothing exceeds the element's largest value
};

struct BlockFormat {
  FloatFormat element = kE4m3fn;  ///< always saturates and rounds to nearest even
  int block_size = 32;
  ScaleKind scale = ScaleKind::ue8m0;
  ScaleRule rule = ScaleRule::floor;  ///< ue8m0 only
  float amax_floor = 0;               ///< smaller magnitudes of blocks count as this one
  bool unguarded = false;             ///< fp32 only: the scale of a block of zeros is 0

  friend constexpr bool operator==(const BlockFormat&, const BlockFormat&) = default;

  /// Returns the storage bits of one element, including its share of the block's scale.
  constexpr double bits_per_element() const noexcept {
    return element.bits() + 8.0 / static_cast<double>(block_size);
  }
};

inline constexpr BlockFormat kMxfp8E4m3{.element = kE4m3fn};
inline constexpr BlockFormat kMxfp8E5m2{.element = kE5m2};
inline constexpr BlockFormat kMxfp6E3m2{.element = kE3m2};
inline constexpr BlockFormat kMxfp6E2m3{.element = kE2m3};
inline constexpr BlockFormat kMxfp4{.element = kE2m1};
inline constexpr BlockFormat kNvfp4{
    .element = kE2m1, .block_size = 16, .scale = ScaleKind::e4m3fn_and_fp32};

/// Parses mxfp8_e4m3, mxfp8_e5m2, mxfp6_e3m2, mxfp6_e2m3, mxfp4 or nvfp4; the mx names accept ":up"
/// for that rule.
std::optional<BlockFormat> parse_block_format(std::string_view text);

/// Returns the name that parse_block_format reads; "custom" for other combinations.
std::string block_format_name(const BlockFormat& format);

/// A tensor as [outer][length][inner], row-major. Blocks run along `length`, with stride `inner`,
/// and the last one may be shorter. Rows of a matrix: {rows, cols, 1}; its columns: {1, rows,
/// cols}. A block may also span `outer_block` neighbours of the outer dimension: squares of a
/// matrix.
struct BlockShape {
  int64_t outer = 1, length = 0, inner = 1;
  int64_t outer_block = 1;
};

constexpr int64_t blocks_along(const BlockShape& shape, const BlockFormat& format) noexcept {
  return (shape.length + format.block_size - 1) / format.block_size;
}
/// Returns how many scales quantize() writes, as [outer / outer_block, rounded
/// up][blocks_along][inner].
constexpr int64_t block_count(const BlockShape& shape, const BlockFormat& format) noexcept {
  const int64_t outer_blocks = (shape.outer + shape.outer_block - 1) / shape.outer_block;
  return outer_blocks * blocks_along(shape, format) * shape.inner;
}

struct BlockStats {
  int64_t values = 0;
  int64_t clipped =
      0;  ///< elements beyond the largest value with their scale, which became that value
  int64_t flushed = 0;     ///< nonzero elements that became zero
  int64_t nan_blocks = 0;  ///< blocks with a NaN or an infinity, whose elements all became NaN
  float tensor_scale = 1;  ///< nvfp4: amax of the tensor / (6 * 448)
};

/// Returns the ue8m0 code for a block whose largest magnitude is `amax`: at least 2^-127 (also for
/// zero), 0xff for infinity and NaN.
HS_HD constexpr uint8_t mx_scale_code(float amax, const FloatFormat& element,
                                      ScaleRule rule) noexcept {
  const uint32_t magnitude = std::bit_cast<uint32_t>(amax) & ~detail::kSignBit;
  if (magnitude >= detail::kInfinityBits) return kUe8m0Nan;
  if (magnitude == 0) return 0;
  const detail::Unpacked x = detail::normalised(detail::unpack(magnitude));
  int exponent = x.exponent + 63 - element.max_exponent();
  // Compares both significands with the top bit set: amax / 2^exponent and the largest value.
  const uint64_t largest = static_cast<uint64_t>(element.max_significand())
                           << (63 - element.mantissa_bits);
  if (rule == ScaleRule::up && x.significand > largest) ++exponent;
  const int code = exponent + 127;
  return static_cast<uint8_t>(code < 0 ? 0 : code > kUe8m0Nan - 1 ? kUe8m0Nan - 1 : code);
}

namespace detail {
inline constexpr float kLargestFloat = 0x1.fffffep127f;
}  // namespace detail

/// Returns the fp32 number nearest to amax / (6 * 448), so that the largest block scale is 448 if
/// the largest element is 6; 1 for a tensor of zeros.
HS_HD inline float nvfp4_tensor_scale(float amax) noexcept {
  if (!(amax > 0)) return 1;
  const float scale = static_cast<float>(static_cast<double>(amax) / (6.0 * 448.0));
  return scale > 0 ? scale : 0x1p-149f;
}

/// Returns the stored scale of a block, given the bits of its largest magnitude; NaN for a block
/// with an infinity or a NaN.
HS_HD inline float block_scale(uint32_t largest, const BlockFormat& format,
                               double tensor_scale) noexcept {
  if (largest >= detail::kInfinityBits) return std::bit_cast<float>(0x7fc00000u);
  const float found = std::bit_cast<float>(largest);
  const float amax = found < format.amax_floor ? format.amax_floor : found;
  if (format.scale == ScaleKind::ue8m0) {
    return decode_ue8m0(mx_scale_code(amax, format.element, format.rule));
  }
  if (format.scale == ScaleKind::fp32) {
    const float scale = amax / static_cast<float>(format.element.max_finite());
    if (scale > 0 || format.unguarded) return scale;
    return amax > 0 ? 0x1p-149f : 1;
  }
  FloatFormat stored = kE4m3fn;
  stored.saturate = true;
  const double wanted = static_cast<double>(amax) / (format.element.max_finite() * tensor_scale);
  return static_cast<float>(round_to_format(wanted, stored).value);
}

/// Computes only the scales, as quantize() writes them. Returns the tensor's scale, which is 1
/// except for nvfp4.
float block_scales(std::span<const float> in, const BlockShape& shape, const BlockFormat& format,
                   std::span<float> scales);

/// Replaces every element by the value that represents it, element * scale in fp32, and writes the
/// scales of the blocks (for nvfp4 the e4m3fn ones, without the tensor's). A block with a NaN or an
/// infinity becomes NaN, including its scale: OCP MX 1.0 leaves the conversion to the
/// implementation, but a NaN scale makes the whole block NaN (5.1), and fp6 and fp4 have no other
/// way to represent it. Such values do not count for nvfp4's tensor scale. `in` and `out` may be
/// the same; throws Error if sizes do not match. `stats` are set, not added to.
void quantize(std::span<const float> in, const BlockShape& shape, const BlockFormat& format,
              std::span<float> out, std::span<float> scales, BlockStats* stats = nullptr);

/// Quantizes blocks along the rows of a matrix.
void quantize(std::span<const float> in, int64_t rows, int64_t cols, const BlockFormat& format,
              std::span<float> out, std::span<float> scales, BlockStats* stats = nullptr);

}  // namespace halfscope
