// SPDX-License-Identifier: MIT
// Layer, group, instance and RMS normalization, fused. Sums are in double and in the emulator's
// order: 16 threads per group, or one item per parameter; or as the plan names them. The rest is in
// fp32, one item per element.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/axis_lines.h"
#include "core/numeric/sums/chain.h"
#include "gpu/bodies/divisor.h"
#include "gpu/bodies/normalization.h"
#include "gpu/bodies/work.h"

namespace halfscope::gpu {

/// Returns a sum of products under the plan's accumulation, delivered.
template <class Terms>
HS_HD double named_products(const ChainSpec& how, const Terms& terms, int64_t n, int64_t element) {
  return static_cast<double>(
      deliver_sum(how, sum_of_terms(how, terms, n, element), nullptr, n, element));
}

/// NormGroups with sizes that are ready for division.
struct DeviceGroups {
  int64_t groups;
  Divisor size, params, inner;

  HS_HD int64_t param(int64_t i) const { return i / inner % params; }
  HS_HD int64_t of_param(int64_t p, int64_t k) const {
    const int64_t run = k / inner;
    return (run * params + p) * inner + (k - run * inner);
  }
  HS_HD int64_t per_param() const { return groups * size / params; }
};

/// Line: a group.
template <class T>
struct GroupStatistics {
  static constexpr int kThreads = LineSums::kThreads;
  struct Shared {
    LineSums sums;
    double centre[LineSums::kLines];
  };
  struct State {};

  DeviceGroups groups;
  In<T> x;
  Out<T> mean;  ///< null: the mean is not subtracted
  Out<T> inverse;
  double epsilon;
  ChainSpec how;
  bool named;

  struct Values {
    In<T> x;
    HS_HD float left(int64_t k) const { return static_cast<float>(x[k]); }
    HS_HD float right(int64_t) const { return 1.0f; }
    HS_HD bool present(int64_t) const { return true; }
  };
  struct Squares {
    In<T> x;
    double centre;
    HS_HD float left(int64_t k) const {
      return static_cast<float>(static_cast<double>(x[k]) - centre);
    }
    HS_HD float right(int64_t k) const { return left(k); }
    HS_HD bool present(int64_t) const { return true; }
  };

  int64_t blocks() const { return ceil_div(groups.groups, LineSums::kLines); }
  HS_HD int64_t steps() const { return 4; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State&) const {
    const int line = LineSums::line_of(thread);
    const int64_t group = block * LineSums::kLines + line;
    if (group >= groups.groups) return;
    const In<T> in = x + group * groups.size;
    double& centre = shared.centre[line];
    if (s == 0) {
      shared.sums.add(groups.size, thread, [&](int64_t i, double& total, double&) {
        total += static_cast<double>(in[i]);
      });
    } else if (s == 2) {
      shared.sums.add(groups.size, thread, [&](int64_t i, double& total, double&) {
        const double value = static_cast<double>(in[i]) - centre;
        total += value * value;
      });
    } else if (LineSums::leads(thread)) {
      const double sum = shared.sums.total(thread).first;
      if (s == 1) centre = take_mean(group, in, sum);
      if (s == 3) take_deviation(group, in, centre, sum);
    }
  }

 private:
  HS_HD double take_mean(int64_t group, const In<T>& in, double sum) const {
    if (mean == nullptr) return 0.0;
    if constexpr (kNamesSums<T>) {
      if (named) sum = sum_of_terms(how, Values{in}, groups.size, group);
    }
    const double centre = sum / static_cast<double>(groups.size);
    mean[group] = static_cast<T>(centre);
    return centre;
  }
  HS_HD void take_deviation(int64_t group, const In<T>& in, double centre, double squares) const {
    if constexpr (kNamesSums<T>) {
      if (named) squares = named_products(how.second(), Squares{in, centre}, groups.size, group);
    }
    const double variance = squares / static_cast<double>(groups.size);
    inverse[group] = static_cast<T>(1.0 / std::sqrt(variance + epsilon));
  }
};

template <class T>
struct NormalizeGroup {
  DeviceGroups groups;
  In<T> x, mean, inverse, scale, bias;  ///< mean and bias may be null
  Out<T> y;

  HS_HD void operator()(int64_t i) const {
    const int64_t group = i / groups.size, p = groups.param(i);
    const T middle = mean != nullptr ? mean[group] : T{0};
    const T scaled = (x[i] - middle) * inverse[group] * scale[p];
    y[i] = bias != nullptr ? scaled + bias[p] : scaled;
  }
};

/// Operands that all sums of the gradient read.
template <class T>
struct NormOperands {
  DeviceGroups groups;
  In<T> dy, x, scale, mean, inverse;  ///< mean may be null

