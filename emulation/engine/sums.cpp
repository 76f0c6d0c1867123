// SPDX-License-Identifier: MIT
// Kernels that sum: Gemm, MatMul, Conv and its gradients, reductions. All of them use the
// accumulation of the node's plan.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/numeric/formats/round_odd.h"
#include "core/numeric/sums/accumulate.h"
#include "core/ops/ops.h"
#include "emulation/engine/double_sums.h"
#include "emulation/engine/kernel.h"
#include "emulation/team.h"

namespace halfscope {
namespace {

/// Computes a product: run(bias, spec) sums the operands as they are. Factors that cannot be part
/// of the sums are applied afterwards in fp32: the scales of scaled operands, alpha and beta. Then
/// the bias is added; output element i gets bias_at(i).
template <class T, class Run, class BiasAt>
void with_factor(KernelCall<T>& c, const Run& run, const BiasAt& bias_at,
                 const GemmBias& outside = {}) {
  const T* const bias = c.in.size() > 2 ? c.in[2] : nullptr;
  const std::optional<T> scales = c.sum_factor();
  SumSpec spec = c.sum_spec();
  if (!scales && outside.part_of_sums) {
    run(bias, spec);
    return;
  }
  // The sum is not the output yet, so it must not be prepared for the output's rounding.
  if (spec.accumulation.kind == Accumulation::fp64) spec.write = kFp32;
  run(nullptr, spec);
  T* const y = c.out[0];
  const T factor = scales.value_or(T{1}) * static_cast<T>(outside.alpha);
  const T beta = static_cast<T>(outside.beta);
  parallel_ranges(c.out_count(0), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T scaled = y[i] * factor;
      y[i] = bias != nullptr ? scaled + beta * bias[bias_at(i)] : scaled;
    }
  });
}

int64_t no_bias(int64_t) { return 0; }

/// A batch of m x n products; c.out contains them one after another.
struct Products {
  MatMulShape s;
  bool ta, tb;
  int64_t count;

  Products(const Node& node, const Shape& a, const Shape& b)
      : s(matmul_shape(node, a, b)),
        ta(int_attribute(node, "transA", 0) != 0),
        tb(int_attribute(node, "transB", 0) != 0),
        count(element_count(s.products)) {}

  /// Returns the offsets of a product's operands.
  std::pair<int64_t, int64_t> offsets(int64_t product) const {
    int64_t a = 0, b = 0;
    for (size_t i = s.products.size(); i-- > 0;) {
      const int64_t at = product % s.products[i];
      product /= s.products[i];
      a += at * s.a_batch[i];
      b += at * s.b_batch[i];
    }
    return {a, b};
  }
};

void run_products(KernelCall<float>& c, const Products& p, const float* bias, const SumSpec& spec) {
  const MatMulShape& s = p.s;
  std::vector<Diagnostics> seen(c.diagnostics != nullptr ? static_cast<size_t>(p.count) : 0);
  // With many products, each runs on one thread.
  for_each_on(p.count >= 4 ? omp_get_max_threads() : 1, p.count, [&](int64_t product) {
    const auto [a, b] = p.offsets(product);
    const int64_t first = product * s.m * s.n;
    gemm(s.m, s.n, s.k, {c.in[0] + a, s.a_row, s.a_column}, {c.in[1] + b, s.b_row, s.b_column},
         bias, c.out[0] + first, spec,
         c.diagnostics != nullptr ? &seen[static_cast<size_t>(product)] : nullptr, first);
  });
  if (c.diagnostics == nullptr) return;
  c.diagnostics->reset();
  for (const Diagnostics& each : seen) {
    if (!each) continue;
    if (!*c.diagnostics) c.diagnostics->emplace();
    (*c.diagnostics)->merge(*each);
  }
}

void run_products(KernelCall<double>& c, const Products& p, const double* bias, const SumSpec&) {
  const MatMulShape& s = p.s;
  for (int64_t product = 0; product < p.count; ++product) {
    const auto [a, b] = p.offsets(product);
    gemm_double(s.m, s.n, s.k, c.in[0] + a, p.ta, c.in[1] + b, p.tb, bias,
                c.out[0] + product * s.m * s.n);
  }
}

