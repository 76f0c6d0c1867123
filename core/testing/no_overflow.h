// SPDX-License-Identifier: MIT
// EXPECT_NO_OVERFLOW: runs a kernel and fails if it overflows.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>
#include <vector>

#include "core/numeric/types/float_events.h"
#include "core/testing/values.h"

/// Runs `...`, a function without arguments, and fails if a number overflows `format` in it.
/// Overflow: a finite result that `format` cannot represent after rounding, even if it saturates.
///
/// Two things are seen:
///  - every operation and conversion of the type halfscope::Float<format> (`half`, `bfloat16` ...)
///    on this thread, also inside sums. The failure names the first one, with its operands.
///  - the numbers that the function returns (a number, a range or a Tensor), of any type: those
///  that
///    are not finite, and those larger than `format` can represent.
/// Anything else stays unseen: float, _Float16 or double variables inside the kernel, and other
/// threads. So that it cannot pass without looking, it also fails if the function neither computed
/// in that type nor returned a number.
#define EXPECT_NO_OVERFLOW(format, ...) \
  EXPECT_TRUE(::halfscope::testing::no_overflow((format), __VA_ARGS__))
/// The same, but ends the test.
#define ASSERT_NO_OVERFLOW(format, ...) \
  ASSERT_TRUE(::halfscope::testing::no_overflow((format), __VA_ARGS__))

namespace halfscope::testing {
namespace detail {

inline std::string event_text(const FloatEvent& event) {
  std::string text(float_operation_name(event.operation));
  for (int i = 0; i < event.operand_count; ++i) {
    char number[40];
    std::snprintf(number, sizeof(number), "%.9g", event.operands[i]);
    text += (i == 0 ? "(" : ", ") + std::string(number);
  }
  return text + ")";
}

/// Returns what overflowed among the numbers that a kernel returned, or "".
inline std::string overflow_text(const std::vector<double>& values, const Shape& shape,
                                 const FloatFormat& format) {
  size_t count = 0, first = 0;
  for (size_t i = values.size(); i-- > 0;) {
    const bool over = (round_to_format(values[i], format).flags & kOverflow) != 0;
    if (std::isfinite(values[i]) && !over) continue;
    ++count;
    first = i;
  }
  if (count == 0) return "";
  return std::to_string(count) + " of " + std::to_string(values.size()) +
         " returned numbers overflow " + format_name(format) + "; the first is " +
         element_text(first, values.size(), shape) + ": " + value_text(values[first], format);
}

}  // namespace detail

/// Returns success if `kernel` does not overflow; see EXPECT_NO_OVERFLOW.
template <class Kernel>
::testing::AssertionResult no_overflow(const FloatFormat& format, Kernel&& kernel) {
  FloatEventScope scope(format);
  std::string returned;
  bool has_numbers = false;
  if constexpr (std::is_void_v<std::invoke_result_t<Kernel&>>) {
    kernel();
  } else {
    const auto& result = kernel();
    const std::vector<double> values = detail::values_of(result);
    has_numbers = !values.empty();
    returned = detail::overflow_text(values, detail::shape_of(result, {}), format);
  }
  const FloatEventCounts& counts = scope.counts();
  const std::string name = format_name(format);
  if (counts.overflows > 0) {
    const FloatEvent first = scope.first(kOverflow).value_or(FloatEvent{});
    return ::testing::AssertionFailure()
           << counts.overflows << " of " << counts.operations + counts.conversions << " " << name
           << " operations overflow; the first is operation " << first.index << ": "
           << detail::event_text(first) << (returned.empty() ? "" : "\n") << returned;
  }
  if (!returned.empty()) return ::testing::AssertionFailure() << returned;
  if (counts.operations + counts.conversions == 0 && !has_numbers) {
    return ::testing::AssertionFailure()
           << "nothing was seen: the kernel neither computed in halfscope::Float<" << name
           << "> on this thread nor returned its outputs";
  }
  return ::testing::AssertionSuccess();
}

}  // namespace halfscope::testing
