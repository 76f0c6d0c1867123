// SPDX-License-Identifier: MIT
#include "core/numeric/statistics/auc.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/numeric/elementary/elementary.h"

namespace halfscope {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

/// Replaces the logits of a row by their log-odds.
void take_log_odds(std::span<const float> logits, std::span<double> odds) {
  const auto largest = std::max_element(logits.begin(), logits.end()) - logits.begin();
  const auto top = static_cast<double>(logits[static_cast<size_t>(largest)]);
  double next = -std::numeric_limits<double>::infinity();
  double sum = 0.0;
  for (size_t c = 0; c < logits.size(); ++c) {
    const auto z = static_cast<double>(logits[c]);
    sum += elementary::exp(z - top);
    if (static_cast<int64_t>(c) != largest && !(z <= next)) next = z;
  }
  for (size_t c = 0; c < logits.size(); ++c) {
    const double below = static_cast<double>(logits[c]) - top;
    // At most half of the sum is subtracted.
    odds[c] = below - elementary::log(sum - elementary::exp(below));
  }
  // Nothing may be left of the sum after subtracting the largest term.
  double others = 0.0;
  for (size_t c = 0; c < logits.size(); ++c) {
    if (static_cast<int64_t>(c) == largest) continue;
    others += elementary::exp(static_cast<double>(logits[c]) - next);
  }
  const bool alone = std::isinf(next) && next < 0.0;
  odds[static_cast<size_t>(largest)] = alone ? -next : top - next - elementary::log(others);
}

}  // namespace

double area_under_curve(std::span<const double> scores, std::span<const uint8_t> belongs) {
  const auto positives = std::count(belongs.begin(), belongs.end(), uint8_t{1});
  const auto negatives = static_cast<int64_t>(belongs.size()) - positives;
  const bool unordered =
      std::any_of(scores.begin(), scores.end(), [](double x) { return std::isnan(x); });
  if (positives == 0 || negatives == 0 || unordered) return kUndefined;
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] < scores[b]; });
  double ranks = 0.0;  // of the class, counted from 1, ties share their mean
  for (size_t first = 0; first < order.size();) {
    size_t end = first;
    int64_t inside = 0;
    for (; end < order.size() && scores[order[end]] == scores[order[first]]; ++end) {
      inside += belongs[order[end]];
    }
    ranks += static_cast<double>(inside) * static_cast<double>(first + 1 + end) / 2.0;
    first = end;
  }
  const auto count = static_cast<double>(positives);
  return (ranks - count * (count + 1.0) / 2.0) / (count * static_cast<double>(negatives));
}

namespace {

/// Returns the mean area over the columns of [samples, columns] to which some samples belong and
/// others do not; NaN if there is none.
template <class Belongs>
double mean_of_columns(std::span<const double> scores, size_t columns, const Belongs& belongs_to) {
  const size_t samples = scores.size() / columns;
  std::vector<double> own(samples);
  std::vector<uint8_t> belongs(samples);
  double sum = 0.0;
  int64_t occurring = 0;
  for (size_t column = 0; column < columns; ++column) {
    for (size_t i = 0; i < samples; ++i) {
      own[i] = scores[i * columns + column];
      belongs[i] = belongs_to(i, column) ? 1 : 0;
    }
    const auto positives = std::count(belongs.begin(), belongs.end(), uint8_t{1});
    if (positives == 0 || positives == static_cast<int64_t>(samples)) continue;
    sum += area_under_curve(own, belongs);
    ++occurring;
  }
  return occurring == 0 ? kUndefined : sum / static_cast<double>(occurring);
}

}  // namespace

ScoreKind score_kind(std::span<const float> scores, int64_t classes) {
  constexpr double kSlack = 1e-2;
  const auto columns = static_cast<size_t>(classes);
  for (size_t first = 0; first + columns <= scores.size(); first += columns) {
    double sum = 0.0;
    for (const float each : scores.subspan(first, columns)) {
      if (!(each >= 0.0f && each <= 1.0f)) return ScoreKind::logits;
      sum += static_cast<double>(each);
    }
    if (!(std::fabs(sum - 1.0) <= kSlack)) return ScoreKind::logits;
  }
  return ScoreKind::probabilities;
}

double mean_area_under_curve(std::span<const float> scores, int64_t classes,
                             std::span<const int32_t> labels, ScoreKind kind) {
  const auto columns = static_cast<size_t>(classes);
  std::vector<double> all;
  std::vector<int32_t> counted;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < 0) continue;
    counted.push_back(labels[i]);
    const std::span<const float> row = scores.subspan(i * columns, columns);
    all.insert(all.end(), row.begin(), row.end());
    if (columns > 1 && kind == ScoreKind::logits) {
      take_log_odds(row, std::span(all).last(columns));
    }
  }
  return mean_of_columns(all, columns, [&](size_t sample, size_t column) {
    return counted[sample] == (columns == 1 ? 1 : static_cast<int32_t>(column));
  });
}

double mean_area_of_outputs(std::span<const float> scores, int64_t outputs,
                            std::span<const int32_t> targets) {
  const std::vector<double> all(scores.begin(), scores.end());
  const auto columns = static_cast<size_t>(outputs);
  return mean_of_columns(all, columns, [&](size_t sample, size_t column) {
    return targets[sample * columns + column] == 1;
  });
}

}  // namespace halfscope
