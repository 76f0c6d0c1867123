// SPDX-License-Identifier: MIT
// ExpectWithinAccumulationBound: checks a matrix product against the error that its accumulation
// may make.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/numeric/sums/accumulation.h"
#include "core/numeric/sums/accumulation_bound.h"
#include "core/testing/values.h"

namespace halfscope::testing {

/// Sizes of a product of row-major matrices: out is m x n, a is m x k, b is k x n.
struct ProductShape {
  int64_t m = 1, n = 1, k = 1;
};

/// The bound to check against. `lambda` = 0: the error that no correct kernel exceeds. It grows
/// with k and says nothing from about k = 1 / unit roundoff on (2048 terms in fp16, 256 in bf16).
/// `lambda` > 0: the error that is exceeded with a probability of about 2 k exp(-lambda^2 / 2) per
/// element, if rounding errors are independent; it grows with the square root of k.
struct BoundKind {
  double lambda = 0.0;
};
inline constexpr BoundKind kWorstCase{};
/// Exceeded about once in 10^12 elements of 1000 terms.
inline constexpr BoundKind kProbable{8.0};

namespace detail {

inline std::string product_text(double got, const AccumulationBound& bound) {
  char text[200];
  std::snprintf(text, sizeof(text), "%.9g, exact %.9g, error %.3g, bound %.3g", got, bound.exact,
                std::fabs(got - bound.exact), bound.error);
  return text;
}

/// Returns whether a result is right. Operands that are not finite must give what they give in
/// double. A finite sum must stay finite, unless its bound reaches beyond the format. Where the
/// format saturates, the largest number stands for everything beyond it.
inline bool is_within(double got, const AccumulationBound& bound, const FloatFormat& write) {
  const auto is_rounded = [&](double x) {
    const double value = round_to_format(x, write).value;
    return value == got || (std::isnan(value) && std::isnan(got));
  };
  if (!std::isfinite(bound.exact)) return is_rounded(bound.exact);
  const double largest = write.max_finite();
  if (std::isfinite(got)) {
    const double exact =
        write.saturates() ? std::clamp(bound.exact, -largest, largest) : bound.exact;
    return std::fabs(got - exact) <= bound.error;
  }
  const double end = bound.exact + std::copysign(bound.error, bound.exact);
  return std::fabs(end) > largest && is_rounded(end);
}

/// Returns a description of the first operand that is not a value of the format, or "".
inline std::string operand_problem(const char* name, std::span<const double> values,
                                   const FloatFormat& format) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i]) || round_to_format(values[i], format).value == values[i]) continue;
    return std::string(name) + "[" + std::to_string(i) + "] is not a value of " +
           format_name(format) + ": " + value_text(values[i], format) +
           "; round the operands before the kernel reads them";
  }
  return "";
}

}  // namespace detail

/// Returns whether every element of a product a * b is as near to the exact one as `spec` allows:
/// see accumulation_bound() for the bound and its sources. The exact sums are computed in double.
/// `out`, `a` and `b` are ranges of numbers of any type, or Tensors. Fails, too, if an operand is
/// not a value of the format that `spec` reads, and if the bound says nothing. Partial sums that
/// overflow make the result infinite or NaN, which is a failure.
template <class Out, class A, class B>
::testing::AssertionResult within_accumulation_bound(const Out& out, const A& a, const B& b,
                                                     const ProductShape& shape, const SumSpec& spec,
                                                     BoundKind kind = kWorstCase) {
  const std::vector<double> got = detail::values_of(out), left = detail::values_of(a),
                            right = detail::values_of(b);
  const auto size = [](int64_t rows, int64_t columns) {
    return static_cast<size_t>(rows * columns);
  };
  if (got.size() != size(shape.m, shape.n) || left.size() != size(shape.m, shape.k) ||
      right.size() != size(shape.k, shape.n)) {
    return ::testing::AssertionFailure()
           << "out, a and b have " << got.size() << ", " << left.size() << " and " << right.size()
           << " elements; m = " << shape.m << ", n = " << shape.n << ", k = " << shape.k
           << " needs " << size(shape.m, shape.n) << ", " << size(shape.m, shape.k) << " and "
           << size(shape.k, shape.n);
  }
  for (const std::string& problem : {detail::operand_problem("a", left, spec.read),
                                     detail::operand_problem("b", right, spec.b_format())}) {
    if (!problem.empty()) return ::testing::AssertionFailure() << problem;
  }

  const size_t n = static_cast<size_t>(shape.n), k = static_cast<size_t>(shape.k);
  const std::vector<float> rows(left.begin(), left.end());
  std::vector<float> columns(right.size());  // b transposed
  for (size_t p = 0; p < k; ++p) {
    for (size_t j = 0; j < n; ++j) columns[j * k + p] = static_cast<float>(right[p * n + j]);
  }
  size_t outside = 0, worst = 0;
  double most = 0.0;
  AccumulationBound worst_bound;
  for (size_t i = 0; i < got.size(); ++i) {
    const AccumulationBound bound =
        accumulation_bound(spec, std::span(rows).subspan(i / n * k, k),
                           std::span(columns).subspan(i % n * k, k), kind.lambda);
    if (!(bound.share < 1.0)) {
      return ::testing::AssertionFailure()
             << "the worst-case bound says nothing about sums of " << shape.k << " terms under "
             << accumulation_name(spec.accumulation) << " in " << format_name(spec.write)
             << ": even 0 would be within it. Use fewer terms, or kProbable";
    }
    if (detail::is_within(got[i], bound, spec.write)) continue;
    const double times = std::fabs(got[i] - bound.exact) / bound.error;
    if (++outside == 1 || !(times <= most)) {
      most = times;
      worst = i;
      worst_bound = bound;
    }
  }
  if (outside == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << outside << " of " << got.size() << " elements are outside the bound of "
         << accumulation_name(spec.accumulation) << " sums of " << shape.k << " terms in "
         << format_name(spec.write) << "; the worst is "
         << detail::element_text(worst, got.size(), {shape.m, shape.n}) << ": "
         << detail::product_text(got[worst], worst_bound);
}

/// Fails the test, and goes on, if an element of a product is not within the bound.
template <class Out, class A, class B>
void ExpectWithinAccumulationBound(const Out& out, const A& a, const B& b,
                                   const ProductShape& shape, const SumSpec& spec,
                                   BoundKind kind = kWorstCase,
                                   std::source_location where = std::source_location::current()) {
  const ::testing::AssertionResult result = within_accumulation_bound(out, a, b, shape, spec, kind);
  if (!result) {
    ADD_FAILURE_AT(where.file_name(), static_cast<int>(where.line())) << result.message();
  }
}

/// The same for operands and results of one format and an accumulation by its name: "fp32",
/// "format", "tensor-core:h100".
template <class Out, class A, class B>
void ExpectWithinAccumulationBound(const Out& out, const A& a, const B& b,
                                   const ProductShape& shape, const FloatFormat& format,
                                   std::string_view accumulation, BoundKind kind = kWorstCase,
                                   std::source_location where = std::source_location::current()) {
  const std::optional<Accumulation> how = parse_accumulation(accumulation);
  if (!how) {
    ADD_FAILURE_AT(where.file_name(), static_cast<int>(where.line()))
        << "'" << accumulation << "' is not an accumulation";
    return;
  }
  ExpectWithinAccumulationBound(out, a, b, shape,
                                SumSpec{.accumulation = *how, .write = format, .read = format},
                                kind, where);
}

}  // namespace halfscope::testing
