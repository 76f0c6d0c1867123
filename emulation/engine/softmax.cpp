// SPDX-License-Identifier: MIT
// Softmax, LogSoftmax and their gradients, fused (core/ops/softmax.cpp): in double, with sums in
// the fixed order of wide_sum() unless the plan names another accumulation. Threads share lines.
#include "core/ops/softmax.h"

#include <algorithm>
#include <cmath>

#include "core/numeric/elementary/elementary.h"
#include "core/numeric/elementary/quick_exp.h"
#include "core/numeric/sums/accumulate.h"
#include "emulation/engine/kernel.h"
#include "emulation/engine/map_values.h"
#include "emulation/engine/plane_sums.h"

namespace halfscope {
namespace {

constexpr auto kExp = [](double x) { return elementary::exp(x); };

/// Calls f(line, position of its first element) for all lines.
template <class F>
void for_lines(const AxisLines& lines, const F& f) {
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, lines.size) / 16);
  parallel_ranges(lines.count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) f(line, lines.first(line));
  });
}

/// Finds the largest of n adjacent elements. Returns false if there is a NaN.
bool find_largest(const float* x, int64_t n, double& largest) {
  constexpr int64_t kAtOnce = 16;
  float most[kAtOnce];
  std::fill_n(most, kAtOnce, -INFINITY);
  int32_t unordered = 0;
  int64_t i = 0;
  for (; i + kAtOnce <= n; i += kAtOnce) {
    for (int64_t j = 0; j < kAtOnce; ++j) {
      most[j] = x[i + j] > most[j] ? x[i + j] : most[j];
      unordered |= x[i + j] != x[i + j] ? 1 : 0;
    }
  }
  for (int64_t j = 0; i < n; ++i, ++j) {
    most[j] = x[i] > most[j] ? x[i] : most[j];
    unordered |= x[i] != x[i] ? 1 : 0;
  }
  largest = static_cast<double>(*std::max_element(most, most + kAtOnce));
  return unordered == 0;
}

/// Computes a softmax of n adjacent elements by quick_exp(); `powers` is room for n numbers.
/// Returns false if a result is in doubt.
bool quick_softmax(Isa isa, const float* x, int64_t n, bool odd, double* powers, float* y) {
  // Exponentials, ours and exp()'s; two sums of positive terms in the order of wide_sum();
  // quotient.
  const double error = 2.0 * (elementary::kQuickError + 0x1p-52) +
                       2.0 * (static_cast<double>(n) / kPartialSums + 5.0) * 0x1p-53 + 0x1p-50;
  uint32_t doubts = 1;
  call_in_vectors(isa, [=, &doubts] {
    double largest = 0.0;
    if (!find_largest(x, n, largest) || largest - largest != 0.0) return;
    uint32_t found = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double shifted = static_cast<double>(x[i]) - largest;
      const bool nothing = x[i] == -INFINITY;
      powers[i] = nothing ? 0.0 : elementary::quick_exp(shifted);
      found |= !nothing && shifted < elementary::kQuickLeast ? 1u : 0u;
    }
    const double inverse = 1.0 / wide_sum(n, [=](int64_t i) { return powers[i]; });
    if (odd) {
      for (int64_t i = 0; i < n; ++i) {
        const double value = powers[i] * inverse;
        found |= store_surely({value, value * error}, true, y[i]);
      }
    } else {
      for (int64_t i = 0; i < n; ++i) {
        const double value = powers[i] * inverse;
        found |= store_surely({value, value * error}, false, y[i]);
      }
    }
    doubts = found;
  });
  return doubts == 0;
}

template <class T, bool kLog>
void softmax(KernelCall<T>& c) {
  const AxisLines lines = axis_lines(*c.node, c.in_shape(0));
  const SumSpec spec = c.sum_spec();
  const bool named = std::is_same_v<T, float> && names_inner_sums(spec);
  const FloatFormat write = c.out_format(0);
  const Isa isa = active_isa();
  const bool zero_masked = !kLog && zeroes_masked_lines(*c.node);
  [[maybe_unused]] const bool quick = !named && lines.stride == 1 && has_fma(isa);
  [[maybe_unused]] const bool odd = write.mantissa_bits <= 21;  // as deliver()
  for_lines(lines, [&](int64_t line, int64_t first) {
    const T* x = c.in[0] + first;
    T* y = c.out[0] + first;
    const auto element = [&](int64_t k) { return static_cast<double>(x[k * lines.stride]); };
    thread_local std::vector<double> shifted, powers;
    powers.resize(static_cast<size_t>(lines.size));
    if constexpr (std::is_same_v<T, float> && !kLog) {
      if (quick && quick_softmax(isa, x, lines.size, odd, powers.data(), y)) return;
    }
    double largest = -INFINITY;
    for (int64_t k = 0; k < lines.size; ++k) {
      if (element(k) > largest || std::isnan(element(k))) largest = element(k);
    }
    const bool masked = zero_masked && largest == -INFINITY;
    if (masked) largest = 0.0;
    shifted.clear();
    for (int64_t k = 0; k < lines.size; ++k) shifted.push_back(element(k) - largest);
    map_values(isa, kExp, powers.data(), lines.size, shifted.data());
    double sum = wide_sum(lines.size, [&](int64_t k) { return powers[static_cast<size_t>(k)]; });
    if (named) {
      sum = sum_of_values(spec, std::vector<float>(powers.begin(), powers.end()), line);
    }
    if (masked) sum = 1.0;
    const double log_sum = kLog ? elementary::log(sum) : 0.0;
    for (int64_t k = 0; k < lines.size; ++k) {
      const size_t at = static_cast<size_t>(k);
      const double result = kLog ? shifted[at] - log_sum : powers[at] / sum;
      y[k * lines.stride] = delivered<T>(result, write);
    }
  });
}

