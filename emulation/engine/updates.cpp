// SPDX-License-Identifier: MIT
// Operators that a step runs after the gradients (formulas in core/ops/training.cpp). Updates work
// in chunks directly on the variables' memory. They round the new value to the storage format here,
// because only a comparison with the old value shows whether an update was lost. Optimizer states
// are not rounded here; the Program measures and rounds them.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "emulation/engine/kernel.h"
#include "emulation/engine/map_values.h"
#include "emulation/measure/measure.h"

namespace halfscope {
namespace {

constexpr int64_t kChunk = kSumChunk;

/// Returns the sum of one chunk, or of its squares: 16 interleaved partial sums, then a balanced
/// tree.
template <bool kSquares, class T>
double chunk_sum(const T* x, int64_t n) {
  std::array<double, 16> partial{};
  const auto add = [&](size_t j, T element) {
    const double value = static_cast<double>(element);
    partial[j] += kSquares ? value * value : value;
  };
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (size_t j = 0; j < 16; ++j) add(j, x[i + static_cast<int64_t>(j)]);
  }
  for (; i < n; ++i) add(static_cast<size_t>(i % 16), x[i]);
  for (size_t width = 8; width > 0; width /= 2) {
    for (size_t j = 0; j < width; ++j) partial[j] += partial[j + width];
  }
  return partial[0];
}

/// Appends the sums of all chunks.
template <bool kSquares, class T>
void append_chunk_sums(const T* x, int64_t n, std::vector<double>& sums) {
  const size_t first = sums.size();
  sums.resize(first + static_cast<size_t>((n + kChunk - 1) / kChunk));
  parallel_ranges_in_vectors(n, kChunk, [&](int64_t begin, int64_t end) {
    sums[first + static_cast<size_t>(begin / kChunk)] = chunk_sum<kSquares>(x + begin, end - begin);
  });
}

/// Looks at exponents alone, as integers, which is several times faster than a sum in double.
template <class T>
bool all_finite(const T* x, int64_t n) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  constexpr Bits kExponent = std::bit_cast<Bits>(std::numeric_limits<T>::infinity());
  std::atomic<bool> finite{true};
  parallel_ranges_in_vectors(n, kGrain, [&finite, x](int64_t begin, int64_t end) {
    Bits bad = 0;
    for (int64_t i = begin; i < end; ++i) {
      bad |= (std::bit_cast<Bits>(x[i]) & kExponent) == kExponent ? Bits{1} : Bits{0};
    }
    if (bad != 0) finite = false;
  });
  return finite;
}

template <class T>
void gradient_norm(KernelCall<T>& c) {
  if (int_attribute(*c.node, "finite_only", 0) != 0) {
    bool finite = true;
    for (size_t i = 0; i < c.in.size(); ++i) finite = all_finite(c.in[i], c.in_count(i)) && finite;
    c.out[0][0] = finite ? T{0} : std::numeric_limits<T>::infinity();
    c.wide = static_cast<double>(c.out[0][0]);
    return;
  }
  std::vector<double> sums;
  for (size_t i = 0; i < c.in.size(); ++i) append_chunk_sums<true>(c.in[i], c.in_count(i), sums);
  while (sums.size() > 1) {
    std::vector<double> totals;
    append_chunk_sums<false>(sums.data(), static_cast<int64_t>(sums.size()), totals);
    sums = std::move(totals);
  }
  const double total = sums.empty() ? 0.0 : sums[0];
  c.wide = total;
  c.out[0][0] = static_cast<T>(total);
}

/// Rounds elements [first, first + n) of a tensor to the storage format. Double-precision programs
/// do not round.
void round_chunk(float* x, int64_t n, int64_t first, const FloatFormat& format,
                 const TensorRounding& rounding) {
  if (format != kFp32) round_array(x, x, n, format, rounding.from(first));
}
void round_chunk(double*, int64_t, int64_t, const FloatFormat&, const TensorRounding&) {}

