// SPDX-License-Identifier: MIT
// Dot products of any length: chains of blocks, and the sums of chains that a plan requests.
#include "core/numeric/sums/tensor_core.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/numeric/formats/round.h"

namespace halfscope {
namespace {

/// Adds chains in fp32, nearest even, with the NaN that GPUs return.
float add(float x, float y) noexcept {
  const float sum = x + y;
  return std::isnan(sum) ? kTensorCoreNan : sum;
}

/// Rounds to the accumulator's format.
float to_accumulator(const TensorCoreProfile& profile, float x) noexcept {
  const bool fp16 = profile.dot.output == BlockOutput::rne_fp16;
  if (std::isnan(x)) return tensor_core_nan(profile.dot.output);
  return fp16 ? round_to_format(x, kFp16).value : x;
}

/// Returns the operand as hardware reads it: of an fp32 word for tf32 only the upper 19 bits.
float as_read(float x, const FloatFormat& format) noexcept {
  if (format != kTf32) return x;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & ~0x1FFFu);
}

/// Returns the exponent of a ue8m0 scale.
int scale_exponent(float scale) noexcept {
  int exponent = 0;
  std::frexp(scale, &exponent);
  return exponent - 1;
}

/// The operands with their scales; all indices are positions in K.
struct Operands {
  std::span<const float> a, b, a_scales, b_scales;

  static float at(std::span<const float> scales, int64_t index) noexcept {
    return index < static_cast<int64_t>(scales.size()) ? scales[static_cast<size_t>(index)] : 1.0f;
  }
};

/// One accumulator: receives products in the order of its K and processes them one step at a time.
class Chain {
 public:
  Chain(const TensorCoreProfile& profile, const Operands& operands, bool fill,
        SumDiagnostics* seen) noexcept
      : profile_(profile),
        seen_(seen),
        operands_(operands),
        step_(std::clamp(profile.step(), 1, kMaxBlockProducts)),
        fill_(fill) {}

  void start(float c) noexcept { sum_ = to_accumulator(profile_, c); }

  void push(int64_t k) noexcept {
    const size_t index = static_cast<size_t>(k);
    if (pending_ == 0) first_ = k;
    a_[pending_] = as_read(operands_.a[index], profile_.a_format);
    b_[pending_] = as_read(operands_.b[index], profile_.b_format);
    if (++pending_ == step_) work();
  }

  float finish() noexcept {
    if (pending_ > 0) {
      while (fill_ && pending_ < step_) {
        a_[pending_] = 0.0f;
        b_[pending_++] = 0.0f;
      }
      work();
    }
    return sum_;
  }

 private:
  void work() noexcept {
    const int count = pending_;
    pending_ = 0;
    if (profile_.path == TensorCorePath::fp16_split) {
      work_split(count);
    } else if (profile_.scale == BlockScale::mxf4 || profile_.scale == BlockScale::nvf4) {
      work_groups(count);
    } else {
      int exponent = 0;
      if (profile_.scale == BlockScale::mxf8f6f4) {
        const float u = Operands::at(operands_.a_scales, first_ / profile_.scale_block());
        const float v = Operands::at(operands_.b_scales, first_ / profile_.scale_block());
        if (!std::isfinite(u) || !std::isfinite(v)) {  // ue8m0 has a NaN but no infinity
          sum_ = tensor_core_nan(profile_.dot.output);
          return;
        }
        exponent = scale_exponent(u) + scale_exponent(v);
      }
      sum_ = block(profile_.a_format, profile_.b_format, a_, b_, count, sum_, exponent);
    }
  }

  /// Runs fused_dot and records what happens.
  float block(const FloatFormat& a_format, const FloatFormat& b_format, const float* a,
              const float* b, int count, float c, int exponent) noexcept {
    const float sum = fused_dot(profile_.dot, a_format, b_format, a, b, count, c, exponent);
    if (seen_ == nullptr || !std::isfinite(c)) return sum;
    const SwampedProducts found =
        swamped_products(profile_.dot, a_format, b_format, a, b, count, c);
    seen_->products += found.products;
    seen_->swamped += found.swamped;
    if (std::isfinite(sum)) {
      seen_->largest = std::max(seen_->largest, static_cast<double>(std::fabs(sum)));
    } else if (!found.specials) {
      note_overflow();
    }
    return sum;
  }

  void note_overflow() noexcept {
    seen_->overflowed = 1;
    const bool first = seen_->first_overflow < 0 || first_ < seen_->first_overflow;
    if (first) seen_->first_overflow = first_;
  }