/// Gemm and MatMul.
template <class T>
void matrix_kernel(KernelCall<T>& c) {
  const Products products(*c.node, c.in_shape(0), c.in_shape(1));
  const GemmBias bias = gemm_bias(*c.graph, *c.node);
  const int64_t n = products.s.n;
  with_factor(
      c, [&](const T* row, const SumSpec& spec) { run_products(c, products, row, spec); },
      [&](int64_t i) { return i / n * bias.row + i % n * bias.column; }, bias);
}

ConvShape conv_shape(const Node& node, const Shape& x, const Shape& w) {
  const ConvWindow window = conv_window(node);
  return {.batch = x[0],
          .group = window.group,
          .in = w[1],
          .height = x[2],
          .width = x[3],
          .out = w[0] / window.group,
          .kernel_h = w[2],
          .kernel_w = w[3],
          .stride_h = window.stride_h,
          .stride_w = window.stride_w,
          .dilation_h = window.dilation_h,
          .dilation_w = window.dilation_w,
          .pad_top = window.pad_top,
          .pad_left = window.pad_left,
          .pad_bottom = window.pad_bottom,
          .pad_right = window.pad_right};
}

template <class T>
void conv_kernel(KernelCall<T>& c) {
  const ConvShape shape = conv_shape(*c.node, c.in_shape(0), c.in_shape(1));
  const int64_t pixels = shape.out_height() * shape.out_width();
  const auto run = [&](const T* bias, const SumSpec& spec) {
    if constexpr (std::is_same_v<T, float>) {
      conv_forward(shape, c.in[0], c.in[1], bias, c.out[0], spec, c.diagnostics);
    } else {
      conv_forward_double(shape, c.in[0], c.in[1], bias, c.out[0]);
    }
  };
  with_factor(c, run, [&](int64_t i) { return i / pixels % c.in_count(2); });
}

template <class T>
void conv_grad_input_kernel(KernelCall<T>& c) {  // (dy, w) -> dx
  const ConvShape shape = conv_shape(*c.node, c.out_shape(0), c.in_shape(1));
  const auto run = [&](const T*, const SumSpec& spec) {
    if constexpr (std::is_same_v<T, float>) {
      if (c.diagnostics != nullptr) {
        *c.diagnostics = diagnose_conv_grad_input(shape, c.in[0], c.in[1], spec);
      } else {
        conv_grad_input(shape, c.in[0], c.in[1], c.out[0], spec);
      }
    } else {
      conv_grad_input_double(shape, c.in[0], c.in[1], c.out[0]);
    }
  };
  with_factor(c, run, no_bias);
}

template <class T>
void conv_grad_weight_kernel(KernelCall<T>& c) {  // (dy, x) -> dw
  const ConvShape shape = conv_shape(*c.node, c.in_shape(1), c.out_shape(0));
  const auto run = [&](const T*, const SumSpec& spec) {
    if constexpr (std::is_same_v<T, float>) {
      conv_grad_weight(shape, c.in[1], c.in[0], c.out[0], spec.swapped(), c.diagnostics);
    } else {
      conv_grad_weight_double(shape, c.in[1], c.in[0], c.out[0]);
    }
  };
  with_factor(c, run, no_bias);
}

/// Positions in a reduction: output element o sums x[base[o] + inner[i]] over ascending i.
struct Reduction {
  std::vector<int64_t> base, inner;

  Reduction(const Node& node, const Shape& shape) {
    const std::vector<int64_t> axes = reduction_axes(node, shape.size());
    base = inner = {0};
    int64_t stride = element_count(shape);
    for (size_t i = 0; i < shape.size(); ++i) {
      stride = shape[i] == 0 ? 0 : stride / shape[i];
      const bool reduced = std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(i));
      std::vector<int64_t>& positions = reduced ? inner : base;
      std::vector<int64_t> grown;
      for (int64_t position : positions) {
        for (int64_t j = 0; j < shape[i]; ++j) grown.push_back(position + j * stride);
      }
      positions = std::move(grown);
    }
  }
};

