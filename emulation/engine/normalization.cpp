// SPDX-License-Identifier: MIT
// Batch normalization, fused (core/ops/normalization.cpp). Statistics and sums are in double, plane
// after plane (sample, channel), each in the fixed order of plane_sums. If the plan names another
// accumulation, it runs over (sample, pixel) instead. The rest is in fp32. Threads share channels,
// so no sum depends on them.
#include <cmath>

#include "core/numeric/sums/accumulate.h"
#include "emulation/engine/kernel.h"
#include "emulation/engine/map_values.h"
#include "emulation/engine/plane_sums.h"

namespace halfscope {
namespace {

/// [batch, channels, plane...]
struct Planes {
  int64_t batch, channels, size;

  explicit Planes(const Shape& shape)
      : batch(shape[0]),
        channels(shape[1]),
        size(element_count(shape) / std::max<int64_t>(1, shape[0] * shape[1])) {}
  int64_t offset(int64_t sample, int64_t channel) const {
    return (sample * channels + channel) * size;
  }
  double count() const { return static_cast<double>(batch * size); }
};

/// Returns the elements of one channel in fp32, minus `offset`: all samples, plane by plane.
template <class T>
std::vector<float> channel_values(const Planes& planes, int64_t channel, const T* x,
                                  double offset) {
  std::vector<float> values;
  for (int64_t sample = 0; sample < planes.batch; ++sample) {
    const T* in = x + planes.offset(sample, channel);
    for (int64_t i = 0; i < planes.size; ++i) {
      values.push_back(static_cast<float>(static_cast<double>(in[i]) - offset));
    }
  }
  return values;
}

template <class T>
void normalize_channel(const Planes& planes, int64_t channel, const T* x, T mean, T factor, T bias,
                       T* y) {
  for (int64_t sample = 0; sample < planes.batch; ++sample) {
    const T* in = x + planes.offset(sample, channel);
    T* out = y + planes.offset(sample, channel);
    for (int64_t i = 0; i < planes.size; ++i) out[i] = (in[i] - mean) * factor + bias;
  }
}

template <class T>
void batch_normalization(KernelCall<T>& c) {
  const Planes planes(c.in_shape(0));
  const double epsilon = real_attribute(*c.node, "epsilon", 1e-5);
  const double momentum = real_attribute(*c.node, "momentum", 0.9);
  const bool training = c.out.size() > 1;
  const SumSpec spec = c.sum_spec();
  const bool named = std::is_same_v<T, float> && names_inner_sums(spec);
  const double n = planes.count();
  const double unbiased = int_attribute(*c.node, "unbiased", 0) != 0 ? n / (n - 1.0) : 1.0;
  const T* x = c.in[0];
  parallel_ranges_in_vectors(planes.channels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t channel = begin; channel < end; ++channel) {
      double mean = static_cast<double>(c.in[3][channel]),
             var = static_cast<double>(c.in[4][channel]);
      if (training) {
        double sum = 0.0, squares = 0.0;
        for (int64_t sample = 0; sample < planes.batch; ++sample) {
          const T* in = x + planes.offset(sample, channel);
          sum += plane_sums(planes.size, [&](int64_t i, double& total, double&) {
                   total += static_cast<double>(in[i]);
                 }).first;
        }
        if (named) sum = sum_of_values(spec, channel_values(planes, channel, x, 0.0), channel);
        const double batch_mean = sum / n;
        for (int64_t sample = 0; sample < planes.batch; ++sample) {
          const T* in = x + planes.offset(sample, channel);
          squares += plane_sums(planes.size, [&](int64_t i, double& total, double&) {
                       const double centred = static_cast<double>(in[i]) - batch_mean;
                       total += centred * centred;
                     }).first;
        }
        if (named) {
          const std::vector<float> centred = channel_values(planes, channel, x, batch_mean);
          squares = static_cast<double>(
              sum_of_products(second_sums(spec), centred, centred, nullptr, channel));
        }
        const double batch_var = squares / n;
        c.out[1][channel] = static_cast<T>(momentum * mean + (1.0 - momentum) * batch_mean);
        c.out[2][channel] =
            static_cast<T>(momentum * var + (1.0 - momentum) * batch_var * unbiased);
        mean = batch_mean;
        var = batch_var;
      }
      const double inverse = 1.0 / std::sqrt(var + epsilon);
      if (training) {
        c.out[3][channel] = static_cast<T>(mean);
        c.out[4][channel] = static_cast<T>(inverse);
      }
      const T factor = static_cast<T>(inverse * static_cast<double>(c.in[1][channel]));
      normalize_channel(planes, channel, x, static_cast<T>(mean), factor, c.in[2][channel],
                        c.out[0]);
    }
  });
}

template <class T>
void batch_normalization_grad(
    KernelCall<T>& c) {  // (dy, x, scale, mean, inverse) -> dx, dscale, dbias
  const Planes planes(c.in_shape(0));
  const SumSpec spec = c.sum_spec();
  const bool named = std::is_same_v<T, float> && names_inner_sums(spec);
  const T* dy = c.in[0];
  const T* x = c.in[1];
  parallel_ranges_in_vectors(planes.channels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t channel = begin; channel < end; ++channel) {
      const double mean = static_cast<double>(c.in[3][channel]);
      const double inverse = static_cast<double>(c.in[4][channel]);
      PlaneSums total;
      for (int64_t sample = 0; sample < planes.batch; ++sample) {
        const int64_t at = planes.offset(sample, channel);
        const PlaneSums plane =
            plane_sums(planes.size, [&](int64_t i, double& sum, double& product) {
              const double g = static_cast<double>(dy[at + i]);
              sum += g;
              product += g * (static_cast<double>(x[at + i]) - mean);
            });
        total.first += plane.first;
        total.second += plane.second;
      }
      if (named) {
        const std::vector<float> gradient = channel_values(planes, channel, dy, 0.0);
        const std::vector<float> centred = channel_values(planes, channel, x, mean);
        total.first = sum_of_values(spec, gradient, channel);
        total.second = static_cast<double>(
            sum_of_products(second_sums(spec), gradient, centred, nullptr, channel));
      }
      const double dscale = total.second * inverse;
      c.out[1][channel] = static_cast<T>(dscale);
      c.out[2][channel] = static_cast<T>(total.first);
      const T factor = static_cast<T>(static_cast<double>(c.in[2][channel]) * inverse);
      const T share = static_cast<T>(total.first / planes.count());
      const T slope = static_cast<T>(dscale * inverse / planes.count());
      const T middle = c.in[3][channel];
      for (int64_t sample = 0; sample < planes.batch; ++sample) {
        const int64_t at = planes.offset(sample, channel);
        for (int64_t i = at; i < at + planes.size; ++i) {
          const T centred = (x[i] - middle) * slope;
          c.out[0][i] = factor * ((dy[i] - share) - centred);
        }
      }
    }
  });
}

}  // namespace

template <class T>
std::span<const KernelEntry<T>> normalization_kernels() {
  static constexpr KernelEntry<T> kernels[] = {
      {"BatchNormalization", batch_normalization<T>},
      {"BatchNormalizationGrad", batch_normalization_grad<T>}};
  return kernels;
}

template std::span<const KernelEntry<float>> normalization_kernels();
template std::span<const KernelEntry<double>> normalization_kernels();

}  // namespace halfscope
