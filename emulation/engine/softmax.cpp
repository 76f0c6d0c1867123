// SPDX-License-Identifier: MIT
// Softmax, LogSoftmax and their gradients, fused (core/ops/softmax.cpp): in double, with sums in
// the fixed order of wide_sum() unless the plan names another accumulation. Threads share lines.
#include "core/ops/softmax.h"

#include <cmath>

#include "core/numeric/elementary/elementary.h"
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

template <class T, bool kLog>
void softmax(KernelCall<T>& c) {
  const AxisLines lines = axis_lines(*c.node, c.in_shape(0));
  const SumSpec spec = c.sum_spec();
  const bool named = std::is_same_v<T, float> && names_inner_sums(spec);
  const FloatFormat write = c.out_format(0);
  const Isa isa = active_isa();
  const bool zero_masked = !kLog && zeroes_masked_lines(*c.node);
  for_lines(lines, [&](int64_t line, int64_t first) {
    const T* x = c.in[0] + first;
    T* y = c.out[0] + first;
    const auto element = [&](int64_t k) { return static_cast<double>(x[k * lines.stride]); };
    double largest = -INFINITY;
    for (int64_t k = 0; k < lines.size; ++k) {
      if (element(k) > largest || std::isnan(element(k))) largest = element(k);
    }
    const bool masked = zero_masked && largest == -INFINITY;
    if (masked) largest = 0.0;
    thread_local std::vector<double> shifted, powers;
    shifted.clear();
    powers.resize(static_cast<size_t>(lines.size));
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

template <class T, bool kLog>
void softmax_grad(KernelCall<T>& c) {  // (dy, y) -> dx
  const AxisLines lines = axis_lines(*c.node, c.in_shape(1));
  const SumSpec spec = c.sum_spec();
  const bool named = std::is_same_v<T, float> && names_inner_sums(spec);
  const FloatFormat write = c.out_format(0);
  const Isa isa = active_isa();
  for_lines(lines, [&](int64_t line, int64_t first) {
    const T *dy = c.in[0] + first, *y = c.in[1] + first;
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
