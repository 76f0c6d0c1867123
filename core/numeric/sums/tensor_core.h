// SPDX-License-Identifier: MIT
// Tensor cores by name: which fused_dot an architecture performs for which formats, and the dot
// product of any length that a matrix product with a given K order builds from them. A profile is a
// value; properties not established on hardware are fields of it, with the likeliest default.
// Sources and their grades: A = equal bits on vectors from the GPU, B = publications only, C =
// contested. FP64 (DMMA) is a chain of correctly rounded fmas and needs no model.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/numeric/formats/float_format.h"
#include "core/numeric/sums/fused_dot.h"
#include "core/numeric/sums/sum_diagnostics.h"

namespace halfscope {

enum class TensorCorePath : uint8_t {
  native,      ///< blocks of `dot.products` in ascending k, c inside the first sum
  fp16_split,  ///< fp8 unpacked to fp16: see tensor_core_dot
};

/// Scales of blocks of K (PTX mma kinds); `none` for ordinary operands.
enum class BlockScale : uint8_t {
  none,
  mxf8f6f4,  ///< ue8m0 per 32 elements; its exponents are added to those of the products
  mxf4,      ///< e2m1 with ue8m0 per 32 elements
  nvf4,      ///< e2m1 with ue4m3 per 16 elements
};

struct TensorCoreProfile {
  FusedDot dot;
  TensorCorePath path = TensorCorePath::native;
  BlockScale scale = BlockScale::none;
  FloatFormat a_format = kFp16, b_format = kFp16;  ///< fp8 formats may be mixed
  FloatFormat accumulator = kFp32;                 ///< format of c: fp32 or fp16
  char grade = 'B';

  friend constexpr bool operator==(const TensorCoreProfile&, const TensorCoreProfile&) = default;

  /// Returns the elements of K in one step of the chain.
  constexpr int step() const noexcept {
    return path == TensorCorePath::fp16_split ? 2 * dot.products : dot.products;
  }
  /// Returns the elements of K that share a scale; 0 without scales.
  constexpr int scale_block() const noexcept {
    return scale == BlockScale::none ? 0 : scale == BlockScale::nvf4 ? 16 : 32;
  }
};

struct TensorCoreArch {
  std::string_view name;   ///< "h100-wgmma"
  std::string_view about;  ///< which instructions of which chips
  std::span<const std::string_view> aliases;
};

std::span<const TensorCoreArch> tensor_core_archs() noexcept;

/// Finds an architecture by name or alias, ignoring case; nullptr if there is none.
const TensorCoreArch* find_tensor_core_arch(std::string_view name) noexcept;

/// Returns the architecture's profile for these formats (accumulator: fp32 or fp16), or nothing if
/// it has no such instruction. fp6 and fp4 inputs are e3m2, e2m3 and e2m1 whatever their encoding,
/// because only finite values have a meaning there.
std::optional<TensorCoreProfile> tensor_core_profile(std::string_view arch,
                                                     const FloatFormat& input,
                                                     const FloatFormat& accumulator = kFp32,
                                                     BlockScale scale = BlockScale::none) noexcept;

/// Returns the same for operands of two formats: equal ones, or any two of at most 8 bits.
std::optional<TensorCoreProfile> tensor_core_profile(std::string_view arch, const FloatFormat& a,
                                                     const FloatFormat& b,
                                                     const FloatFormat& accumulator) noexcept;

/// The order in which a matrix product walks through K. Partial sums of the chains are added in
/// fp32, nearest even, in the order given here, starting from +0. If there is only one chain it
/// starts from c; otherwise c is added last, as an epilogue does. With fp16 accumulators the total
/// is rounded to fp16 once.
struct TensorCorePlan {
  int64_t slices = 1;         ///< split-K: contiguous parts of K, made of whole tiles
  int64_t interleave = 1;     ///< sliced-K: warps that share every tile, each with a chain
  int64_t tile = 0;           ///< elements of K per tile; 0: one step per warp
  int64_t promote_every = 0;  ///< elements after which a chain is added to a total; 0: never
  bool fill = true;           ///< a last short block is filled with zero products, as kernels do

  friend constexpr bool operator==(const TensorCorePlan&, const TensorCorePlan&) = default;
};

/// Returns c + sum of a[k] * b[k]. Operands are values of the profile's formats (the lower 13 bits
/// of tf32 are dropped, as in hardware); c is rounded to the accumulator's format.
/// fp16_split (mma.sync fp8 on sm_90 and sm_100, from the machine code): per 32 elements a chain
/// from 0 over those with k mod 4 in {0, 1}, then over the others, added to c by an ordinary
/// addition of the accumulator's format.
/// `a_scales` and `b_scales` have one value per scale_block() elements, beginning with the first.
/// Total: plan fields out of range mean 1 or 0, missing scales 1. `seen`, if given, records what
/// happens; only for operands without block scales.
float tensor_core_dot(const TensorCoreProfile& profile, std::span<const float> a,
                      std::span<const float> b, float c, const TensorCorePlan& plan = {},
                      std::span<const float> a_scales = {}, std::span<const float> b_scales = {},
                      SumDiagnostics* seen = nullptr) noexcept;

}  // namespace halfscope
