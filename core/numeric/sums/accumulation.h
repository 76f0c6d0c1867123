// SPDX-License-Identifier: MIT
// Accumulation: the named orders and precisions in which operators sum (ARCHITECTURE: Plan), and
// their text form KIND[:OPTION,...]: "fp32", "format:rounding=stochastic", "tensor-core:h100".
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/rounding.h"

namespace halfscope {

struct Accumulation {
  enum class Kind : uint8_t {
    fp32,              ///< one ascending-k chain of fp32 fused multiply-adds
    fp64,              ///< the same chain in double, rounded once at the end
    pairwise,          ///< fp32 products, added as a balanced tree of fp32 additions
    kahan,             ///< fp32 with compensation: y = fma(a, b, -c), t = s + y, c = (t - s) - y
    format,            ///< exact fma, rounded to the write format after every term
    format_mul_add,    ///< product rounded to the write format, then the sum
    fma32_then_round,  ///< fp32 fma, rounded to the write format: a common shortcut that rounds
                       ///< twice and is wrong in about 4e-5 of the steps of fp16 sums
    tensor_core,       ///< blocks of products as a GPU's tensor cores sum them (tensor_core.h)
  };
  // The kinds as Accumulation::fp32 and so on (GCC 12 breaks down over `using enum` here).
  static constexpr Kind fp32 = Kind::fp32;
  static constexpr Kind fp64 = Kind::fp64;
  static constexpr Kind pairwise = Kind::pairwise;
  static constexpr Kind kahan = Kind::kahan;
  static constexpr Kind format = Kind::format;
  static constexpr Kind format_mul_add = Kind::format_mul_add;
  static constexpr Kind fma32_then_round = Kind::fma32_then_round;
  static constexpr Kind tensor_core = Kind::tensor_core;

  Kind kind = Kind::fp32;
  /// tensor_core: a name of tensor_core_archs(), which says what formats of operands it takes.
  /// Products of operands in fp32, and plain sums, are fp32 chains instead.
  std::string arch = "";
  /// tensor_core: fp16 accumulators instead of fp32.
  bool half_accumulator = false;
  /// Terms after which a chain is added to an fp32 total and begins anew; 0: never.
  int64_t promote = 0;
  /// Contiguous parts of k, of ceil(k / split_k) terms but for the last one (so there may be fewer
  /// parts), whose sums are added in fp32.
  int64_t split_k = 1;
  /// format and format_mul_add: how products and sums are brought to the write format. Stochastic
  /// draws are those of SumDraws (accumulate.h).
  RoundingChoice rounding{};

  Accumulation() = default;
  Accumulation(Kind k) : kind(k) {}  // NOLINT: a kind is the accumulation without options

  friend bool operator==(const Accumulation&, const Accumulation&) = default;

  /// One chain over all terms.
  bool is_single_chain() const noexcept { return promote == 0 && split_k == 1; }
  /// Its partial sums are values of a format that may be narrower than fp32.
  bool sums_in_format() const noexcept {
    return kind == Kind::format || kind == Kind::format_mul_add || kind == Kind::fma32_then_round;
  }
  /// Other than to nearest even, which all kernels know.
  bool rounds_otherwise() const noexcept { return rounding.mode != RoundingMode::nearest_even; }
};

/// "fp32", "format-mul-add:rounding=toward-zero", "tensor-core:h100,promote=128".
std::string accumulation_name(const Accumulation& accumulation);
/// The way back; nothing for anything else. Tensor cores may be given by any of their aliases.
std::optional<Accumulation> parse_accumulation(std::string_view text);
/// What parse_accumulation reads, for messages and completion: kinds without options, and one
/// entry for every tensor core.
std::span<const std::string> accumulation_names();

/// How to sum, and the formats around it.
struct SumSpec {
  Accumulation accumulation;
  FloatFormat write = kFp32;  ///< what the caller will round the result to
  FloatFormat read = kFp32;   ///< of both operands of a product
  uint64_t key = 0;           ///< of stochastic sums: random_key() of their place and step
  /// Format of the second operand, if it is another one.
  std::optional<FloatFormat> read_b = std::nullopt;

  FloatFormat b_format() const noexcept { return read_b.value_or(read); }
  /// The same sums with the operands exchanged.
  SumSpec swapped() const {
    SumSpec result = *this;
    result.read = b_format();
    if (read_b) result.read_b = read;
    return result;
  }
};

}  // namespace halfscope
