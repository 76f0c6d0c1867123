// SPDX-License-Identifier: MIT
#include "core/observe/worst_slice.h"

#include <algorithm>
#include <cmath>

namespace halfscope {
namespace {

/// Slices smaller than this share of the usual one do not matter.
constexpr double kSmallestShare = 1e-5;
/// Slices with fewer numbers may be small by chance.
constexpr int64_t kFewNumbers = 8;
constexpr double kSmallestShareOfFew = 0.1;
constexpr int64_t kMostChannels = 65536;

/// Sums of squares over one slice.
struct SliceSums {
  double difference = 0.0, size = 0.0, noise = 0.0;
  int64_t numbers = 0;  ///< nonzero elements
};

struct Slices {
  std::vector<SliceSums> sums;
  std::vector<std::vector<double>> moved;  ///< by move and slice
};

double square_of_difference(float a, float b) {
  const double difference = static_cast<double>(a) - static_cast<double>(b);
  return difference * difference;
}

/// Sums up the slices. Elements that are not finite in the lane or in the truth are left out; they
/// are counted elsewhere.
Slices sum_up(const SlicedOutput& output, size_t axis) {
  const Shape& shape = output.shape;
  int64_t outer = 1, inner = 1;
  for (size_t i = 0; i < axis; ++i) outer *= shape[i];
  for (size_t i = axis + 1; i < shape.size(); ++i) inner *= shape[i];
  const int64_t count = shape[axis];
  Slices slices;
  slices.sums.resize(static_cast<size_t>(count));
  slices.moved.assign(output.moved.size(), std::vector<double>(static_cast<size_t>(count)));
  size_t i = 0;
  for (int64_t block = 0; block < outer; ++block) {
    for (size_t slice = 0; slice < static_cast<size_t>(count); ++slice) {
      SliceSums& sums = slices.sums[slice];
      for (int64_t k = 0; k < inner; ++k, ++i) {
        const float right = output.truth[i];
        if (!std::isfinite(right) || !std::isfinite(output.own[i])) continue;
        sums.difference += square_of_difference(output.own[i], right);
        sums.size += static_cast<double>(right) * static_cast<double>(right);
        sums.numbers += right != 0.0f ? 1 : 0;
        for (size_t move = 0; move < output.moved.size(); ++move) {
          slices.moved[move][slice] += square_of_difference(output.moved[move][i], right);
        }
        if (!output.moved_in_fp32.empty()) {
          sums.noise += square_of_difference(output.moved_in_fp32[i], right);
        }
      }
    }
  }
  return slices;
}

/// Returns an error as a share of its tolerance.
double share_of_tolerance(double error, double spread) {
  return error / std::max(kSliceFloor, kSliceFactor * spread);
}

/// Returns the norm of the largest of several sums of squares.
double furthest(std::span<const double> squares) {
  double most = 0.0;
  // NaN: the reference overflows where correct results may be.
  for (const double sum : squares) most = std::isnan(sum) ? INFINITY : std::max(most, sum);
  return std::sqrt(most);
}

void find_worst_along(const SlicedOutput& output, size_t axis, bool leaves_out_few,
                      WorstSlice& worst) {
  const Slices slices = sum_up(output, axis);
  double usual = 0.0;
  for (const SliceSums& sums : slices.sums) usual += sums.size;
  usual = std::sqrt(usual / static_cast<double>(slices.sums.size()));
  std::vector<double> moved;
  for (size_t slice = 0; slice < slices.sums.size(); ++slice) {
    const SliceSums& sums = slices.sums[slice];
    const bool few = sums.numbers < kFewNumbers;
    if (few && leaves_out_few) continue;
    const double least = (few ? kSmallestShareOfFew : kSmallestShare) * usual;
    const double base = std::max(std::sqrt(sums.size), least);
    if (base == 0.0 || !(std::sqrt(sums.noise) <= kNoise * base)) continue;
    moved.clear();
    for (const std::vector<double>& move : slices.moved) moved.push_back(move[slice]);
    keep_worse(worst, {.error = std::sqrt(sums.difference) / base,
                       .spread = furthest(moved) / base,
                       .axis = static_cast<int64_t>(axis),
                       .index = static_cast<int64_t>(slice)});
  }
}

bool has_numbers(const Shape& shape) {
  return !shape.empty() &&
         std::all_of(shape.begin(), shape.end(), [](int64_t size) { return size > 0; });
}

}  // namespace

bool WorstSlice::suspicious() const noexcept {
  return !std::isnan(error) && share_of_tolerance(error, spread) > 1.0;
}

void keep_worse(WorstSlice& kept, const WorstSlice& other) {
  if (std::isnan(other.error)) return;
  const double share = share_of_tolerance(other.error, other.spread);
  if (std::isnan(kept.error) || share > share_of_tolerance(kept.error, kept.spread)) kept = other;
}

void find_worst_sample(const SlicedOutput& output, WorstSlice& worst) {
  if (has_numbers(output.shape)) find_worst_along(output, 0, false, worst);
}

void find_worst_channel(const SlicedOutput& output, WorstSlice& worst) {
  const size_t rank = output.shape.size();
  if (rank < 2 || !has_numbers(output.shape)) return;
  const auto look = [&](size_t axis) {
    const int64_t count = output.shape[axis];
    if (count > 1 && count <= kMostChannels) find_worst_along(output, axis, true, worst);
  };
  look(1);
  if (rank > 2) look(rank - 1);
}

WorstSlice compare_differences(const SlicedOutput& output) {
  if (output.shape.size() != 2 || !has_numbers(output.shape) || output.shape[1] < 2) return {};
  const auto width = static_cast<size_t>(output.shape[1]);
  const size_t rows = static_cast<size_t>(output.shape[0]);
  double whole = 0.0, size = 0.0;
  std::vector<bool> counts(width);
  /// Returns the sum of squares of `x` - `y` after the mean of each row is removed; `y` may be
  /// empty.
  const auto remainder = [&](std::span<const float> x, std::span<const float> y, size_t row) {
    double sum = 0.0, squares = 0.0, n = 0.0;
    const auto value = [&](size_t k) {
      const size_t i = row * width + k;
      return static_cast<double>(x[i]) - (y.empty() ? 0.0 : static_cast<double>(y[i]));
    };
    for (size_t k = 0; k < width; ++k) {
      if (!counts[k]) continue;
      sum += value(k);
      n += 1.0;
    }
    for (size_t k = 0; k < width && n > 0.0; ++k) {
      if (counts[k]) squares += (value(k) - sum / n) * (value(k) - sum / n);
    }
    return squares;
  };
  SliceSums sums;
  std::vector<double> moved(output.moved.size());
  for (size_t row = 0; row < rows; ++row) {
    for (size_t k = 0; k < width; ++k) {
      const float right = output.truth[row * width + k];
      counts[k] = std::isfinite(right) && std::isfinite(output.own[row * width + k]);
      if (counts[k]) whole += static_cast<double>(right) * static_cast<double>(right);
    }
    sums.difference += remainder(output.own, output.truth, row);
    size += remainder(output.truth, {}, row);
    for (size_t move = 0; move < moved.size(); ++move) {
      moved[move] += remainder(output.moved[move], output.truth, row);
    }
    if (!output.moved_in_fp32.empty()) {
      sums.noise += remainder(output.moved_in_fp32, output.truth, row);
    }
  }
  const double base = std::max(std::sqrt(size), kSmallestShare * std::sqrt(whole));
  const bool few = rows * width < static_cast<size_t>(kFewNumbers);
  if (few || base == 0.0 || !(std::sqrt(sums.noise) <= kNoise * base)) return {};
  return {.error = std::sqrt(sums.difference) / base, .spread = furthest(moved) / base, .axis = 1};
}

}  // namespace halfscope
