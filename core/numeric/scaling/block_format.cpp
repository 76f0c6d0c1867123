// SPDX-License-Identifier: MIT
// Quantisation by blocks. Everything between the fp32 input and the single rounding of an element
// is exact in double, or a quotient whose double is on the same side of all midpoints.
#include "core/numeric/scaling/block_format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "core/error.h"
#include "core/numeric/scaling/block_part.h"

namespace halfscope {
namespace {

struct NamedBlockFormat {
  std::string_view name;
  BlockFormat format;
};
constexpr std::array<NamedBlockFormat, 6> kBlockFormatNames{{{"mxfp8_e4m3", kMxfp8E4m3},
                                                             {"mxfp8_e5m2", kMxfp8E5m2},
                                                             {"mxfp6_e3m2", kMxfp6E3m2},
                                                             {"mxfp6_e2m3", kMxfp6E2m3},
                                                             {"mxfp4", kMxfp4},
                                                             {"nvfp4", kNvfp4}}};

constexpr double kLargestFloat = static_cast<double>(std::numeric_limits<float>::max());

/// One block: `rows` times `count` elements starting at `first`, with strides `row_stride` and
/// `stride`.
struct Block {
  int64_t first, count, stride;
  int64_t rows = 1, row_stride = 0;
};

template <class Visit>
void each_element(const Block& block, Visit visit) {
  for (int64_t row = 0; row < block.rows; ++row) {
    for (int64_t i = 0; i < block.count; ++i) {
      visit(static_cast<size_t>(block.first + row * block.row_stride + i * block.stride));
    }
  }
}

constexpr uint32_t kMagnitudeBits = 0x7fffffff, kInfinityBits = 0x7f800000;

/// Returns the largest magnitude of every block, in the order of the scales, as bits. Bits are
/// ordered like magnitudes, with infinity and NaN last.
std::vector<uint32_t> largest_of_blocks(std::span<const float> in, const BlockShape& shape,
                                        const BlockFormat& format) {
  std::vector<uint32_t> largest(static_cast<size_t>(block_count(shape, format)), 0);
  const int64_t blocks = blocks_along(shape, format);
  const float* x = in.data();
  for (int64_t outer = 0; outer < shape.outer; ++outer) {
    uint32_t* const row = largest.data() + outer / shape.outer_block * blocks * shape.inner;
    for (int64_t at = 0; at < shape.length; at += format.block_size) {
      const int64_t count = std::min<int64_t>(format.block_size, shape.length - at);
      uint32_t* const to = row + at / format.block_size * shape.inner;
      if (shape.inner == 1) {
        uint32_t most = *to;
        for (int64_t i = 0; i < count; ++i) {
          most = std::max(most, std::bit_cast<uint32_t>(x[i]) & kMagnitudeBits);
        }
        *to = most;
        x += count;
        continue;
      }
      for (int64_t i = 0; i < count; ++i, x += shape.inner) {
        for (int64_t j = 0; j < shape.inner; ++j) {
          to[j] = std::max(to[j], std::bit_cast<uint32_t>(x[j]) & kMagnitudeBits);
        }
      }
    }
  }
  return largest;
}

Rounded<float> round_element(double x, const FloatFormat& element, RoundingMode mode) {
  return detail::round_bits<uint64_t, 52>(std::bit_cast<uint64_t>(x), element, {.mode = mode});
}

/// Returns element * scale for an x of a block with this scale.
float quantize_value(float x, double scale, const FloatFormat& element, BlockStats& stats) {
  if (scale == 0 || x == 0) {
    stats.flushed += x != 0 ? 1 : 0;
    return std::copysign(0.0f, x);
  }
  const double ratio = static_cast<double>(x) / scale;
  Rounded<float> code = round_element(ratio, element, RoundingMode::nearest_even);
  bool clipped = (code.flags & kOverflow) != 0;
  if (std::fabs(static_cast<double>(code.value)) * scale > kLargestFloat) {
    // Rounded up to 2^128, which the element format has but fp32 does not.
    code = round_element(ratio, element, RoundingMode::toward_zero);
    clipped = true;
  }
  stats.clipped += clipped ? 1 : 0;
  stats.flushed += (code.flags & kFlushed) != 0 ? 1 : 0;
  const double value = static_cast<double>(code.value) * scale;
  return static_cast<float>(std::clamp(value, -kLargestFloat, kLargestFloat));
}

/// Returns the same for an fp32 scale, with a quotient in fp32: 0 / 0 for zeros of an unguarded
/// block.
float quantize_quotient(float x, float scale, const FloatFormat& element, BlockStats& stats) {
  const Rounded<float> code = round_to_format(x / scale, element);
  stats.clipped += (code.flags & kOverflow) != 0 ? 1 : 0;
  stats.flushed += x != 0 && code.value == 0 ? 1 : 0;
  const double value = static_cast<double>(code.value) * static_cast<double>(scale);
  if (std::isnan(value)) return static_cast<float>(value);
  return static_cast<float>(std::clamp(value, -kLargestFloat, kLargestFloat));
}

template <class Visit>
void each_block(const BlockShape& shape, const BlockFormat& format, Visit visit) {
  int64_t index = 0;
  for (int64_t outer = 0; outer < shape.outer; outer += shape.outer_block) {
    for (int64_t start = 0; start < shape.length; start += format.block_size) {
      for (int64_t inner = 0; inner < shape.inner; ++inner) {
        visit(index++, Block{.first = (outer * shape.length + start) * shape.inner + inner,
                             .count = std::min<int64_t>(format.block_size, shape.length - start),
                             .stride = shape.inner,
                             .rows = std::min(shape.outer_block, shape.outer - outer),
                             .row_stride = shape.length * shape.inner});
      }
    }
  }
}

void check_sizes(std::span<const float> in, const BlockShape& shape, const BlockFormat& format,
                 std::span<float> scales) {
  if (format.block_size < 1 || shape.outer_block < 1 || !is_valid(format.element)) {
    throw Error("invalid block format");
  }
  const bool negative = shape.outer < 0 || shape.length < 0 || shape.inner < 0;
  const int64_t size = shape.outer * shape.length * shape.inner;
  if (negative || static_cast<int64_t>(in.size()) != size ||
      static_cast<int64_t>(scales.size()) != block_count(shape, format)) {
    throw Error("quantize: the sizes of the spans do not match the shape");
  }
}

/// Returns the scale of a tensor with this largest finite magnitude.
float tensor_scale_of(const BlockFormat& format, float largest) {
  return format.scale == ScaleKind::e4m3fn_and_fp32 ? nvfp4_tensor_scale(largest) : 1.0f;
}

void write_scales(std::span<const float> in, const BlockShape& shape, const BlockFormat& format,
                  float tensor_scale, std::span<float> scales) {
  check_sizes(in, shape, format, scales);
  const std::vector<uint32_t> largest = largest_of_blocks(in, shape, format);
  for (size_t i = 0; i < largest.size(); ++i) {
    scales[i] = block_scale(largest[i], format, static_cast<double>(tensor_scale));
  }
}

}  // namespace

float largest_finite(std::span<const float> values) noexcept {
  uint32_t largest = 0;
  for (const float x : values) {
    const uint32_t bits = std::bit_cast<uint32_t>(x) & kMagnitudeBits;
    largest = std::max(largest, bits < kInfinityBits ? bits : 0);
  }
  return std::bit_cast<float>(largest);
}

std::optional<BlockFormat> parse_block_format(std::string_view text) {
  constexpr std::string_view kUp = ":up";
  const bool up = text.ends_with(kUp);
  if (up) text.remove_suffix(kUp.size());
  for (const auto& [name, format] : kBlockFormatNames) {
    if (text != name || (up && format.scale != ScaleKind::ue8m0)) continue;
    BlockFormat result = format;
    if (up) result.rule = ScaleRule::up;
    return result;
  }
  return std::nullopt;
}

std::string block_format_name(const BlockFormat& format) {
  BlockFormat plain = format;
  plain.rule = ScaleRule::floor;
  for (const auto& [name, each] : kBlockFormatNames) {
    if (plain != each) continue;
    const bool up = format.rule == ScaleRule::up && format.scale == ScaleKind::ue8m0;
    return std::string(name) + (up ? ":up" : "");
  }
  return "custom";
}

float block_scales(std::span<const float> in, const BlockShape& shape, const BlockFormat& format,
                   std::span<float> scales) {
  const bool scaled = format.scale == ScaleKind::e4m3fn_and_fp32;
  const float tensor_scale = tensor_scale_of(format, scaled ? largest_finite(in) : 0.0f);
  write_scales(in, shape, format, tensor_scale, scales);
  return tensor_scale;
}

void quantize(std::span<const float> in, const BlockShape& shape, const BlockFormat& format,
              std::span<float> out, std::span<float> scales, BlockStats* stats) {
  const bool scaled = format.scale == ScaleKind::e4m3fn_and_fp32;
  quantize_part(in, shape, format, scaled ? largest_finite(in) : 0.0f, out, scales, stats);
}

void quantize_part(std::span<const float> in, const BlockShape& shape, const BlockFormat& format,
                   float largest, std::span<float> out, std::span<float> scales,
                   BlockStats* stats) {
  if (out.size() != in.size()) throw Error("quantize: in and out differ in size");
  FloatFormat element = format.element;
  element.saturate = true;
  BlockStats counts{.values = static_cast<int64_t>(in.size()),
                    .tensor_scale = tensor_scale_of(format, largest)};
  write_scales(in, shape, format, counts.tensor_scale, scales);
  each_block(shape, format, [&](int64_t index, const Block& block) {
    const float stored = scales[static_cast<size_t>(index)];
    const bool finite = !std::isnan(stored);
    const double scale =
        static_cast<double>(stored) * static_cast<double>(counts.tensor_scale);  // 28 bits
    counts.nan_blocks += finite ? 0 : 1;
    each_element(block, [&](size_t at) {
      out[at] = !finite ? stored
                : format.scale == ScaleKind::fp32
                    ? quantize_quotient(in[at], stored, element, counts)
                    : quantize_value(in[at], scale, element, counts);
    });
  });
  if (stats != nullptr) *stats = counts;
}

void quantize(std::span<const float> in, int64_t rows, int64_t cols, const BlockFormat& format,
              std::span<float> out, std::span<float> scales, BlockStats* stats) {
  quantize(in, {.outer = rows, .length = cols, .inner = 1}, format, out, scales, stats);
}

}  // namespace halfscope
