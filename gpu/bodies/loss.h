// SPDX-License-Identifier: MIT
// The fused losses, their gradients and the accuracy: one item per row or chunk, then one item for
// the total. They compute in double and return one value that is rounded afterwards.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/axis_lines.h"
#include "core/numeric/elementary/elementary.h"
#include "core/numeric/sums/chain.h"
#include "gpu/bodies/work.h"

namespace halfscope::gpu {

template <class T>
struct LossRows {
  In<T> x;
  const int32_t* labels;
  int64_t rows, classes, ignored;
  ChainSpec how;
  bool named;  ///< the plan names the inner sums' accumulation

  struct Softmax {
    double largest, sum;  ///< sum of exp(x - largest)
  };

  HS_HD bool counts(int64_t row) const { return labels[row] >= 0 && labels[row] != ignored; }

  struct Terms {
    In<T> row;
    double largest;
    HS_HD float left(int64_t k) const {
      return static_cast<float>(elementary::exp(static_cast<double>(row[k]) - largest));
    }
    HS_HD float right(int64_t) const { return 1.0f; }
    HS_HD bool present(int64_t) const { return true; }
  };

  HS_HD Softmax softmax(int64_t i) const {
    const In<T> row = x + i * classes;
    double largest = static_cast<double>(-INFINITY);
    for (int64_t j = 0; j < classes; ++j) {
      const double value = static_cast<double>(row[j]);
      if (value > largest || is_nan(value)) largest = value;
    }
    if (named) return {largest, sum_of_terms(how, Terms{row, largest}, classes, i)};
    double sum = 0.0;
    for (int64_t j = 0; j < classes; ++j) {
      sum += elementary::exp(static_cast<double>(row[j]) - largest);
    }
    return {largest, sum};
  }
};

/// Computes losses[row] for rows that count.
template <class T>
struct RowLoss {
  LossRows<T> of;
  double* losses;

  HS_HD void operator()(int64_t i) const {
    if (!of.counts(i)) return;
    const In<T> row = of.x + i * of.classes;
    const typename LossRows<T>::Softmax softmax = of.softmax(i);
    losses[i] =
        elementary::log(softmax.sum) - (static_cast<double>(row[of.labels[i]]) - softmax.largest);
  }
};

/// Counts the rows that count (those with a label that is not ignored).
template <class T>
struct CountRows {
  LossRows<T> of;
  uint64_t* count;

  HS_HD void operator()(int64_t row) const {
    if (of.counts(row)) add_to(count, uint64_t{1});
  }
};

/// One block: the mean of the rows that count, in order. One thread adds; the others load the
/// losses.
template <class T>
struct MeanLoss {
  static constexpr int kThreads = 256, kPiece = 1024;

  LossRows<T> of;
  const double* losses;
  Out<T> y;
  FloatFormat write;

  struct Shared {
    double losses[2][kPiece];
    bool counts[2][kPiece];
  };
  struct State {
    double total;
    int64_t count;
  };

  int64_t blocks() const { return 1; }
  HS_HD int64_t steps() const { return ceil_div(of.rows, kPiece) + 1; }

  HS_HD void step(int64_t s, int64_t, int thread, Shared& shared, State& state) const {
    if (s == 0) state = {0.0, 0};
    if (s + 1 < steps()) load(s * kPiece, thread, shared, s % 2);
    if (thread != 0) return;
    if (s > 0) add((s - 1) * kPiece, shared, (s - 1) % 2, state);
    if (s + 1 == steps()) *y = delivered<T>(state.total / static_cast<double>(state.count), write);
  }

 private:
  HS_HD void load(int64_t begin, int thread, Shared& shared, int64_t half) const {
    const int64_t n = smaller(kPiece, of.rows - begin);
    for (int64_t at = thread; at < n; at += kThreads) {
      shared.counts[half][at] = of.counts(begin + at);
      shared.losses[half][at] = losses[begin + at];
    }
  }
  HS_HD void add(int64_t begin, const Shared& shared, int64_t half, State& state) const {
    const int n = static_cast<int>(smaller(kPiece, of.rows - begin));
    for (int at = 0; at < n; ++at) {
      if (!shared.counts[half][at]) continue;
      state.total += shared.losses[half][at];
      ++state.count;
    }
  }
};

/// One item: same mean under the accumulation that the plan names.
template <class T>
struct NamedMeanLoss {
  LossRows<T> of;
  const double* losses;
  float* counted;  ///< memory for the losses of rows that count
  Out<T> y;
  FloatFormat write;

  struct Terms {
    const float* x;
    HS_HD float left(int64_t k) const { return x[k]; }
    HS_HD float right(int64_t) const { return 1.0f; }
    HS_HD bool present(int64_t) const { return true; }
  };

