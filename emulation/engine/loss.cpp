// SPDX-License-Identifier: MIT
// The fused losses, their gradients and the accuracy. They compute in double and return one value,
// which the Program rounds to the node's format.
#include <algorithm>
#include <cmath>

#include "core/bodies/elements.h"
#include "core/error.h"
#include "core/numeric/elementary/elementary.h"
#include "core/numeric/sums/accumulate.h"
#include "emulation/engine/kernel.h"
#include "emulation/engine/map_values.h"
#include "emulation/engine/plane_sums.h"

namespace halfscope {
namespace {

/// Softmax of one row; the next row reuses its memory.
struct Softmax {
  double largest = 0.0, sum = 0.0;      // sum of exp(x - largest)
  std::vector<double> shifted, powers;  // x - largest, and exp of it
};

double sum_of(const std::vector<double>& terms) {
  return wide_sum(static_cast<int64_t>(terms.size()),
                  [&](int64_t i) { return terms[static_cast<size_t>(i)]; });
}

template <class T>
void softmax_of(const T* row, int64_t classes, const SumSpec& spec, int64_t element,
                Softmax& result) {
  result.largest = -INFINITY;
  for (int64_t j = 0; j < classes; ++j) {
    const double x = static_cast<double>(row[j]);
    if (x > result.largest || std::isnan(x)) result.largest = x;
  }
  result.shifted.clear();
  for (int64_t j = 0; j < classes; ++j) {
    result.shifted.push_back(static_cast<double>(row[j]) - result.largest);
  }
  result.powers.resize(static_cast<size_t>(classes));
  map_values(
      active_isa(), [](double x) { return elementary::exp(x); }, result.powers.data(), classes,
      result.shifted.data());
  if (std::is_same_v<T, float> && names_inner_sums(spec)) {
    const std::vector<float> terms(result.powers.begin(), result.powers.end());
    result.sum = sum_of_values(spec, terms, element);
    return;
  }
  result.sum = sum_of(result.powers);
}

/// Decides which rows count: not those without a label or with the label ignore_index.
class Labels {
 public:
  /// Throws Error for a label beyond the classes, which would address memory outside the tensor.
  Labels(const Node& node, const int32_t* labels, int64_t rows, int64_t classes)
      : labels_(labels), rows_(rows), ignored_(int_attribute(node, "ignore_index", -1)) {
    for (int64_t row = 0; row < rows; ++row) {
      if (counts(row) && labels[row] >= classes) {
        throw Error(node.path + " (" + node.op + "): label " + std::to_string(labels[row]) +
                    " is out of range: there are " + std::to_string(classes) + " classes");
      }
    }
  }
  bool counts(int64_t row) const { return labels_[row] >= 0 && labels_[row] != ignored_; }
  int64_t count() const {
    int64_t n = 0;
    for (int64_t row = 0; row < rows_; ++row) n += counts(row) ? 1 : 0;
    return n;
  }