/// Returns a sum under an accumulation, as output element number `element`. fp32 and fp64 chains
/// are computed directly, others by the reference.
double accumulate(const float* x, int64_t base, const std::vector<int64_t>& inner,
                  const SumSpec& spec, int64_t element) {
  if (spec.accumulation == Accumulation::fp32) {
    float sum = 0.0f;
    for (int64_t offset : inner) sum += x[base + offset];
    return static_cast<double>(sum);
  }
  if (spec.accumulation == Accumulation::fp64) {
    double sum = 0.0;
    for (int64_t offset : inner) sum += static_cast<double>(x[base + offset]);
    return sum;
  }
  thread_local std::vector<float> values;
  values.clear();
  for (int64_t offset : inner) values.push_back(x[base + offset]);
  return sum_of_values(spec, values, element);
}

double accumulate(const double* x, int64_t base, const std::vector<int64_t>& inner, const SumSpec&,
                  int64_t) {
  double sum = 0.0;
  for (int64_t offset : inner) sum += x[base + offset];
  return sum;
}

template <class T>
void reduce_sum(KernelCall<T>& c) {
  const SumSpec spec = c.sum_spec();
  if constexpr (std::is_same_v<T, float>) {
    // Bias gradients have a fast kernel: they sum over every axis except 1.
    const Shape& x = c.in_shape(0);
    const std::vector<int64_t> axes = reduction_axes(*c.node, x.size());
    if (axes == std::vector<int64_t>{0} && x.size() == 2) {
      sum_except(x[0], x[1], 1, c.in[0], c.out[0], spec);
      return;
    }
    if (axes == std::vector<int64_t>{0, 2, 3} && x.size() == 4) {
      sum_except(x[0], x[1], x[2] * x[3], c.in[0], c.out[0], spec);
      return;
    }
  }
  const Reduction reduction(*c.node, c.in_shape(0));
  parallel_ranges(static_cast<int64_t>(reduction.base.size()), 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t base = reduction.base[static_cast<size_t>(i)];
      c.out[0][i] = delivered<T>(accumulate(c.in[0], base, reduction.inner, spec, i), spec);
    }
  });
}

template <class T>
void reduce_mean(KernelCall<T>& c) {
  const SumSpec spec = c.sum_spec();
  const Reduction reduction(*c.node, c.in_shape(0));
  const double count = static_cast<double>(reduction.inner.size());
  for (size_t i = 0; i < reduction.base.size(); ++i) {
    const double sum =
        accumulate(c.in[0], reduction.base[i], reduction.inner, spec, static_cast<int64_t>(i));
    // The quotient of two fp32 numbers, computed in double, rounds to the same fp32 number as the
    // fp32 quotient.
    c.out[0][i] = delivered<T>(sum / count, spec);
  }
}

template <class T>
void reduce_mean_grad(KernelCall<T>& c) {  // dy -> dx, with x's shape
  const Reduction reduction(*c.node, c.out_shape(0));
  const T count = static_cast<T>(reduction.inner.size());
  for (size_t i = 0; i < reduction.base.size(); ++i) {
    const T share = c.in[0][i] / count;
    for (int64_t offset : reduction.inner) c.out[0][reduction.base[i] + offset] = share;
  }
}

template <class T>
void global_average_pool(KernelCall<T>& c) {
  const SumSpec spec = c.sum_spec();
  std::vector<int64_t> inner(
      static_cast<size_t>(c.in_count(0) / std::max<int64_t>(1, c.out_count(0))));
  std::iota(inner.begin(), inner.end(), int64_t{0});
  const double count = static_cast<double>(inner.size());
  for (int64_t i = 0; i < c.out_count(0); ++i) {
    c.out[0][i] = delivered<T>(
        accumulate(c.in[0], i * static_cast<int64_t>(inner.size()), inner, spec, i) / count, spec);
  }
}

/// Finds the element that is `better` than all others; a NaN is better than any number.
template <class T, class Better>
void reduce_to(KernelCall<T>& c, T worst, const Better& better) {
  const Reduction reduction(*c.node, c.in_shape(0));
  for (size_t i = 0; i < reduction.base.size(); ++i) {
    T best = worst;
    for (int64_t offset : reduction.inner) {
      const T value = c.in[0][reduction.base[i] + offset];
      if (better(value, best) || std::isnan(value)) best = value;
    }
    c.out[0][i] = best;
  }
}