  /// Returns (x - mean) / deviation.
  HS_HD double normal(int64_t i) const {
    const int64_t group = i / groups.size;
    const double centre = mean != nullptr ? static_cast<double>(mean[group]) : 0.0;
    return (static_cast<double>(x[i]) - centre) * static_cast<double>(inverse[group]);
  }
  HS_HD double slope(int64_t i) const {
    return static_cast<double>(dy[i]) * static_cast<double>(scale[groups.param(i)]);
  }
};

/// Line: a group. share = sum g / size, slope = sum g h / size.
template <class T>
struct GroupGradSums {
  static constexpr int kThreads = LineSums::kThreads;
  using Shared = LineSums;
  struct State {};

  NormOperands<T> of;
  Out<T> share, slope;
  ChainSpec how;
  bool named;

  struct Slopes {
    const NormOperands<T>& of;
    int64_t first;
    bool normal;  ///< (dy scale, h), otherwise (dy, scale)
    HS_HD float left(int64_t k) const {
      return normal ? static_cast<float>(of.slope(first + k))
                    : static_cast<float>(of.dy[first + k]);
    }
    HS_HD float right(int64_t k) const {
      return normal ? static_cast<float>(of.normal(first + k))
                    : static_cast<float>(of.scale[of.groups.param(first + k)]);
    }
    HS_HD bool present(int64_t) const { return true; }
  };

  int64_t blocks() const { return ceil_div(of.groups.groups, LineSums::kLines); }
  HS_HD int64_t steps() const { return 2; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State&) const {
    const int64_t group = block * LineSums::kLines + LineSums::line_of(thread);
    if (group >= of.groups.groups) return;
    const int64_t first = group * of.groups.size;
    if (s == 0) {
      shared.add(of.groups.size, thread, [&](int64_t i, double& sum, double& product) {
        const double g = of.slope(first + i);
        sum += g;
        product += g * of.normal(first + i);
      });
    } else if (LineSums::leads(thread)) {
      finish(group, first, shared.total(thread));
    }
  }

 private:
  HS_HD void finish(int64_t group, int64_t first, PlaneSums sums) const {
    const int64_t size = of.groups.size;
    if constexpr (kNamesSums<T>) {
      if (named) {
        const ChainSpec third = how.second().second();
        sums.first = named_products(third, Slopes{of, first, false}, size, group);
        sums.second = named_products(third.second(), Slopes{of, first, true}, size, group);
      }
    }
    const double n = static_cast<double>(size);
    share[group] = of.mean != nullptr ? static_cast<T>(sums.first / n) : T{0};
    slope[group] = static_cast<T>(sums.second / n);
  }
};

template <class T>
struct NormalizeGroupGrad {
  NormOperands<T> of;
  In<T> share, slope;
  Out<T> dx;

  HS_HD void operator()(int64_t i) const {
    const int64_t group = i / of.groups.size;
    const T middle = of.mean != nullptr ? of.mean[group] : T{0};
    const T g = of.dy[i] * of.scale[of.groups.param(i)];
    const T h = (of.x[i] - middle) * of.inverse[group];
    dx[i] = of.inverse[group] * ((g - share[group]) - h * slope[group]);
  }
};

/// Item: a parameter.
template <class T>
struct ParameterGrads {
  NormOperands<T> of;
  Out<T> dscale, dbias;  ///< dbias may be null
  ChainSpec how;
  bool named;

  struct Terms {
    const NormOperands<T>& of;
    int64_t p;
    bool normal;
    HS_HD float left(int64_t k) const {
      return static_cast<float>(of.dy[of.groups.of_param(p, k)]);
    }
    HS_HD float right(int64_t k) const {
      return normal ? static_cast<float>(of.normal(of.groups.of_param(p, k))) : 1.0f;
    }
    HS_HD bool present(int64_t) const { return true; }
  };

  HS_HD void operator()(int64_t p) const {
    const int64_t n = of.groups.per_param();
    double sum = 0.0, product = 0.0;
    for (int64_t k = 0; k < n; ++k) {
      const int64_t i = of.groups.of_param(p, k);
      const double g = static_cast<double>(of.dy[i]);
      product += g * of.normal(i);
      sum += g;
    }
    if constexpr (kNamesSums<T>) {
      if (named) {
        sum = sum_of_terms(how, Terms{of, p, false}, n, p);
        product = named_products(how.second(), Terms{of, p, true}, n, p);
      }
    }
    dscale[p] = static_cast<T>(product);
    if (dbias != nullptr) dbias[p] = static_cast<T>(sum);
  }
};

}  // namespace halfscope::gpu