 private:
  const int32_t* labels_;
  int64_t rows_, ignored_;
};

template <class T>
void cross_entropy(KernelCall<T>& c) {
  const int64_t rows = c.in_shape(0)[0], classes = c.in_shape(0)[1];
  const int32_t* labels = c.index_in[1];
  const Labels valid(*c.node, labels, rows, classes);
  const SumSpec spec = c.sum_spec();
  std::vector<double> losses;
  Softmax softmax;
  for (int64_t i = 0; i < rows; ++i) {
    if (!valid.counts(i)) continue;
    const T* row = c.in[0] + i * classes;
    softmax_of(row, classes, spec, i, softmax);
    losses.push_back(elementary::log(softmax.sum) -
                     (static_cast<double>(row[labels[i]]) - softmax.largest));
  }
  double total = sum_of(losses);
  if (std::is_same_v<T, float> && names_inner_sums(spec)) {
    total = sum_of_values(second_sums(spec), std::vector<float>(losses.begin(), losses.end()));
  }
  c.out[0][0] = delivered<T>(total / static_cast<double>(valid.count()), c.out_format(0));
}

template <class T>
void cross_entropy_grad(KernelCall<T>& c) {
  const int64_t rows = c.in_shape(0)[0], classes = c.in_shape(0)[1];
  const int32_t* labels = c.index_in[1];
  const Labels valid(*c.node, labels, rows, classes);
  const double scale = static_cast<double>(c.in[2][0]) / static_cast<double>(valid.count());
  Softmax softmax;
  for (int64_t i = 0; i < rows; ++i) {
    const T* row = c.in[0] + i * classes;
    T* out = c.out[0] + i * classes;
    if (!valid.counts(i)) {
      std::fill_n(out, classes, T{0});
      continue;
    }
    softmax_of(row, classes, c.sum_spec(), i, softmax);
    for (int64_t j = 0; j < classes; ++j) {
      const double p = softmax.powers[static_cast<size_t>(j)] / softmax.sum;
      out[j] = delivered<T>((p - (j == labels[i] ? 1.0 : 0.0)) * scale, c.out_format(0));
    }
  }
}

template <class T>
void accuracy(KernelCall<T>& c) {
  const int64_t rows = c.in_shape(0)[0], classes = c.in_shape(0)[1];
  const int32_t* labels = c.index_in[1];
  const Labels valid(*c.node, labels, rows, classes);
  int64_t right = 0;
  for (int64_t i = 0; i < rows; ++i) {
    const T* row = c.in[0] + i * classes;
    const bool bad = std::any_of(row, row + classes, [](T x) { return std::isnan(x); });
    if (valid.counts(i) && !bad && std::max_element(row, row + classes) - row == labels[i]) ++right;
  }
  c.out[0][0] = static_cast<T>(static_cast<double>(right) / static_cast<double>(valid.count()));
}

template <class T>
void mean_squared_error(KernelCall<T>& c) {
  const int64_t n = c.in_count(0);
  const T *prediction = c.in[0], *target = c.in[1];
  const auto error = [&](int64_t i) {
    return static_cast<double>(prediction[i]) - static_cast<double>(target[i]);
  };
  const SumSpec spec = c.sum_spec();
  double total = 0.0;
  if (std::is_same_v<T, float> && names_inner_sums(spec)) {
    std::vector<float> errors;
    for (int64_t i = 0; i < n; ++i) errors.push_back(static_cast<float>(error(i)));
    total = static_cast<double>(sum_of_products(second_sums(spec), errors, errors));
  } else {
    std::vector<double> sums(static_cast<size_t>((n + kLossChunk - 1) / kLossChunk), 0.0);
    parallel_ranges(n, kLossChunk, [&](int64_t begin, int64_t end) {
      sums[static_cast<size_t>(begin / kLossChunk)] =
          wide_sum(end - begin, [&](int64_t i) { return error(begin + i) * error(begin + i); });
    });
    total = sum_of(sums);
  }
  c.out[0][0] = delivered<T>(total / static_cast<double>(n), c.out_format(0));
}

template <class T>
void mean_squared_error_grad(KernelCall<T>& c) {  // (prediction, target, dloss)
  const int64_t n = c.in_count(0);
  const double factor = 2.0 * static_cast<double>(c.in[2][0]) / static_cast<double>(n);
  const FloatFormat write = c.out_format(0);
  parallel_ranges(n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const double error = static_cast<double>(c.in[0][i]) - static_cast<double>(c.in[1][i]);
      c.out[0][i] = delivered<T>(error * factor, write);
    }
  });
}

}  // namespace

template <class T>
std::span<const KernelEntry<T>> loss_kernels() {
  static constexpr KernelEntry<T> kernels[] = {
      {"SoftmaxCrossEntropyLoss", cross_entropy<T>},
      {"SoftmaxCrossEntropyLossGrad", cross_entropy_grad<T>},
      {"Accuracy", accuracy<T>},
      {"MeanSquaredError", mean_squared_error<T>},
      {"MeanSquaredErrorGrad", mean_squared_error_grad<T>}};
  return kernels;
}

template std::span<const KernelEntry<float>> loss_kernels();
template std::span<const KernelEntry<double>> loss_kernels();

}  // namespace halfscope
