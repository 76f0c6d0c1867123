// SPDX-License-Identifier: MIT
// Gradient norm and optimizer updates (formulas in core/ops/training.cpp). Updates work in chunks
// on the variables' own memory: the new value is rounded to the storage format here, because
// whether an update was lost shows only by comparing it with the old one.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>

#include "emulation/engine/kernel.h"
#include "emulation/measure/measure.h"

namespace halfscope {
namespace {

constexpr int64_t kChunk = kSumChunk;

/// Sum of squares of one chunk: 16 interleaved partials, then a balanced tree.
template <class T>
double chunk_squares(const T* x, int64_t n) {
  std::array<double, 16> partial{};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (size_t j = 0; j < 16; ++j) {
      const double value = static_cast<double>(x[i + static_cast<int64_t>(j)]);
      partial[j] += value * value;
    }
  }
  for (; i < n; ++i) {
    const double value = static_cast<double>(x[i]);
    partial[static_cast<size_t>(i % 16)] += value * value;
  }
  for (size_t width = 8; width > 0; width /= 2) {
    for (size_t j = 0; j < width; ++j) partial[j] += partial[j + width];
  }
  return partial[0];
}

template <class T>
void gradient_norm(KernelCall<T>& c) {
  double total = 0.0;
  for (size_t i = 0; i < c.in.size(); ++i) {
    const T* g = c.in[i];
    const int64_t n = c.in_count(i);
    std::vector<double> sums(static_cast<size_t>((n + kChunk - 1) / kChunk));
    parallel_ranges(n, kChunk, [&](int64_t begin, int64_t end) {
      sums[static_cast<size_t>(begin / kChunk)] = chunk_squares(g + begin, end - begin);
    });
    for (double sum : sums) total += sum;
  }
  c.wide = total;
  c.out[0][0] = static_cast<T>(total);
}

/// Rounds a chunk to the storage format; double-precision programs do not round.
void round_chunk(float* x, int64_t n, const FloatFormat& format) {
  if (format != kFp32) round_array(x, x, n, format);
}
void round_chunk(double*, int64_t, const FloatFormat&) {}

/// Runs `make_update(begin, end, update)` per chunk, where update[i - begin] is what to add to
/// the variable; stores the new values and counts the lost ones.
template <class T, class F>
void apply_updates(KernelCall<T>& c, const F& make_update) {
  const T* w = c.in[0];
  T* next = c.out[0];
  T* update = c.out[1];
  const FloatFormat storage = c.out_format(0);
  std::atomic<int64_t> lost{0};
  parallel_ranges(c.out_count(0), kChunk, [&](int64_t begin, int64_t end) {
    alignas(64) T old[kChunk];
    const int64_t n = end - begin;
    std::copy_n(w + begin, n, old);
    make_update(begin, end, update + begin);
    for (int64_t i = 0; i < n; ++i) next[begin + i] = old[i] + update[begin + i];
    round_chunk(next + begin, n, storage);
    if (!c.measured) return;
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) {
      count += (update[begin + i] != T{0}) & (next[begin + i] == old[i]);
    }
    lost += count;
  });
  c.lost = lost;
}

template <class T>
void sgd(KernelCall<T>& c) {
  const T* w = c.in[0];
  const T* g = c.in[1];
  const T inverse_scale = c.in[2][0], rate = c.in[3][0];
  const T decay = static_cast<T>(real_attribute(*c.node, "weight_decay", 0.0));
  const T momentum = static_cast<T>(real_attribute(*c.node, "momentum", 0.0));
  const bool has_momentum = c.in.size() > 4;
  if (!has_momentum && decay == T{0}) {
    apply_updates(c, [&](int64_t begin, int64_t end, T* update) {
      for (int64_t i = begin; i < end; ++i) update[i - begin] = -(rate * (g[i] * inverse_scale));
    });
    return;
  }
  const T* velocity = has_momentum ? c.in[4] : nullptr;
  T* next_velocity = has_momentum ? c.out[2] : nullptr;
  apply_updates(c, [&](int64_t begin, int64_t end, T* update) {
    for (int64_t i = begin; i < end; ++i) {
      const T decayed = decay * w[i];
      update[i - begin] = g[i] * inverse_scale + decayed;
    }
    if (has_momentum) {
      for (int64_t i = begin; i < end; ++i) {
        const T kept = momentum * velocity[i];
        next_velocity[i] = kept + update[i - begin];
      }
      round_chunk(next_velocity + begin, end - begin, c.out_format(2));
      std::copy(next_velocity + begin, next_velocity + end, update);
    }
    for (int64_t i = 0; i < end - begin; ++i) update[i] = -(rate * update[i]);
  });
}

template <class T>
void adam(KernelCall<T>& c) {
  const T* w = c.in[0];
  const T* g = c.in[1];
  const T inverse_scale = c.in[2][0];
  const double rate = static_cast<double>(c.in[3][0]), correction_1 = static_cast<double>(c.in[4][0]);
  const T step_size = static_cast<T>(rate / correction_1);
  const T root_2 = static_cast<T>(std::sqrt(static_cast<double>(c.in[5][0])));
  const double b1 = real_attribute(*c.node, "beta1", 0.9), b2 = real_attribute(*c.node, "beta2", 0.999);
  const T beta1 = static_cast<T>(b1), beta2 = static_cast<T>(b2);
  const T other1 = static_cast<T>(1.0 - b1), other2 = static_cast<T>(1.0 - b2);
  const T eps = static_cast<T>(real_attribute(*c.node, "eps", 1e-8));
  const T decay = static_cast<T>(real_attribute(*c.node, "weight_decay", 0.0));
  const T* m = c.in[6];
  const T* v = c.in[7];
  T* next_m = c.out[2];
  T* next_v = c.out[3];
  apply_updates(c, [&](int64_t begin, int64_t end, T* update) {
    for (int64_t i = begin; i < end; ++i) {
      const T decayed = decay * w[i];
      const T gradient = g[i] * inverse_scale + decayed;
      const T kept_m = beta1 * m[i], new_m = other1 * gradient;
      const T kept_v = beta2 * v[i], new_v = other2 * (gradient * gradient);
      next_m[i] = kept_m + new_m;
      next_v[i] = kept_v + new_v;
    }
    round_chunk(next_m + begin, end - begin, c.out_format(2));
    round_chunk(next_v + begin, end - begin, c.out_format(3));
    for (int64_t i = begin; i < end; ++i) {
      const T denominator = std::sqrt(next_v[i]) / root_2 + eps;
      update[i - begin] = -(step_size * (next_m[i] / denominator));
    }
  });
}

}  // namespace

template <class T>
std::span<const KernelEntry<T>> update_kernels() {
  static constexpr KernelEntry<T> kernels[] = {
      {"GradientNorm", gradient_norm<T>}, {"SgdUpdate", sgd<T>}, {"AdamUpdate", adam<T>}};
  return kernels;
}

template std::span<const KernelEntry<float>> update_kernels();
template std::span<const KernelEntry<double>> update_kernels();

}  // namespace halfscope