  void work_split(int count) noexcept {
    float partial = 0.0f;
    for (const int half : {0, 2}) {
      float a[kMaxBlockProducts], b[kMaxBlockProducts];
      int n = 0;
      for (int k = 0; k < count; ++k) {
        if ((k & 2) != half) continue;
        a[n] = a_[k];
        b[n++] = b_[k];
      }
      // fp8 values are normal numbers of fp16 or its subnormals: raw exponents are fp16's.
      partial = block(kFp16, kFp16, a, b, n, partial, 0);
    }
    // Rounding sums of two fp16 numbers to fp32 first is harmless: 24 >= 2 * 11 + 2 bits.
    const float before = sum_;
    sum_ = to_accumulator(profile_, add(partial, before));
    if (seen_ == nullptr || !std::isfinite(partial) || !std::isfinite(before)) return;
    if (!std::isfinite(sum_)) return note_overflow();
    seen_->largest = std::max(seen_->largest, static_cast<double>(std::fabs(sum_)));
  }

  void work_groups(int count) noexcept {
    constexpr int kGroup = 16;
    float a_scales[kMaxBlockProducts / kGroup], b_scales[kMaxBlockProducts / kGroup];
    for (int group = 0; group < kMaxBlockProducts / kGroup; ++group) {
      const int64_t index = (first_ + group * kGroup) / profile_.scale_block();
      a_scales[group] = Operands::at(operands_.a_scales, index);
      b_scales[group] = Operands::at(operands_.b_scales, index);
    }
    const ScaleFormat format =
        profile_.scale == BlockScale::nvf4 ? ScaleFormat::ue4m3 : ScaleFormat::ue8m0;
    sum_ = grouped_dot(profile_.dot, format, a_, b_, count, a_scales, b_scales, sum_);
  }

  const TensorCoreProfile& profile_;
  SumDiagnostics* const seen_;
  const Operands& operands_;
  int step_;
  bool fill_;
  float sum_ = 0.0f;
  int pending_ = 0;
  int64_t first_ = 0;
  float a_[kMaxBlockProducts], b_[kMaxBlockProducts];
};

/// The part of K in [begin, end) assigned to warp `warp` of `warps`, as one chain from `c`, or as
/// chains from 0 of `promote_every` elements that are summed from 0.
struct Part {
  int64_t begin, end, warp, warps, tile, promote_every;
  bool fill;
  SumDiagnostics* seen;

  float sum(const TensorCoreProfile& profile, const Operands& operands, float c) const noexcept {
    Chain chain(profile, operands, fill, seen);
    chain.start(c);
    float total = 0.0f;
    int64_t taken = 0;
    const int64_t share = tile / warps;
    for (int64_t start = begin + warp * share; start < end; start += tile) {
      for (int64_t k = start; k < std::min(start + share, end); ++k) {
        if (promote_every > 0 && taken == promote_every) {
          total = add(total, chain.finish());
          chain.start(0.0f);
          taken = 0;
        }
        chain.push(k);
        ++taken;
      }
    }
    const float last = chain.finish();
    return promote_every > 0 ? add(total, last) : last;
  }
};

}  // namespace

float tensor_core_dot(const TensorCoreProfile& profile, std::span<const float> a,
                      std::span<const float> b, float c, const TensorCorePlan& plan,
                      std::span<const float> a_scales, std::span<const float> b_scales,
                      SumDiagnostics* seen) noexcept {
  const Operands operands{a, b, a_scales, b_scales};
  const int64_t n = static_cast<int64_t>(std::min(a.size(), b.size()));
  const int64_t most = std::max<int64_t>(n, 1);
  const int64_t step = std::clamp(profile.step(), 1, kMaxBlockProducts);
  const int64_t slices = std::clamp<int64_t>(plan.slices, 1, most);
  const int64_t warps = std::clamp<int64_t>(plan.interleave, 1, most);
  // A tile is a whole number of elements per warp; without sliced-K its size only affects the
  // rounding of slices.
  const int64_t wanted = plan.tile > 0 ? std::min(plan.tile, most) : step * warps;
  const int64_t tile = (wanted + warps - 1) / warps * warps;
  const int64_t promote_every = std::max<int64_t>(plan.promote_every, 0);

  if (slices == 1 && warps == 1 && promote_every == 0) {
    const Part all{0, n, 0, 1, tile, 0, plan.fill, seen};
    return all.sum(profile, operands, c);
  }
  const int64_t tiles = (n + tile - 1) / tile;
  const int64_t slice = std::max<int64_t>((tiles + slices - 1) / slices, 1) * tile;
  float total = 0.0f;
  for (int64_t begin = 0; begin < n; begin += slice) {
    const int64_t end = std::min(begin + slice, n);
    float partial = 0.0f;
    for (int64_t warp = 0; warp < warps; ++warp) {
      const Part part{begin, end, warp, warps, tile, promote_every, plan.fill, seen};
      const float sum = part.sum(profile, operands, 0.0f);
      partial = warp == 0 ? sum : add(partial, sum);
    }
    total = slices == 1 ? partial : add(total, partial);
  }
  return to_accumulator(profile, add(total, to_accumulator(profile, c)));
}

}  // namespace halfscope
