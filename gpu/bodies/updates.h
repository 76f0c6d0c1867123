// SPDX-License-Identifier: MIT
// Operators that a step runs after the gradients (formulas in core/ops/training.cpp). Items are
// several elements, and one launch may run many bodies (gpu/bodies/group.h). A variable's new value
// is rounded to its storage format here, because only a comparison with the old value shows whether
// an update was lost. Optimizer states are rounded afterwards like other outputs.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/numeric/formats/round.h"
#include "core/numeric/formats/tensor_rounding.h"
#include "core/numeric/statistics/tensor_stats.h"
#include "core/numeric/sums/accumulation.h"
#include "gpu/bodies/several.h"
#include "gpu/bodies/work.h"

namespace halfscope::gpu {

/// Computes g' of an element: the gradient after unscaling, clipping, negation and weight decay.
template <class T>
struct Gradient {
  In<T> w, g, inverse_scale, clip;
  T decay;
  bool maximizes;

  HS_HD T operator()(int64_t i) const {
    const T plain = (g[i] * factor()) * *clip;
    if (decay == T{0}) return plain;  // an infinite weight times 0 would be NaN
    const T decayed = decay * w[i];
    return plain + decayed;
  }
  /// Same for several elements.
  HS_HD void operator()(const Neighbours& at, T (&to)[kSeveral]) const {
    const T unscaled = factor(), clipped = *clip;
    read(g, at, to);
    for (T& each : to) each = (each * unscaled) * clipped;
    if (decay == T{0}) return;
    T weight[kSeveral];
    read(w, at, weight);
    for (int j = 0; j < kSeveral; ++j) {
      const T decayed = decay * weight[j];
      to[j] = to[j] + decayed;
    }
  }

 private:
  HS_HD T factor() const { return maximizes ? -*inverse_scale : *inverse_scale; }
};

/// An option of the optimizer: an attribute, or an input if it changes by step.
template <class T>
struct StepOption {
  In<T> input;  ///< may be null
  T constant;

  HS_HD T get() const { return input != nullptr ? *input : constant; }
};

/// Returns the total of kPartialSums partial sums, added as a balanced tree, in Sum.
template <class Sum = double>
HS_HD Sum add_tree(const double* partials) {
  Sum sum[kPartialSums];
  for (int j = 0; j < kPartialSums; ++j) sum[j] = static_cast<Sum>(partials[j]);
  for (int width = kPartialSums / 2; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) sum[j] += sum[j + width];
  }
  return sum[0];
}

/// Sums each chunk of 4096 elements, or their squares: 16 partial sums, one thread each.
template <class T, bool kSquares>
struct ChunkTotals {
  static constexpr int kLanes = 16, kChunks = 16, kThreads = kLanes * kChunks;
  static constexpr int64_t kSteps = 2;
  struct Shared {
    double partials[kThreads];
  };
  struct State {};

  In<T> x;
  int64_t n;
  double* sums;

  HS_HD int64_t chunks() const { return ceil_div(n, kSumChunk); }
  int64_t blocks() const { return ceil_div(chunks(), kChunks); }
  HS_HD int64_t steps() const { return kSteps; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State&) const {
    const int64_t chunk = block * kChunks + thread / kLanes;
    if (s == 0) {
      const int64_t begin = chunk * kSumChunk, end = smaller(begin + kSumChunk, n);
      double sum = 0.0;
      for (int64_t i = begin + thread % kLanes; i < end; i += kSeveral * kLanes) {
        const Spaced at = spaced_from(i, kLanes, end);
        T element[kSeveral];
        read(x, at, element);
        for (int j = 0; j < kSeveral; ++j) {
          const double value = static_cast<double>(element[j]);
          if (j < at.count) sum += kSquares ? value * value : value;
        }
      }
      shared.partials[thread] = sum;
    } else if (thread % kLanes == 0 && chunk < chunks()) {
      sums[chunk] = add_tree(shared.partials + thread);
    }
  }
};

/// One item.
template <class T>
struct NormTotal {
  const double* total;  ///< null: nothing was added
  double* wide;
  Out<T> y;
  bool finite_only;

  HS_HD void operator()(int64_t) const {
    double value = total != nullptr ? *total : 0.0;
    if (finite_only) value = value - value == 0.0 ? 0.0 : std::numeric_limits<double>::infinity();
    if (wide != nullptr) *wide = value;
    *y = static_cast<T>(value);
  }
};

template <class T>
struct GradientSum {
  In<T> sum, g, keep;
  Out<T> y;
  int64_t n;

