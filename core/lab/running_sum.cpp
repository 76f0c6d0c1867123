// SPDX-License-Identifier: MIT
#include "core/lab/running_sum.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "core/lab/number_text.h"
#include "core/numeric/formats/arithmetic.h"
#include "core/numeric/formats/rng.h"
#include "core/numeric/formats/round.h"

namespace halfscope::lab {
namespace {

constexpr int64_t kPoints = 240;  ///< of a series that is drawn

/// One way of summing; `add_term` adds x to the sum and may keep a compensation.
class Sum {
 public:
  enum class Kind : uint8_t { plain, kahan, stochastic };
  Sum(Kind kind, const FloatFormat& format, uint64_t key)
      : kind_(kind), format_(format), key_(key) {}

  /// Returns false if the sum did not change, and so never will again.
  bool add_term(float x, int64_t index) {
    const float before = sum_, lost = lost_;
    switch (kind_) {
      case Kind::plain:
        sum_ = add(sum_, x, format_).value;
        break;
      case Kind::kahan: {
        const float y = sub(x, lost_, format_).value;
        const float t = add(sum_, y, format_).value;
        lost_ = sub(sub(t, sum_, format_).value, y, format_).value;
        sum_ = t;
        break;
      }
      case Kind::stochastic: {
        const Rounding rounding{.mode = RoundingMode::stochastic,
                                .random = random_draw(key_, static_cast<uint64_t>(index))};
        sum_ = add(sum_, x, format_, rounding).value;
        return true;
      }
    }
    const bool same_sum = sum_ == before || (std::isnan(sum_) && std::isnan(before));
    return !(same_sum && (lost_ == lost || std::isnan(lost_)));
  }
  float value() const noexcept { return sum_; }

