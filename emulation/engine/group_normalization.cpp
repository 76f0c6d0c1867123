// SPDX-License-Identifier: MIT
// Layer, group, instance and RMS normalization, fused (core/ops/group_normalization.cpp). Sums over
// groups and over the elements of a parameter are in double, in the fixed order of plane_sums,
// unless the plan names another accumulation. The rest is in fp32. Threads share groups, then
// parameters.
#include <algorithm>
#include <cmath>

#include "core/numeric/sums/accumulate.h"
#include "emulation/engine/kernel.h"
#include "emulation/engine/map_values.h"
#include "emulation/engine/plane_sums.h"

namespace halfscope {
namespace {

/// Groups per piece of work.
int64_t group_grain(const NormGroups& s) { return std::max<int64_t>(1, kGrain / 4 / s.size); }

/// Returns whether each group has every parameter once, in order, as in layer normalization.
bool is_by_rows(const NormGroups& s) { return s.inner == 1 && s.size == s.params; }

/// Calls f(i, p) for a group's elements i, ascending, and their parameters p.
template <class F>
void for_group(const NormGroups& s, int64_t group, const F& f) {
  const int64_t first = group * s.size;
  if (is_by_rows(s)) {
    for (int64_t p = 0; p < s.size; ++p) f(first + p, p);
    return;
  }
  int64_t p = s.param(first), left = s.inner - first % s.inner;
  for (int64_t i = first; i < first + s.size; ++i) {
    f(i, p);
    if (--left > 0) continue;
    left = s.inner;
    p = p + 1 == s.params ? 0 : p + 1;
  }
}

template <class T>
void group_normalization(KernelCall<T>& c) {
  const NormGroups s = norm_groups(*c.node, c.in_shape(0));
  const double epsilon = real_attribute(*c.node, "epsilon", 1e-5);
  const SumSpec spec = c.sum_spec();
  const bool named = std::is_same_v<T, float> && names_inner_sums(spec);
  const bool centred = c.out.size() > 2;
  const T* const bias = c.in.size() > 2 ? c.in[2] : nullptr;
  T* const means = centred ? c.out[1] : nullptr;
  T* const inverses = c.out[centred ? 2 : 1];
  const T* const scale = c.in[1];
  const double n = static_cast<double>(s.size);
  parallel_ranges_in_vectors(s.groups, group_grain(s), [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      const int64_t first = group * s.size;
      const T* x = c.in[0] + first;
      T* const y = c.out[0] + first;
      double mean = 0.0;
      if (centred) {
        double sum = plane_sums(s.size, [&](int64_t i, double& total, double&) {
                       total += static_cast<double>(x[i]);
                     }).first;
        if (named) sum = sum_of_values(spec, std::vector<float>(x, x + s.size), group);
        mean = sum / n;
      }
      double squares = plane_sums(s.size, [&](int64_t i, double& total, double&) {
                         const double value = static_cast<double>(x[i]) - mean;
                         total += value * value;
                       }).first;
      if (named) {
        std::vector<float> values;
        for (int64_t i = 0; i < s.size; ++i) {
          values.push_back(static_cast<float>(static_cast<double>(x[i]) - mean));
        }
        squares =
            static_cast<double>(sum_of_products(second_sums(spec), values, values, nullptr, group));
      }
      const T middle = static_cast<T>(mean);
      const T inverse = static_cast<T>(1.0 / std::sqrt(squares / n + epsilon));
      if (centred) means[group] = middle;
      inverses[group] = inverse;
      for_group(s, group, [&](int64_t i, int64_t p) {
        const T scaled = (x[i - first] - middle) * inverse * scale[p];
        y[i - first] = bias != nullptr ? scaled + bias[p] : scaled;
      });
    }
  });
}

/// (dy, x, scale, mean?, inverse) -> dx, dscale, dbias
template <class T>
struct NormalizationGrad {
  const KernelCall<T>& c;
  NormGroups s = norm_groups_of_gradient(*c.node, c.in_shape(1), c.in_shape(2));
  const T *dy = c.in[0], *x = c.in[1], *scale = c.in[2], *mean = c.in[3], *inverse = c.in[4];
  SumSpec spec = c.sum_spec();
  bool named = std::is_same_v<T, float> && names_inner_sums(spec);

  /// Returns (x - mean) / deviation of element i, which is in `group`.
  double normal(int64_t i, int64_t group) const {
    const double centre = mean != nullptr ? static_cast<double>(mean[group]) : 0.0;
    return (static_cast<double>(x[i]) - centre) * static_cast<double>(inverse[group]);
  }

  void group(int64_t index) const {
    thread_local std::vector<double> room;
    room.resize(static_cast<size_t>(s.size));
    double* const slopes = room.data();
    const int64_t first = index * s.size;
    for_group(s, index, [&](int64_t i, int64_t p) {
      slopes[i - first] = static_cast<double>(dy[i]) * static_cast<double>(scale[p]);
    });
    PlaneSums sums = plane_sums(s.size, [&](int64_t i, double& sum, double& product) {
      const double g = slopes[i];
      sum += g;
      product += g * normal(first + i, index);
    });
    if (named) {
      std::vector<float> gradients, scales, normals;
      for_group(s, index, [&](int64_t i, int64_t p) {
        gradients.push_back(static_cast<float>(dy[i]));
        scales.push_back(static_cast<float>(scale[p]));
        normals.push_back(static_cast<float>(normal(i, index)));
      });
      const std::vector<float> products(room.begin(), room.end());
      const SumSpec third = second_sums(second_sums(spec));
      sums.first = static_cast<double>(sum_of_products(third, gradients, scales, nullptr, index));
      sums.second = static_cast<double>(
          sum_of_products(second_sums(third), products, normals, nullptr, index));
    }
    const double n = static_cast<double>(s.size);
    const T share = mean != nullptr ? static_cast<T>(sums.first / n) : T{0};
    const T slope = static_cast<T>(sums.second / n);
    const T middle = mean != nullptr ? mean[index] : T{0};
    const T factor = inverse[index];
    T* const dx = c.out[0];
    for_group(s, index, [=, this](int64_t i, int64_t p) {
      const T g = dy[i] * scale[p];
      const T h = (x[i] - middle) * factor;
      dx[i] = factor * ((g - share) - h * slope);
    });
  }