  HS_HD void operator()(int64_t) const {
    int64_t count = 0;
    for (int64_t row = 0; row < of.rows; ++row) {
      if (of.counts(row)) counted[count++] = static_cast<float>(losses[row]);
    }
    const double total = sum_of_terms(of.how.second(), Terms{counted}, count, 0);
    *y = delivered<T>(total / static_cast<double>(count), write);
  }
};

/// One item: the common factor of all rows' gradients.
template <class T>
struct LossScale {
  const uint64_t* count;  ///< of rows that count
  In<T> upstream;
  double* scale;

  HS_HD void operator()(int64_t) const {
    *scale = static_cast<double>(*upstream) / static_cast<double>(*count);
  }
};

template <class T>
struct LossGrad {
  LossRows<T> of;
  const double* scale;
  Out<T> dx;
  FloatFormat write;

  HS_HD void operator()(int64_t i) const {
    const In<T> row = of.x + i * of.classes;
    const Out<T> out = dx + i * of.classes;
    if (!of.counts(i)) {
      for (int64_t j = 0; j < of.classes; ++j) out[j] = T{0};
      return;
    }
    const typename LossRows<T>::Softmax softmax = of.softmax(i);
    for (int64_t j = 0; j < of.classes; ++j) {
      const double p = elementary::exp(static_cast<double>(row[j]) - softmax.largest) / softmax.sum;
      out[j] = delivered<T>((p - (j == of.labels[i] ? 1.0 : 0.0)) * *scale, write);
    }
  }
};

/// Counts the rows that count and whose first largest element is the label's. A row with a NaN is
/// never right.
template <class T>
struct RowsRight {
  LossRows<T> of;
  uint64_t* right;

  HS_HD void operator()(int64_t i) const {
    if (!of.counts(i)) return;
    const In<T> row = of.x + i * of.classes;
    int64_t best = 0;
    for (int64_t j = 0; j < of.classes; ++j) {
      if (is_nan(row[j])) return;
      if (row[best] < row[j]) best = j;
    }
    if (best == of.labels[i]) add_to(right, uint64_t{1});
  }
};

/// One item.
template <class T>
struct ShareRight {
  const uint64_t *count, *right;  ///< of rows that count
  Out<T> y;

  HS_HD void operator()(int64_t) const {
    *y = static_cast<T>(static_cast<double>(*right) / static_cast<double>(*count));
  }
};

/// Item: a chunk.
template <class T>
struct SquaredErrors {
  In<T> prediction, target;
  int64_t n;
  double* sums;

  HS_HD void operator()(int64_t chunk) const {
    const int64_t begin = chunk * kLossChunk, end = smaller(begin + kLossChunk, n);
    double sum = 0.0;
    for (int64_t i = begin; i < end; ++i) {
      const double error = static_cast<double>(prediction[i]) - static_cast<double>(target[i]);
      sum += error * error;
    }
    sums[chunk] = sum;
  }
};

/// One item: the mean of the squares, from the chunks' sums or under the accumulation that the plan
/// names.
template <class T>
struct MeanOfSquares {
  In<T> prediction, target;
  int64_t n;
  const double* sums;
  Out<T> y;
  ChainSpec how;
  bool named;
  FloatFormat write;

  struct Terms {
    In<T> prediction, target;
    HS_HD float left(int64_t k) const {
      return static_cast<float>(static_cast<double>(prediction[k]) -
                                static_cast<double>(target[k]));
    }
    HS_HD float right(int64_t k) const { return left(k); }
    HS_HD bool present(int64_t) const { return true; }
  };

  HS_HD void operator()(int64_t) const {
    double total = 0.0;
    for (int64_t chunk = 0; chunk < ceil_div(n, kLossChunk); ++chunk) total += sums[chunk];
    if constexpr (kNamesSums<T>) {
      if (named) {
        const ChainSpec second = how.second();
        total = sum_of_terms(second, Terms{prediction, target}, n, 0);
        total = static_cast<double>(deliver_sum(second, total, nullptr, n, 0));
      }
    }
    *y = delivered<T>(total / static_cast<double>(n), write);
  }
};

template <class T>
struct SquaredErrorGrad {
  In<T> prediction, target, upstream;
  Out<T> dx;
  int64_t n;
  FloatFormat write;

  HS_HD void operator()(int64_t i) const {
    const double factor = 2.0 * static_cast<double>(*upstream) / static_cast<double>(n);
    const double error = static_cast<double>(prediction[i]) - static_cast<double>(target[i]);
    dx[i] = delivered<T>(error * factor, write);
  }
};

}  // namespace halfscope::gpu
