// SPDX-License-Identifier: MIT
// UlpNear: a matcher for values that may differ from a reference by a few ulps of a format.
#pragma once

#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "core/testing/values.h"

namespace halfscope::testing {
namespace detail {

class UlpNearMatcher {
 public:
  UlpNearMatcher(std::vector<double> reference, int64_t ulps, const FloatFormat& format,
                 Shape shape)
      : reference_(std::move(reference)), ulps_(ulps), format_(format), shape_(std::move(shape)) {}

  template <class T>
  bool MatchAndExplain(const T& value, ::testing::MatchResultListener* listener) const {
    const std::vector<double> values = values_of(value);
    const Shape shape = shape_of(value, shape_);
    if (values.size() != reference_.size()) {
      *listener << "has " << values.size() << " elements, and the reference has "
                << reference_.size();
      return false;
    }
    if (const std::string problem = shape_problem(values.size(), shape); !problem.empty()) {
      *listener << problem;
      return false;
    }
    size_t far = 0, worst = 0;
    int64_t most = -1;
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t distance = distance_of(values[i], reference_[i]);
      if (distance > ulps_) ++far;
      if (distance > most) {
        most = distance;
        worst = i;
      }
    }
    if (most < 0) return true;  // no elements
    if (values.size() > 1) {
      *listener << far << " of " << values.size() << " elements are further away; the worst is "
                << element_text(worst, values.size(), shape) << ": ";
    }
    *listener << value_text(values[worst], format_) << ", reference "
              << value_text(reference_[worst], format_) << ", ";
    if (most == kUlpUnordered) {
      *listener << unordered_text(values[worst], reference_[worst]);
    } else {
      *listener << most << (most == 1 ? " ulp" : " ulps");
    }
    return far == 0;
  }

  void DescribeTo(std::ostream* out) const {
    *out << "is within " << ulps_ << (ulps_ == 1 ? " ulp" : " ulps") << " of " << name()
         << " of the reference";
  }
  void DescribeNegationTo(std::ostream* out) const {
    *out << "has an element further than " << ulps_ << (ulps_ == 1 ? " ulp" : " ulps") << " of "
         << name() << " from the reference";
  }

 private:
  std::string name() const { return format_name(format_); }

  /// Returns kUlpUnordered where only one of the two is finite after rounding: an overflow is not a
  /// rounding error, though infinity is one step beyond the largest number.
  int64_t distance_of(double value, double reference) const {
    const float a = rounded(value, format_), b = rounded(reference, format_);
    if (std::isfinite(a) != std::isfinite(b)) return kUlpUnordered;
    if (!std::isfinite(a)) {
      const bool same = std::isnan(a) ? std::isnan(b) : a == b;
      return same ? 0 : kUlpUnordered;
    }
    return ulp_distance(a, b, format_);
  }

  /// Returns why no number of ulps is enough.
  std::string unordered_text(double value, double reference) const {
    const float a = rounded(value, format_), b = rounded(reference, format_);
    const auto infinite = [this](double x) {
      return std::isinf(x) ? "is infinite" : "overflows " + name();
    };
    if (std::isnan(a)) return "the value is NaN";
    if (std::isnan(b)) return "only the reference is NaN";
    if (std::isinf(a) && std::isinf(b)) return "infinities of different signs";
    return std::isinf(a) ? "the value " + infinite(value)
                         : "only the reference " + infinite(reference);
  }

  std::vector<double> reference_;
  int64_t ulps_;
  FloatFormat format_;
  Shape shape_;
};

class RepresentableMatcher {
 public:
  explicit RepresentableMatcher(const FloatFormat& format) : format_(format) {}

  template <class T>
  bool MatchAndExplain(const T& value, ::testing::MatchResultListener* listener) const {
    const std::vector<double> values = values_of(value);
    size_t others = 0, first = 0;
    for (size_t i = values.size(); i-- > 0;) {
      const double x = round_to_format(values[i], format_).value;
      if (x == values[i] || (std::isnan(x) && std::isnan(values[i]))) continue;
      ++others;
      first = i;
    }
    if (others == 0) return true;
    *listener << others << " of " << values.size() << " elements are not; the first is "
              << element_text(first, values.size(), shape_of(value, {})) << ": "
              << value_text(values[first], format_);
    return false;
  }
  void DescribeTo(std::ostream* out) const {
    *out << "is representable in " << format_name(format_);
  }
  void DescribeNegationTo(std::ostream* out) const {
    *out << "has an element that is not representable in " << format_name(format_);
  }

 private:
  FloatFormat format_;
};

}  // namespace detail

/// Matches a number, or a range or Tensor of numbers, of which each is at most `ulps` steps of
/// `format` from the reference.
///  - Value and reference are rounded to `format` first, to nearest even. The reference may be in
///    double. Representable() checks that the values were in the format before.
///  - NaN matches only NaN, whatever its sign and payload. An infinity matches only the same
///    infinity. A finite value never matches an infinity, at any number of ulps.
///  - +0 and -0 are equal. Subnormal values count as neighbours like all others.
///  - `shape`, if given, turns the index of the worst element into a position. A Tensor has its
///  own.
template <class Reference>
::testing::PolymorphicMatcher<detail::UlpNearMatcher> UlpNear(const Reference& reference,
                                                              int64_t ulps,
                                                              const FloatFormat& format,
                                                              Shape shape = {}) {
  return ::testing::MakePolymorphicMatcher(
      detail::UlpNearMatcher(detail::values_of(reference), ulps, format, std::move(shape)));
}

/// Matches numbers that `format` represents exactly: a kernel that should have rounded has done so.
inline ::testing::PolymorphicMatcher<detail::RepresentableMatcher> Representable(
    const FloatFormat& format) {
  return ::testing::MakePolymorphicMatcher(detail::RepresentableMatcher(format));
}

}  // namespace halfscope::testing