template <class T>
void reduce_max(KernelCall<T>& c) {
  reduce_to(c, -std::numeric_limits<T>::infinity(), [](T a, T b) { return a > b; });
}
template <class T>
void reduce_min(KernelCall<T>& c) {
  reduce_to(c, std::numeric_limits<T>::infinity(), [](T a, T b) { return a < b; });
}

template <class T>
void reduce_max_grad(KernelCall<T>& c) {  // (dy, x, y), dy and y with kept axes
  const Reduction reduction(*c.node, c.in_shape(1));
  const T* x = c.in[1];
  std::fill_n(c.out[0], c.out_count(0), T{0});
  for (size_t i = 0; i < reduction.base.size(); ++i) {
    const T largest = c.in[2][i];
    const auto is_max = [&](int64_t offset) { return x[reduction.base[i] + offset] == largest; };
    const int64_t ties = std::count_if(reduction.inner.begin(), reduction.inner.end(), is_max);
    for (int64_t offset : reduction.inner) {
      // Nothing equals a NaN maximum. Its gradient must not vanish; it is NaN, as in PyTorch.
      if (ties == 0) c.out[0][reduction.base[i] + offset] = std::numeric_limits<T>::quiet_NaN();
      if (is_max(offset)) c.out[0][reduction.base[i] + offset] = c.in[0][i] / static_cast<T>(ties);
    }
  }
}

template <class T>
void cumulative_sum(KernelCall<T>& c) {
  const Shape& x = c.in_shape(0);
  const AxisSplit s = split_at(x, axis_attribute(*c.node, x.size()));
  const bool reverse = int_attribute(*c.node, "reverse", 0) != 0;
  const bool exclusive = int_attribute(*c.node, "exclusive", 0) != 0;
  const SumSpec spec = c.sum_spec();
  // Such a chain continues from one prefix to the next; others add every prefix anew.
  const bool running = std::is_same_v<T, double> || adds_one_by_one(spec.accumulation);
  const auto add = [&](double sum, T value) {
    if constexpr (std::is_same_v<T, double>) return sum + value;
    return add_value(spec, sum, static_cast<float>(value));
  };
  parallel_ranges(s.outer * s.inner, 16, [&](int64_t begin, int64_t end) {
    std::vector<float> passed;
    for (int64_t line = begin; line < end; ++line) {
      const int64_t first = line / s.inner * s.length * s.inner + line % s.inner;
      double sum = 0.0;
      passed.clear();
      for (int64_t i = 0; i < s.length; ++i) {
        const int64_t at = first + (reverse ? s.length - 1 - i : i) * s.inner;
        const auto store = [&] {
          const SumSpec own = sums_of_row(spec, at);
          c.out[0][at] = delivered<T>(running ? sum : sum_of_values(own, passed), spec);
        };
        if (exclusive) store();
        if (running) {
          sum = add(sum, c.in[0][at]);
        } else {
          passed.push_back(static_cast<float>(c.in[0][at]));
        }
        if (!exclusive) store();
      }
    }
  });
}

}  // namespace

template <class T>
std::span<const KernelEntry<T>> sum_kernels() {
  static constexpr KernelEntry<T> kernels[] = {
      {"Gemm", matrix_kernel<T>},
      {"MatMul", matrix_kernel<T>},
      {"Conv", conv_kernel<T>},
      {"ConvGradInput", conv_grad_input_kernel<T>},
      {"ConvGradWeight", conv_grad_weight_kernel<T>},
      {"ReduceSum", reduce_sum<T>},
      {"ReduceMean", reduce_mean<T>},
      {"ReduceMeanGrad", reduce_mean_grad<T>},
      {"GlobalAveragePool", global_average_pool<T>},
      {"ReduceMax", reduce_max<T>},
      {"ReduceMin", reduce_min<T>},
      {"ReduceMaxGrad", reduce_max_grad<T>},
      {"CumSum", cumulative_sum<T>},
  };
  return kernels;
}

template std::span<const KernelEntry<float>> sum_kernels();
template std::span<const KernelEntry<double>> sum_kernels();

}  // namespace halfscope
