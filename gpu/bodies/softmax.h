// SPDX-License-Identifier: MIT
// Softmax, LogSoftmax and their gradients, one item per line: in double, rounded once.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/axis_lines.h"
#include "core/numeric/elementary/elementary.h"
#include "core/numeric/sums/chain.h"
#include "gpu/bodies/work.h"

namespace halfscope::gpu {

template <class T>
struct SoftmaxLine {
  In<T> x;
  Out<T> y;
  AxisLines lines;
  ChainSpec how;
  bool named;  ///< the plan names the inner sum's accumulation
  bool log, zero_masked;
  FloatFormat write;

  struct Terms {
    In<T> x;
    int64_t stride;
    double largest;
    HS_HD float left(int64_t k) const {
      return static_cast<float>(elementary::exp(static_cast<double>(x[k * stride]) - largest));
    }
    HS_HD float right(int64_t) const { return 1.0f; }
    HS_HD bool present(int64_t) const { return true; }
  };

  HS_HD void operator()(int64_t line) const {
    const int64_t first = lines.first(line);
    const In<T> in = x + first;
    double largest = static_cast<double>(-INFINITY);
    for (int64_t k = 0; k < lines.size; ++k) {
      const double value = static_cast<double>(in[k * lines.stride]);
      if (value > largest || is_nan(value)) largest = value;
    }
    const bool masked = zero_masked && largest == static_cast<double>(-INFINITY);
    if (masked) largest = 0.0;
    double sum = 0.0;
    for (int64_t k = 0; k < lines.size; ++k) {
      sum += elementary::exp(static_cast<double>(in[k * lines.stride]) - largest);
    }
    if constexpr (kNamesSums<T>) {
      if (named) sum = sum_of_terms(how, Terms{in, lines.stride, largest}, lines.size, line);
    }
    if (masked) sum = 1.0;
    const double log_sum = log ? elementary::log(sum) : 0.0;
    for (int64_t k = 0; k < lines.size; ++k) {
      const double shifted = static_cast<double>(in[k * lines.stride]) - largest;
      const double result = log ? shifted - log_sum : elementary::exp(shifted) / sum;
      y[first + k * lines.stride] = delivered<T>(result, write);
    }
  }
};

template <class T>
struct SoftmaxLineGrad {
  In<T> dy, y;
  Out<T> dx;
  AxisLines lines;
  ChainSpec how;
  bool named, log;
  FloatFormat write;

  struct Terms {
    In<T> dy, y;  ///< y null: plain values
    int64_t stride;
    HS_HD float left(int64_t k) const { return static_cast<float>(dy[k * stride]); }
    HS_HD float right(int64_t k) const {
      return y == nullptr ? 1.0f : static_cast<float>(y[k * stride]);
    }
    HS_HD bool present(int64_t) const { return true; }
  };

  HS_HD double sum(int64_t line, int64_t first) const {
    if constexpr (kNamesSums<T>) {
      if (named) {
        const Terms terms{dy + first, log ? nullptr : y + first, lines.stride};
        const ChainSpec chain = log ? how : how.second();
        const double total = sum_of_terms(chain, terms, lines.size, line);
        if (log) return total;
        return static_cast<double>(deliver_sum(chain, total, nullptr, lines.size, line));
      }
    }
    double sum = 0.0;
    for (int64_t k = first; k < first + lines.size * lines.stride; k += lines.stride) {
      const double g = static_cast<double>(dy[k]);
      sum += log ? g : g * static_cast<double>(y[k]);
    }
    return sum;
  }

  HS_HD void operator()(int64_t line) const {
    const int64_t first = lines.first(line);
    const double total = sum(line, first);
    for (int64_t k = first; k < first + lines.size * lines.stride; k += lines.stride) {
      const double g = static_cast<double>(dy[k]), value = static_cast<double>(y[k]);
      const double result = log ? g - elementary::exp(value) * total : value * (g - total);
      dx[k] = delivered<T>(result, write);
    }
  }
};

}  // namespace halfscope::gpu