  HS_HD int64_t items() const { return items_of_several(n); }
  HS_HD void operator()(int64_t item) const {
    const Neighbours at = several_of(item, n);
    T total[kSeveral], fresh[kSeveral];
    read(g, at, fresh);
    if (*keep != T{0}) {  // otherwise the last step's sum may be NaN
      read(sum, at, total);
      for (int j = 0; j < kSeveral; ++j) fresh[j] = total[j] + fresh[j];
    }
    write(y, at, fresh);
  }
};

template <class T>
struct Momentum {
  Gradient<T> gradient;
  In<T> velocity, share;  ///< share may be null
  Out<T> y;
  StepOption<T> momentum;
  int64_t n;

  HS_HD int64_t items() const { return items_of_several(n); }
  HS_HD void operator()(int64_t item) const {
    const Neighbours at = several_of(item, n);
    T value[kSeveral], g[kSeveral];
    read(velocity, at, value);
    gradient(at, g);
    const T part = share != nullptr ? *share : T{1}, factor = momentum.get();
    for (int j = 0; j < kSeveral; ++j) {
      const T kept = factor * value[j], fresh = part * g[j];
      value[j] = kept + fresh;
    }
    write(y, at, value);
  }
};

template <class T>
struct AdamMoments {
  Gradient<T> gradient;
  In<T> m, v;
  Out<T> next_m, next_v;
  StepOption<T> beta1, other1;
  T beta2, other2;
  int64_t n;

  HS_HD int64_t items() const { return items_of_several(n); }
  HS_HD void operator()(int64_t item) const {
    const Neighbours at = several_of(item, n);
    T g[kSeveral], first[kSeveral], second[kSeveral];
    gradient(at, g);
    read(m, at, first);
    read(v, at, second);
    const T keep_m = beta1.get(), take_m = other1.get();
    for (int j = 0; j < kSeveral; ++j) {
      const T kept_m = keep_m * first[j], new_m = take_m * g[j];
      const T kept_v = beta2 * second[j], new_v = other2 * (g[j] * g[j]);
      first[j] = kept_m + new_m;
      second[j] = kept_v + new_v;
    }
    write(next_m, at, first);
    write(next_v, at, second);
  }
};

template <class T>
struct SquareAverage {
  Gradient<T> gradient;
  In<T> average;
  Out<T> y;
  T alpha, other;
  int64_t n;

  HS_HD int64_t items() const { return items_of_several(n); }
  HS_HD void operator()(int64_t item) const {
    const Neighbours at = several_of(item, n);
    T g[kSeveral], value[kSeveral];
    gradient(at, g);
    read(average, at, value);
    for (int j = 0; j < kSeveral; ++j) {
      const T kept = alpha * value[j], fresh = other * (g[j] * g[j]);
      value[j] = kept + fresh;
    }
    write(y, at, value);
  }
};

template <class T>
struct RmsMomentum {
  Gradient<T> gradient;
  In<T> average, velocity;
  Out<T> y;
  StepOption<T> momentum;
  T eps;
  int64_t n;

  HS_HD int64_t items() const { return items_of_several(n); }
  HS_HD void operator()(int64_t item) const {
    const Neighbours at = several_of(item, n);
    T g[kSeveral], squares[kSeveral], value[kSeveral];
    gradient(at, g);
    read(average, at, squares);
    read(velocity, at, value);
    const T factor = momentum.get();
    for (int j = 0; j < kSeveral; ++j) {
      const T kept = factor * value[j];
      value[j] = kept + g[j] / (std::sqrt(squares[j]) + eps);
    }
    write(y, at, value);
  }
};

// The optimizers' changes to several elements of a variable.

template <class T>
struct SgdRule {
  Gradient<T> gradient;
  In<T> rate, velocity;  ///< velocity may be null

  HS_HD void operator()(const Neighbours& at, T (&to)[kSeveral]) const {
    const T by = *rate;
    if (velocity != nullptr) {
      read(velocity, at, to);
    } else {
      gradient(at, to);
    }
    for (T& each : to) each = -(by * each);
  }
  HS_HD double decay() const { return 0.0; }
};

template <class T>
struct RmsRule {
  Gradient<T> gradient;
  In<T> rate, average, velocity;  ///< velocity may be null
  T eps;

  HS_HD void operator()(const Neighbours& at, T (&to)[kSeveral]) const {
    const T by = *rate;
    if (velocity != nullptr) {
      read(velocity, at, to);
      for (T& each : to) each = -(by * each);
      return;
    }
    T squares[kSeveral];
    gradient(at, to);
    read(average, at, squares);
    for (int j = 0; j < kSeveral; ++j) to[j] = -(by * (to[j] / (std::sqrt(squares[j]) + eps)));
  }
  HS_HD double decay() const { return 0.0; }
};

