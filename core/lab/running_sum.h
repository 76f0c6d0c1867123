// SPDX-License-Identifier: MIT
// Sums taken term by term in a format, in several ways, to show where they stall.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/numeric/formats/float_format.h"

namespace halfscope::lab {

/// The same term several times.
struct Terms {
  int64_t count = 1;
  double value = 0.0;
};
/// Reads terms such as "4096x1.0" or "1,1000x1e-3". Empty for other text, with the reason in
/// `problem`. At most 2^24 terms.
std::optional<std::vector<Terms>> read_terms(std::string_view text, std::string& problem);
inline constexpr int64_t kMostTerms = int64_t{1} << 24;

/// One way of adding the terms.
struct SumSeries {
  std::string name{};
  FloatFormat format{};
  std::vector<float> sums{};   ///< after `every`, 2 `every` ... terms, and the last
  int64_t stalled_after = -1;  ///< terms after which the others change nothing; -1: none
  float last = 0.0f;
};
struct RunningSums {
  std::vector<SumSeries> series{};
  std::vector<int64_t> terms{};  ///< of every point
  /// Sum of the terms as given, in double, where counts times values are exact for the sums that
  /// people type.
  double exact = 0.0;
};

/// A plain sum in a format at one moment, and the next addition.
struct SumMoment {
  int64_t done = 0;  ///< terms added so far
  float sum = 0.0f;
  std::optional<float> term{};       ///< the next one, rounded to the format; empty after the last
  float next = 0.0f;                 ///< the sum after it
  double exact = 0.0;                ///< sum + term, as a double
  float below = 0.0f, above = 0.0f;  ///< neighbors of the sum in the format
};
SumMoment sum_moment(const std::vector<Terms>& terms, const FloatFormat& format, int64_t done);
/// Returns what the next addition does and why: "Half an ulp of 2048 is 1: ...".
std::string moment_text(const SumMoment& moment, const FloatFormat& format);

/// Sums in the format (plain, compensated and stochastic), bf16, fp16 and fp32. The terms are
/// rounded to the format of each sum first. `seed` is of the random bits.
RunningSums running_sums(const std::vector<Terms>& terms, const FloatFormat& format,
                         uint64_t seed = 1);

}  // namespace halfscope::lab