 private:
  Kind kind_;
  FloatFormat format_;
  uint64_t key_;
  float sum_ = 0.0f, lost_ = 0.0f;
};

SumSeries run_series(std::string name, Sum sum, const std::vector<Terms>& terms,
                     const FloatFormat& format, int64_t count, int64_t every) {
  SumSeries series{.name = std::move(name), .format = format};
  int64_t done = 0, changed = 0;
  for (const Terms& group : terms) {
    const float term = static_cast<float>(round_to_format(group.value, format).value);
    bool moves = true;
    for (int64_t i = 0; i < group.count; ++i) {
      ++done;
      if (moves) moves = sum.add_term(term, done);  // a plain sum that stays does so for good
      if (moves) changed = done;
      if (done % every == 0 || done == count) series.sums.push_back(sum.value());
    }
  }
  if (changed < count) series.stalled_after = changed;
  series.last = sum.value();
  return series;
}

}  // namespace

SumMoment sum_moment(const std::vector<Terms>& terms, const FloatFormat& format, int64_t done) {
  SumMoment moment;
  for (const Terms& group : terms) {
    const float term = static_cast<float>(round_to_format(group.value, format).value);
    bool moves = true;
    for (int64_t i = 0; i < group.count && moment.done < done; ++i, ++moment.done) {
      const float before = moment.sum;
      if (moves) moment.sum = add(moment.sum, term, format).value;
      moves = moves && moment.sum != before && !std::isnan(moment.sum);
    }
    if (moment.done < done) continue;
    const int64_t ahead =
        std::accumulate(terms.begin(), terms.begin() + (&group - terms.data()) + 1, int64_t{0},
                        [](int64_t count, const Terms& each) { return count + each.count; });
    if (ahead == moment.done) continue;  // the next term is of the next group
    moment.term = term;
    break;
  }
  moment.next = moment.term ? add(moment.sum, *moment.term, format).value : moment.sum;
  moment.exact =
      static_cast<double>(moment.sum) + (moment.term ? static_cast<double>(*moment.term) : 0.0);
  moment.below = neighbour(moment.sum, -1, format);
  moment.above = neighbour(moment.sum, +1, format);
  return moment;
}

std::string moment_text(const SumMoment& moment, const FloatFormat& format) {
  const std::string sum = brief_text(static_cast<double>(moment.sum));
  if (!moment.term) return fmt::format("All terms are added. The sum is {}.", sum);
  const double term = static_cast<double>(*moment.term);
  if (!std::isfinite(moment.sum)) return fmt::format("The sum is {} and stays that.", sum);
  if (term == 0.0) return "The term is 0 in this format, so it changes nothing.";
  if (!std::isfinite(moment.next) || std::fabs(moment.exact) > format.max_finite()) {
    if (std::isfinite(moment.next) && moment.next != moment.sum) {
      return fmt::format("{} + {} saturates at {}.", sum, brief_text(term),
                         brief_text(static_cast<double>(moment.next)));
    }
    return fmt::format("{} + {} is beyond the largest number, {}: the sum {}.", sum,
                       brief_text(term), brief_text(format.max_finite()),
                       std::isfinite(moment.next) ? "stays there" : "overflows");
  }
  const double toward = static_cast<double>(term > 0.0 ? moment.above : moment.below);
  const double half = std::fabs(toward - static_cast<double>(moment.sum)) / 2.0;
  if (moment.next == moment.sum) {
    const std::string start = fmt::format("Half an ulp of {} is {}: ", sum, brief_text(half));
    return std::fabs(term) == half
               ? fmt::format("{}adding {} is a tie, and ties go to even. The sum stays.", start,
                             brief_text(term))
               : fmt::format("{}adding {} is less than that. The sum stays.", start,
                             brief_text(term));
  }
  const double lost = static_cast<double>(moment.next) - moment.exact;
  if (lost == 0.0) {
    return fmt::format("{} + {} = {}, exactly.", sum, brief_text(term), brief_text(moment.exact));
  }
  return fmt::format("{} + {} = {} lies between two numbers and is rounded to {}.", sum,
                     brief_text(term), brief_text(moment.exact, 9),
                     brief_text(static_cast<double>(moment.next)));
}

std::optional<std::vector<Terms>> read_terms(std::string_view text, std::string& problem) {
  std::vector<Terms> terms;
  int64_t count = 0;
  for (;;) {
    const size_t comma = text.find(',');
    const std::string_view word = trimmed(text.substr(0, comma));
    Terms group;
    std::string_view number = word;
    // "4096x1.0", but not the x of "0x1p-3".
    const size_t cross = word.find('x');
    if (cross != std::string_view::npos && word.substr(0, cross) != "0" && cross > 0) {
      const auto [end, error] = std::from_chars(word.data(), word.data() + cross, group.count);
      if (error != std::errc() || end != word.data() + cross || group.count < 1) {
        problem = fmt::format("'{}' is not a term: write COUNTxVALUE, for example 4096x1.0", word);
        return std::nullopt;
      }
      number = word.substr(cross + 1);
    }
    const std::optional<double> value = read_double(std::string(number));
    if (!value || !std::isfinite(*value)) {
      problem = fmt::format(
          "'{}' is not a term: write a number or COUNTxVALUE, for example 4096x1.0", word);
      return std::nullopt;
    }
    group.value = *value;
    if (group.count > kMostTerms || (count += group.count) > kMostTerms) {
      problem = fmt::format("more than {} terms take too long to add one by one", kMostTerms);
      return std::nullopt;
    }
    terms.push_back(group);
    if (comma == std::string_view::npos) return terms;
    text.remove_prefix(comma + 1);
  }
}

RunningSums running_sums(const std::vector<Terms>& terms, const FloatFormat& format,
                         uint64_t seed) {
  RunningSums result;
  int64_t count = 0;
  for (const Terms& group : terms) {
    count += group.count;
    result.exact += static_cast<double>(group.count) * group.value;
  }
  const int64_t every = std::max<int64_t>(1, count / kPoints);
  for (int64_t i = every; i <= count; i += every) result.terms.push_back(i);
  if (result.terms.empty() || result.terms.back() != count) result.terms.push_back(count);
  const std::string name = format_name(format);
  const auto add_series = [&](const std::string& label, Sum::Kind kind, const FloatFormat& in) {
    result.series.push_back(
        run_series(label, Sum(kind, in, random_key(seed, 0, 0)), terms, in, count, every));
  };
  add_series(name, Sum::Kind::plain, format);
  add_series(name + " Kahan", Sum::Kind::kahan, format);
  add_series(name + " stochastic", Sum::Kind::stochastic, format);
  if (format != kBf16) add_series("bf16", Sum::Kind::plain, kBf16);
  if (format != kFp16) add_series("fp16", Sum::Kind::plain, kFp16);
  if (format != kFp32) add_series("fp32", Sum::Kind::plain, kFp32);
  return result;
}

}  // namespace halfscope::lab
