// SPDX-License-Identifier: MIT
// Accumulation: the named orders and precisions in which operators sum, and their text form
// KIND[:OPTION,...]: "fp32", "format:rounding=stochastic", "tensor-core:h100".
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/rounding.h"

namespace halfscope {

/// Partial sums of `interleaved16`, and of the double sums inside fused operators. Sum j is added
/// to sum j - 8, then sum j to sum j - 4, j - 2 and j - 1: a balanced tree.
inline constexpr int kPartialSums = 16;

struct Accumulation {
  enum class Kind : uint8_t {
    fp32,              ///< one ascending-k chain of fp32 fused multiply-adds
    fp64,              ///< the same chain in double, rounded once at the end
    pairwise,          ///< fp32 products, added as a balanced tree of fp32 additions
    interleaved16,     ///< kPartialSums chains of fp32 fused multiply-adds: term k is added to
                       ///< chain k % kPartialSums; their sums are added as a balanced tree
    kahan,             ///< fp32 with compensation: y = fma(a, b, -c), t = s + y, c = (t - s) - y
    format,            ///< exact fma, rounded to the write format after every term
    format_mul_add,    ///< product rounded to the write format, then the sum
    fma32_then_round,  ///< fp32 fma, rounded to the write format: a common shortcut that rounds
                       ///< twice and is wrong in about 4e-5 of the steps of fp16 sums
    tensor_core,       ///< blocks of products, summed like a GPU's tensor cores (tensor_core.h)
  };
  // The kinds as Accumulation::fp32 and so on (GCC 12 fails on `using enum` here).
  static constexpr Kind fp32 = Kind::fp32;
  static constexpr Kind fp64 = Kind::fp64;
  static constexpr Kind pairwise = Kind::pairwise;
  static constexpr Kind interleaved16 = Kind::interleaved16;
  static constexpr Kind kahan = Kind::kahan;
  static constexpr Kind format = Kind::format;
  static constexpr Kind format_mul_add = Kind::format_mul_add;
  static constexpr Kind fma32_then_round = Kind::fma32_then_round;
  static constexpr Kind tensor_core = Kind::tensor_core;

  Kind kind = Kind::fp32;
  /// tensor_core: a name in tensor_core_archs(), which defines its operand formats. Products of
  /// fp32 operands, and plain sums, are fp32 chains instead.
  std::string arch = "";
  /// tensor_core: fp16 accumulators instead of fp32.
  bool half_accumulator = false;
  /// Terms after which a chain is added to an fp32 total and restarts; 0: never.
  int64_t promote = 0;
  /// Number of contiguous parts of k, whose sums are added in fp32. All have ceil(k / split_k)
  /// terms except the last one, so there may be fewer parts.
  int64_t split_k = 1;
  /// format and format_mul_add: how products and sums are rounded to the write format. SumDraws
  /// (accumulate.h) defines the stochastic draws.
  RoundingChoice rounding{};

  Accumulation() = default;
  Accumulation(Kind k) : kind(k) {}  // NOLINT: a kind is the accumulation without options

  friend bool operator==(const Accumulation&, const Accumulation&) = default;

  /// Returns whether a single chain sums all terms.
  bool is_single_chain() const noexcept { return promote == 0 && split_k == 1; }
  /// Returns whether partial sums are values of the write format, which may have fewer bits than
  /// fp32.
  bool sums_in_format() const noexcept {
    return kind == Kind::format || kind == Kind::format_mul_add || kind == Kind::fma32_then_round;
  }
  /// Returns whether it rounds other than to nearest even, which all kernels support.
  bool rounds_otherwise() const noexcept { return rounding.mode != RoundingMode::nearest_even; }
};

/// Returns "fp32", "format-mul-add:rounding=toward-zero", "tensor-core:h100,promote=128".
std::string accumulation_name(const Accumulation& accumulation);
/// Parses the text of accumulation_name(); returns nothing for any other text. Tensor cores may be
/// named by any of their aliases.
std::optional<Accumulation> parse_accumulation(std::string_view text);
/// Returns what parse_accumulation accepts, for messages and completion: kinds without options, and
/// one entry for every tensor core.
std::span<const std::string> accumulation_names();

/// An accumulation and the formats around it.
struct SumSpec {
  Accumulation accumulation;
  FloatFormat write = kFp32;  ///< format to which the caller rounds the result
  FloatFormat read = kFp32;   ///< format of both operands of a product
  uint64_t key = 0;           ///< stochastic sums: random_key() of their place and step
  /// Format of the second operand, if different.
  std::optional<FloatFormat> read_b = std::nullopt;

  FloatFormat b_format() const noexcept { return read_b.value_or(read); }
  /// Returns the same sums with the operands exchanged.
  SumSpec swapped() const {
    SumSpec result = *this;
    result.read = b_format();
    if (read_b) result.read_b = read;
    return result;
  }
};

}  // namespace halfscope