  /// Computes the gradients of parameters [begin, end): several at a time, because those that are
  /// adjacent in x are read together.
  void parameters(int64_t begin, int64_t end) const {
    std::vector<Partials> slopes(static_cast<size_t>(end - begin)), sums = slopes;
    if (is_by_rows(s)) {
      add_rows(begin, end, slopes, sums);
    } else {
      add_runs(begin, end, slopes, sums);
    }
    for (int64_t p = begin; p < end; ++p) {
      const size_t at = static_cast<size_t>(p - begin);
      double slope = add_tree(slopes[at]), sum = add_tree(sums[at]);
      if (named) {
        std::vector<float> gradients, normals;
        for (int64_t k = 0; k < s.per_param(); ++k) {
          const int64_t i = s.of_param(p, k);
          gradients.push_back(static_cast<float>(dy[i]));
          normals.push_back(static_cast<float>(normal(i, i / s.size)));
        }
        sum = sum_of_values(spec, gradients, p);
        slope =
            static_cast<double>(sum_of_products(second_sums(spec), gradients, normals, nullptr, p));
      }
      c.out[1][p] = static_cast<T>(slope);
      if (c.out.size() > 2) c.out[2][p] = static_cast<T>(sum);
    }
  }

 private:
  /// Adds the terms of parameters [begin, end) to their partial sums; groups are rows of them.
  void add_rows(int64_t begin, int64_t end, std::vector<Partials>& slopes,
                std::vector<Partials>& sums) const {
    const int64_t count = end - begin;
    std::vector<double> by_partial(static_cast<size_t>(2 * kPartialSums * count));
    for (int64_t row = 0; row < s.groups; ++row) {
      const int64_t partial = row % static_cast<int64_t>(kPartialSums),
                    first = row * s.size + begin;
      double* const slope = by_partial.data() + 2 * partial * count;
      double* const sum = slope + count;
      const double centre = mean != nullptr ? static_cast<double>(mean[row]) : 0.0;
      const double factor = static_cast<double>(inverse[row]);
      for (int64_t p = 0; p < count; ++p) {
        const double g = static_cast<double>(dy[first + p]);
        slope[p] += g * ((static_cast<double>(x[first + p]) - centre) * factor);
        sum[p] += g;
      }
    }
    for (size_t partial = 0; partial < kPartialSums; ++partial) {
      const double* const from = by_partial.data() + 2 * partial * static_cast<size_t>(count);
      for (size_t p = 0; p < slopes.size(); ++p) {
        slopes[p][partial] = from[p];
        sums[p][partial] = from[slopes.size() + p];
      }
    }
  }

  /// Same for any groups.
  void add_runs(int64_t begin, int64_t end, std::vector<Partials>& slopes,
                std::vector<Partials>& sums) const {
    for (int64_t run = 0; run < s.per_param(); run += s.inner) {
      const int64_t block = run * s.params;
      int64_t group = (block + begin * s.inner) / s.size;
      for (int64_t p = begin; p < end; ++p) {
        if ((group + 1) * s.size <= block + p * s.inner) ++group;
        Partials &slope = slopes[static_cast<size_t>(p - begin)],
                 &sum = sums[static_cast<size_t>(p - begin)];
        const int64_t first = block + p * s.inner;
        for (int64_t i = 0; i < s.inner; ++i) {
          const size_t partial = static_cast<size_t>(run + i) % kPartialSums;
          const double g = static_cast<double>(dy[first + i]);
          slope[partial] += g * normal(first + i, group);
          sum[partial] += g;
        }
      }
    }
  }
};

template <class T>
void normalization_grad(KernelCall<T>& c) {
  const NormalizationGrad<T> of{c};
  parallel_ranges_in_vectors(of.s.groups, group_grain(of.s), [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) of.group(group);
  });
  // Parameters that are adjacent in x are read together.
  const int64_t side_by_side = of.s.inner == 1 ? 64 : 1;
  const int64_t grain = std::max(side_by_side, kGrain / std::max<int64_t>(1, of.s.per_param()));
  parallel_ranges_in_vectors(of.s.params, grain,
                             [&](int64_t begin, int64_t end) { of.parameters(begin, end); });
}

}  // namespace

template <class T>
std::span<const KernelEntry<T>> group_normalization_kernels() {
  static constexpr KernelEntry<T> kernels[] = {{"LayerNormalization", group_normalization<T>},
                                               {"GroupNormalization", group_normalization<T>},
                                               {"InstanceNormalization", group_normalization<T>},
                                               {"RMSNormalization", group_normalization<T>},
                                               {"NormalizationGrad", normalization_grad<T>}};
  return kernels;
}

template std::span<const KernelEntry<float>> group_normalization_kernels();
template std::span<const KernelEntry<double>> group_normalization_kernels();

}  // namespace halfscope
