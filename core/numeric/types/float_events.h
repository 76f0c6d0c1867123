// SPDX-License-Identifier: MIT
// FloatEventScope: counts, during its lifetime, the effects of operations on the types in
// float_value.h and keeps the first event of each kind. For the unit tests of kernels: "no overflow
// on these inputs". Scopes belong to one thread and nest; an inner scope's operations also count in
// the outer ones. Without a scope an operation costs one load and one branch. Constant evaluation
// counts nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/rounding.h"

namespace halfscope {

/// The operations that are counted. Comparison, sign changes, abs and reading a value as float or
/// double are not: they never round.
enum class FloatOperation : uint8_t { add, sub, mul, div, sqrt, fma, convert };

constexpr std::string_view float_operation_name(FloatOperation operation) noexcept {
  constexpr std::string_view kNames[] = {"add", "sub", "mul", "div", "sqrt", "fma", "convert"};
  return kNames[static_cast<int>(operation)];
}

/// One operation with a reportable effect.
struct FloatEvent {
  FloatOperation operation = FloatOperation::convert;
  FloatFormat format;       ///< of the result
  int operand_count = 0;    ///< number of `operands` in use
  double operands[3] = {};  ///< exact, except integers beyond 2^53
  float result = 0;
  uint8_t flags = kExact;  ///< RoundFlags
  uint64_t index = 0;      ///< number of operations and conversions in this scope before it
};

/// Counts of operations by effect; one operation may count in several. Conversions count here, too,
/// but not in `operations`.
struct FloatEventCounts {
  uint64_t operations = 0;      ///< + - * / sqrt fma
  uint64_t conversions = 0;     ///< constructions from another type
  uint64_t inexact = 0;         ///< the result is not the exact one
  uint64_t overflows = 0;       ///< beyond the largest finite value
  uint64_t underflows = 0;      ///< tiny and inexact
  uint64_t flushed = 0;         ///< the underflows whose result is zero
  uint64_t invalid = 0;         ///< inf - inf, 0 / 0, sqrt(-1), ...
  uint64_t divide_by_zero = 0;  ///< finite / 0

  friend constexpr bool operator==(const FloatEventCounts&, const FloatEventCounts&) = default;
};

class FloatEventScope {
 public:
  FloatEventScope() noexcept;
  /// Counts only operations whose results are in this format, with any options.
  explicit FloatEventScope(const FloatFormat& only) noexcept;
  ~FloatEventScope();
  FloatEventScope(const FloatEventScope&) = delete;
  FloatEventScope& operator=(const FloatEventScope&) = delete;

  const FloatEventCounts& counts() const noexcept { return counts_; }

  /// Returns the first operation that raised `flag` (one of kInexact, kOverflow, kUnderflow,
  /// kInvalid and kDivideByZero), or nothing if none did.
  std::optional<FloatEvent> first(RoundFlags flag) const noexcept;

  /// Records an event of the number types; sets `event.index`.
  void record(const FloatEvent& event) noexcept;
  FloatEventScope* outer() const noexcept { return outer_; }

 private:
  static constexpr RoundFlags kKinds[] = {kInexact, kOverflow, kUnderflow, kInvalid, kDivideByZero};

  std::optional<FloatFormat> only_;
  FloatEventCounts counts_;
  uint8_t seen_ = 0;      ///< flags that have an event in firsts_
  FloatEvent firsts_[5];  ///< in the order of kKinds
  FloatEventScope* outer_;
};

namespace detail {

/// The innermost scope of this thread. constinit: no guard, no wrapper function around each use.
extern constinit thread_local FloatEventScope* float_event_scope;

/// Records an event in all scopes of this thread.
void record_float_event(const FloatEvent& event) noexcept;

}  // namespace detail
}  // namespace halfscope