template <class T>
struct AdamRule {
  In<T> m, v, rate, correction_1, correction_2;
  T eps;
  double decoupled_decay;

  HS_HD void operator()(const Neighbours& at, T (&to)[kSeveral]) const {
    const T step_size =
        static_cast<T>(static_cast<double>(*rate) / static_cast<double>(*correction_1));
    const T root_2 = static_cast<T>(std::sqrt(static_cast<double>(*correction_2)));
    T squares[kSeveral];
    read(m, at, to);
    read(v, at, squares);
    for (int j = 0; j < kSeveral; ++j) {
      const T denominator = std::sqrt(squares[j]) / root_2 + eps;
      to[j] = -(step_size * (to[j] / denominator));
    }
  }
  HS_HD double decay() const { return static_cast<double>(*rate) * decoupled_decay; }
};

template <class T, class Rule>
struct Update {
  Rule rule;
  In<T> w;
  Out<T> next, update;
  int64_t n;
  FloatFormat storage;
  bool rounds;  ///< the storage format is not fp32
  TensorRounding rounding{};
  uint64_t* lost = nullptr;  ///< null: not counted

  HS_HD int64_t items() const { return items_of_several(n); }
  HS_HD void operator()(int64_t item) const {
    const Neighbours at = several_of(item, n);
    T old[kSeveral], change[kSeveral], fresh[kSeveral] = {};
    read(w, at, old);
    rule(at, change);
    const double decay = rule.decay();
    uint64_t stayed = 0;
    for (int j = 0; j < kSeveral; ++j) {
      if (j >= at.count) continue;
      if (decay == 0.0) {
        fresh[j] = old[j] + change[j];
      } else {
        const T shrunk = old[j] * static_cast<T>(1.0 - decay);
        const T lost_part = static_cast<T>(decay) * old[j];
        fresh[j] = shrunk + change[j];
        change[j] = change[j] - lost_part;
      }
      fresh[j] = stored(fresh[j], at.first + j);
      stayed += change[j] != T{0} && fresh[j] == old[j] ? 1 : 0;
    }
    write(next, at, fresh);
    write(update, at, change);
    if (lost != nullptr && stayed != 0) add_to(lost, stayed);
  }

 private:
  HS_HD float stored(float x, int64_t i) const {
    return rounds ? rounded_by(x, storage, rounding.element(i)).value : x;
  }
  HS_HD double stored(double x, int64_t) const { return x; }
};

/// Moving average of weights. e and e' may share memory.
template <class T>
struct WeightAverage {
  In<T> e, w;
  Out<T> next, update;
  int64_t n;
  T keep, rate;
  bool lerp;
  FloatFormat inside, storage;
  bool rounds_inside, rounds;  ///< these formats are not fp32
  TensorRounding rounding{};
  uint64_t* lost = nullptr;  ///< null: not counted

  HS_HD int64_t items() const { return items_of_several(n); }
  HS_HD void operator()(int64_t item) const {
    const Neighbours at = several_of(item, n);
    T old[kSeveral], weight[kSeveral], fresh[kSeveral] = {}, change[kSeveral] = {};
    read(e, at, old);
    read(w, at, weight);
    uint64_t stayed = 0;
    for (int j = 0; j < kSeveral; ++j) {
      if (j >= at.count) continue;
      change[j] = in_format(rate * in_format(weight[j] - old[j]));
      if (lerp) {
        fresh[j] = old[j] + change[j];
      } else {
        const T kept = in_format(keep * old[j]), part = in_format(rate * weight[j]);
        fresh[j] = kept + part;
      }
      fresh[j] = stored(fresh[j], at.first + j);
      stayed += change[j] != T{0} && fresh[j] == old[j] ? 1 : 0;
    }
    write(next, at, fresh);
    write(update, at, change);
    if (lost != nullptr && stayed != 0) add_to(lost, stayed);
  }

 private:
  HS_HD float in_format(float x) const {
    return rounds_inside ? round_to_format(x, inside).value : x;
  }
  HS_HD double in_format(double x) const { return x; }
  HS_HD float stored(float x, int64_t i) const {
    return rounds ? rounded_by(x, storage, rounding.element(i)).value : x;
  }
  HS_HD double stored(double x, int64_t) const { return x; }
};

}  // namespace halfscope::gpu