/// Computes the gradient of a softmax of n adjacent elements, as softmax_grad() does.
void softmax_grad_in_vectors(Isa isa, const float* dy, const float* y, int64_t n, bool odd,
                             float* dx) {
  call_in_vectors(isa, [=] {
    const double sum = wide_sum(
        n, [=](int64_t i) { return static_cast<double>(dy[i]) * static_cast<double>(y[i]); });
    const auto result = [=](int64_t i) {
      return static_cast<double>(y[i]) * (static_cast<double>(dy[i]) - sum);
    };
    if (odd) {
      for (int64_t i = 0; i < n; ++i) dx[i] = round_to_odd(result(i));
    } else {
      for (int64_t i = 0; i < n; ++i) dx[i] = static_cast<float>(result(i));
    }
  });
}

template <class T, bool kLog>
void softmax_grad(KernelCall<T>& c) {  // (dy, y) -> dx
  const AxisLines lines = axis_lines(*c.node, c.in_shape(1));
  const SumSpec spec = c.sum_spec();
  const bool named = std::is_same_v<T, float> && names_inner_sums(spec);
  const FloatFormat write = c.out_format(0);
  const Isa isa = active_isa();
  [[maybe_unused]] const bool odd = write.mantissa_bits <= 21;  // as deliver()
  for_lines(lines, [&](int64_t line, int64_t first) {
    const T *dy = c.in[0] + first, *y = c.in[1] + first;
    if constexpr (std::is_same_v<T, float> && !kLog) {
      if (!named && lines.stride == 1 && has_fma(isa)) {
        return softmax_grad_in_vectors(isa, dy, y, lines.size, odd, c.out[0] + first);
      }
    }
    double sum = wide_sum(lines.size, [&](int64_t k) {
      const double g = static_cast<double>(dy[k * lines.stride]);
      return kLog ? g : g * static_cast<double>(y[k * lines.stride]);
    });
    if (named) {
      std::vector<float> gradients, values;
      for (int64_t k = 0; k < lines.size; ++k) {
        gradients.push_back(static_cast<float>(dy[k * lines.stride]));
        values.push_back(static_cast<float>(y[k * lines.stride]));
      }
      sum = kLog ? sum_of_values(spec, gradients, line)
                 : static_cast<double>(
                       sum_of_products(second_sums(spec), gradients, values, nullptr, line));
    }
    thread_local std::vector<double> logs, outputs;  // of Softmax; both operators use them
    outputs.resize(static_cast<size_t>(lines.size));
    if constexpr (kLog) {
      logs.clear();
      for (int64_t k = 0; k < lines.size; ++k) {
        logs.push_back(static_cast<double>(y[k * lines.stride]));
      }
      map_values(isa, kExp, outputs.data(), lines.size, logs.data());
    } else {
      for (int64_t k = 0; k < lines.size; ++k) {
        outputs[static_cast<size_t>(k)] = static_cast<double>(y[k * lines.stride]);
      }
    }
    for (int64_t k = 0; k < lines.size; ++k) {
      const double g = static_cast<double>(dy[k * lines.stride]);
      const double output = outputs[static_cast<size_t>(k)];
      const double result = kLog ? g - output * sum : output * (g - sum);
      c.out[0][first + k * lines.stride] = delivered<T>(result, write);
    }
  });
}

}  // namespace

template <class T>
std::span<const KernelEntry<T>> softmax_kernels() {
  static constexpr KernelEntry<T> kernels[] = {{"Softmax", softmax<T, false>},
                                               {"LogSoftmax", softmax<T, true>},
                                               {"SoftmaxGrad", softmax_grad<T, false>},
                                               {"LogSoftmaxGrad", softmax_grad<T, true>}};
  return kernels;
}

template std::span<const KernelEntry<float>> softmax_kernels();
template std::span<const KernelEntry<double>> softmax_kernels();

}  // namespace halfscope
