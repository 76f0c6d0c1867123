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

bool are_probabilities(std::span<const float> row) {
  constexpr double kSlack = 1e-2;  // of sums in narrow formats
  double sum = 0.0;
  for (const float each : row) {
    if (!(each >= 0.0f && each <= 1.0f)) return false;
    sum += static_cast<double>(each);
  }
  return std::fabs(sum - 1.0) <= kSlack;
}

void softmax(std::span<float> row) {
  const auto largest = static_cast<double>(*std::max_element(row.begin(), row.end()));
  double sum = 0.0;
  for (const float each : row) sum += elementary::exp(static_cast<double>(each) - largest);
  for (float& each : row) {
    each = static_cast<float>(elementary::exp(static_cast<double>(each) - largest) / sum);
  }
}

}  // namespace

double area_under_curve(std::span<const float> scores, std::span<const uint8_t> belongs) {
  const auto positives = std::count(belongs.begin(), belongs.end(), uint8_t{1});
  const auto negatives = static_cast<int64_t>(belongs.size()) - positives;
  const bool unordered =
      std::any_of(scores.begin(), scores.end(), [](float x) { return std::isnan(x); });
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

double mean_area_under_curve(std::span<const float> scores, int64_t classes,
                             std::span<const int32_t> labels) {
  const auto columns = static_cast<size_t>(classes);
  std::vector<float> all(scores.begin(), scores.end());
  bool probabilities = true;
  for (size_t i = 0; i < labels.size() && probabilities; ++i) {
    probabilities = are_probabilities(scores.subspan(i * columns, columns));
  }
  for (size_t i = 0; i < labels.size() && columns > 1 && !probabilities; ++i) {
    softmax(std::span(all).subspan(i * columns, columns));
  }
  double sum = 0.0;
  int64_t counted = 0;
  std::vector<float> own(labels.size());
  std::vector<uint8_t> belongs(labels.size());
  for (size_t c = 0; c < columns; ++c) {
    for (size_t i = 0; i < labels.size(); ++i) {
      own[i] = all[i * columns + c];
      belongs[i] = labels[i] == (columns == 1 ? 1 : static_cast<int32_t>(c)) ? 1 : 0;
    }
    const auto positives = std::count(belongs.begin(), belongs.end(), uint8_t{1});
    if (positives == 0 || positives == static_cast<int64_t>(labels.size())) continue;
    sum += area_under_curve(own, belongs);
    ++counted;
  }
  return counted == 0 ? kUndefined : sum / static_cast<double>(counted);
}

}  // namespace halfscope
