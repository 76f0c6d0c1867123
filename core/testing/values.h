// SPDX-License-Identifier: MIT
// Values of any type as doubles, and how failures print them. Used by the matchers beside it.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ranges>
#include <string>
#include <type_traits>
#include <vector>

#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/statistics/ulp.h"
#include "core/tensor.h"

namespace halfscope::testing::detail {

template <class T>
concept Scalar = std::is_constructible_v<double, T> && !std::ranges::range<T>;

/// Returns the value, exactly for floating-point types of up to 64 bits.
template <Scalar T>
double as_double(const T& x) {
  return static_cast<double>(x);
}

/// Returns a number, the elements of a range, or those of a Tensor.
template <class T>
std::vector<double> values_of(const T& x) {
  if constexpr (std::is_same_v<T, Tensor>) {
    return {x.data.begin(), x.data.end()};
  } else if constexpr (std::ranges::range<T>) {
    std::vector<double> values;
    for (const auto& element : x) values.push_back(as_double(element));
    return values;
  } else {
    return {as_double(x)};
  }
}

/// Returns the shape of a Tensor; otherwise the given one.
template <class T>
Shape shape_of(const T& x, const Shape& given) {
  if constexpr (std::is_same_v<T, Tensor>) {
    return given.empty() ? x.shape : given;
  } else {
    return given;
  }
}

/// Returns x rounded once to nearest even. Beyond a format without infinity that is infinity, as
/// ulp_distance() takes it.
inline float rounded(double x, const FloatFormat& format) {
  const double value = round_to_format(x, format).value;
  return std::isnan(value) && !std::isnan(x) ? static_cast<float>(std::copysign(INFINITY, x))
                                             : static_cast<float>(value);
}

/// Returns "1.5 (0x3e00)", or "0.1 (rounds to 0x2e66)" for a value that is not in the format.
inline std::string value_text(double x, const FloatFormat& format) {
  const double value = round_to_format(x, format).value;
  const uint32_t code = halfscope::detail::code_of_value(static_cast<float>(value), format);
  char text[96];
  const bool exact = value == x || (std::isnan(x) && std::isnan(value));
  std::snprintf(text, sizeof(text), "%.9g (%s0x%0*x)", x, exact ? "" : "rounds to ",
                (format.bits() + 3) / 4, code);
  return text;
}

/// Returns "element 37", with the position if a shape with that many elements is known: "element 37
/// at [1,5]".
inline std::string element_text(size_t index, size_t count, const Shape& shape) {
  std::string text = "element " + std::to_string(index);
  if (!shape.empty() && element_count(shape) == static_cast<int64_t>(count)) {
    text += " at " + position_text(shape, index);
  }
  return text;
}

/// Returns why a shape does not fit this many values, or "".
inline std::string shape_problem(size_t count, const Shape& shape) {
  if (shape.empty() || element_count(shape) == static_cast<int64_t>(count)) return "";
  return "has " + std::to_string(count) + " elements, and the shape " + to_string(shape) + " has " +
         std::to_string(element_count(shape));
}

}  // namespace halfscope::testing::detail