/// Runs `make_update(begin, end, update)` per chunk. It sets update[i - begin] to the number that
/// is added to the variable, after the variable has been multiplied by 1 - decay. Stores the new
/// values and counts lost updates.
template <class T, class F>
void apply_updates(KernelCall<T>& c, const F& make_update, double decay = 0.0) {
  const T* w = c.in[0];
  T* next = c.out[0];
  T* update = c.out[1];
  const FloatFormat storage = c.out_format(0);
  const TensorRounding rounding = c.out_rounding(0);
  std::atomic<int64_t> lost{0};
  parallel_ranges_in_vectors(c.out_count(0), kChunk, [&](int64_t begin, int64_t end) {
    alignas(64) T old[kChunk];
    const int64_t n = end - begin;
    std::copy_n(w + begin, n, old);
    make_update(begin, end, update + begin);
    if (decay == 0.0) {
      for (int64_t i = 0; i < n; ++i) next[begin + i] = old[i] + update[begin + i];
    } else {
      const T kept = static_cast<T>(1.0 - decay), rate = static_cast<T>(decay);
      for (int64_t i = 0; i < n; ++i) {
        const T shrunk = old[i] * kept, lost_part = rate * old[i];
        next[begin + i] = shrunk + update[begin + i];
        update[begin + i] = update[begin + i] - lost_part;
      }
    }
    round_chunk(next + begin, n, begin, storage, rounding);
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
T attribute(const KernelCall<T>& c, const char* name) {
  return static_cast<T>(real_attribute(*c.node, name, 0.0));
}

/// Returns an option that is input `i` if it changes by step, and otherwise an attribute.
template <class T>
T option(const KernelCall<T>& c, size_t i, const char* name) {
  return c.in.size() > i ? c.in[i][0] : attribute(c, name);
}

/// Computes g' of a chunk: the gradient after unscaling, clipping, negation and weight decay. The
/// first four inputs of every operator that reads a gradient are the variable, the gradient, 1 /
/// scale and the clipping factor.
template <class T>
class Gradient {
 public:
  explicit Gradient(const KernelCall<T>& c)
      : w_(c.in[0]),
        g_(c.in[1]),
        inverse_scale_(int_attribute(*c.node, "maximize", 0) != 0 ? -c.in[2][0] : c.in[2][0]),
        clip_(c.in[3][0]),
        decay_(attribute(c, "weight_decay")) {}

  void operator()(int64_t begin, int64_t n, T* target) const {
    for (int64_t i = 0; i < n; ++i) target[i] = (g_[begin + i] * inverse_scale_) * clip_;
    if (decay_ == T{0}) return;  // an infinite weight times 0 would be NaN
    for (int64_t i = 0; i < n; ++i) {
      const T decayed = decay_ * w_[begin + i];
      target[i] = target[i] + decayed;
    }
  }

 private:
  const T *w_, *g_;
  T inverse_scale_, clip_, decay_;
};

/// Calls f(begin, n, g') per chunk.
template <class T, class F>
void for_gradient(KernelCall<T>& c, const F& f) {
  const Gradient<T> gradient(c);
  parallel_ranges_in_vectors(c.out_count(0), kChunk, [&](int64_t begin, int64_t end) {
    alignas(64) T g[kChunk];
    gradient(begin, end - begin, g);
    f(begin, end - begin, g);
  });
}

template <class T>
void gradient_sum(KernelCall<T>& c) {
  const bool keep = c.in[2][0] != T{0};
  parallel_ranges_in_vectors(c.out_count(0), kChunk, [&](int64_t begin, int64_t end) {
    if (!keep) {  // the last step's sum may be NaN
      std::copy(c.in[1] + begin, c.in[1] + end, c.out[0] + begin);
      return;
    }
    for (int64_t i = begin; i < end; ++i) c.out[0][i] = c.in[0][i] + c.in[1][i];
  });
}

template <class T>
void assign(KernelCall<T>& c) {
  std::copy_n(c.in[0], c.out_count(0), c.out[0]);
}

template <class T>
void momentum(KernelCall<T>& c) {
  const T factor = option(c, 6, "momentum"), share = c.in.size() > 5 ? c.in[5][0] : T{1};
  for_gradient(c, [&](int64_t begin, int64_t n, const T* g) {
    for (int64_t i = 0; i < n; ++i) {
      const T kept = factor * c.in[4][begin + i], fresh = share * g[i];
      c.out[0][begin + i] = kept + fresh;
    }
  });
}

template <class T>
void sgd(KernelCall<T>& c) {
  const T rate = c.in[4][0];
  const T* velocity = c.in.size() > 5 ? c.in[5] : nullptr;
  const Gradient<T> gradient(c);
  apply_updates(c, [&](int64_t begin, int64_t end, T* update) {
    const int64_t n = end - begin;
    if (velocity != nullptr) {
      for (int64_t i = 0; i < n; ++i) update[i] = -(rate * velocity[begin + i]);
      return;
    }
    gradient(begin, n, update);
    for (int64_t i = 0; i < n; ++i) update[i] = -(rate * update[i]);
  });
}

template <class T>
void adam_moments(KernelCall<T>& c) {
  const double b1 = real_attribute(*c.node, "beta1", 0.9),
               b2 = real_attribute(*c.node, "beta2", 0.999);
  const bool changes = c.in.size() > 6;
  const T beta1 = changes ? c.in[6][0] : static_cast<T>(b1);
  const T other1 = changes ? c.in[7][0] : static_cast<T>(1.0 - b1);
  const T beta2 = static_cast<T>(b2), other2 = static_cast<T>(1.0 - b2);
  for_gradient(c, [&](int64_t begin, int64_t n, const T* g) {
    for (int64_t i = 0; i < n; ++i) {
      const T kept_m = beta1 * c.in[4][begin + i], new_m = other1 * g[i];
      const T kept_v = beta2 * c.in[5][begin + i], new_v = other2 * (g[i] * g[i]);
      c.out[0][begin + i] = kept_m + new_m;
      c.out[1][begin + i] = kept_v + new_v;
    }
  });
}

template <class T>
void adam(KernelCall<T>& c) {
  const T* m = c.in[1];
  const T* v = c.in[2];
  const double rate = static_cast<double>(c.in[3][0]),
               correction_1 = static_cast<double>(c.in[4][0]);
  const T step_size = static_cast<T>(rate / correction_1);
  const T root_2 = static_cast<T>(std::sqrt(static_cast<double>(c.in[5][0])));
  const T eps = attribute(c, "eps");
  const double decay = rate * real_attribute(*c.node, "decoupled_decay", 0.0);
  apply_updates(
      c,
      [&](int64_t begin, int64_t end, T* update) {
        for (int64_t i = begin; i < end; ++i) {
          const T denominator = std::sqrt(v[i]) / root_2 + eps;
          update[i - begin] = -(step_size * (m[i] / denominator));
        }
      },
      decay);
}

template <class T>
void square_average(KernelCall<T>& c) {
  const double a = real_attribute(*c.node, "alpha", 0.99);
  const T alpha = static_cast<T>(a), other = static_cast<T>(1.0 - a);
  for_gradient(c, [&](int64_t begin, int64_t n, const T* g) {
    for (int64_t i = 0; i < n; ++i) {
      const T kept = alpha * c.in[4][begin + i], fresh = other * (g[i] * g[i]);
      c.out[0][begin + i] = kept + fresh;
    }
  });
}

template <class T>
void rms_momentum(KernelCall<T>& c) {
  const T factor = option(c, 6, "momentum"), eps = attribute(c, "eps");
  for_gradient(c, [&](int64_t begin, int64_t n, const T* g) {
    for (int64_t i = 0; i < n; ++i) {
      const T kept = factor * c.in[5][begin + i];
      c.out[0][begin + i] = kept + g[i] / (std::sqrt(c.in[4][begin + i]) + eps);
    }
  });
}

template <class T>
void rms(KernelCall<T>& c) {
  const T rate = c.in[4][0], eps = attribute(c, "eps");
  const T* velocity = c.in.size() > 6 ? c.in[6] : nullptr;
  const Gradient<T> gradient(c);
  apply_updates(c, [&](int64_t begin, int64_t end, T* update) {
    const int64_t n = end - begin;
    if (velocity != nullptr) {
      for (int64_t i = 0; i < n; ++i) update[i] = -(rate * velocity[begin + i]);
      return;
    }
    gradient(begin, n, update);
    for (int64_t i = 0; i < n; ++i)
      update[i] = -(rate * (update[i] / (std::sqrt(c.in[5][begin + i]) + eps)));
  });
}

/// Rounds an intermediate value of a node to the node's write format.
template <class T>
void round_inside(const KernelCall<T>& c, T* x, int64_t n) {
  if (!c.unrounded) round_chunk(x, n, 0, c.node->plan.write, {});
}

template <class T>
void weight_average(KernelCall<T>& c) {
  const double d = real_attribute(*c.node, "decay", 0.0);
  const T keep = static_cast<T>(d), rate = static_cast<T>(1.0 - d);
  const bool lerp = int_attribute(*c.node, "lerp", 1) != 0;
  const T *e = c.in[0], *w = c.in[1];
  std::atomic<int64_t> lost{0};
  parallel_ranges_in_vectors(c.out_count(0), kChunk, [&](int64_t begin, int64_t end) {
    alignas(64) T old[kChunk];
    alignas(64) T fresh[kChunk];
    const int64_t n = end - begin;
    std::copy_n(e + begin, n, old);
    T *next = c.out[0] + begin, *update = c.out[1] + begin;
    for (int64_t i = 0; i < n; ++i) update[i] = w[begin + i] - old[i];
    round_inside(c, update, n);
    for (int64_t i = 0; i < n; ++i) update[i] = rate * update[i];
    round_inside(c, update, n);
    if (lerp) {
      for (int64_t i = 0; i < n; ++i) next[i] = old[i] + update[i];
    } else {
      for (int64_t i = 0; i < n; ++i) {
        next[i] = keep * old[i];
        fresh[i] = rate * w[begin + i];
      }
      round_inside(c, next, n);
      round_inside(c, fresh, n);
      for (int64_t i = 0; i < n; ++i) next[i] = next[i] + fresh[i];
    }
    round_chunk(next, n, begin, c.out_format(0), c.out_rounding(0));
    if (!c.measured) return;
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) count += (update[i] != T{0}) & (next[i] == old[i]);
    lost += count;
  });
  c.lost = lost;
}

}  // namespace

template <class T>
std::span<const KernelEntry<T>> update_kernels() {
  static constexpr KernelEntry<T> kernels[] = {{"GradientNorm", gradient_norm<T>},
                                               {"GradientSum", gradient_sum<T>},
                                               {"Assign", assign<T>},
                                               {"Momentum", momentum<T>},
                                               {"SgdUpdate", sgd<T>},
                                               {"AdamMoments", adam_moments<T>},
                                               {"AdamUpdate", adam<T>},
                                               {"SquareAverage", square_average<T>},
                                               {"RmsMomentum", rms_momentum<T>},
                                               {"RmsUpdate", rms<T>},
                                               {"WeightAverage", weight_average<T>}};
  return kernels;
}

template std::span<const KernelEntry<float>> update_kernels();
template std::span<const KernelEntry<double>> update_kernels();

}  // namespace halfscope
