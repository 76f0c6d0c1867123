// SPDX-License-Identifier: MIT
// Layer, group, instance and RMS normalization, fused. Sums are in double and in the emulator's
// order: 16 threads per group, and teams of threads per parameter; or as the plan names them. The
// rest is in fp32, one item per element.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "core/numeric/sums/chain.h"
#include "gpu/bodies/divisor.h"
#include "gpu/bodies/normalization.h"
#include "gpu/bodies/several.h"
#include "gpu/bodies/team_sums.h"
#include "gpu/bodies/work.h"

namespace halfscope::gpu {

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
  HS_HD int64_t count() const { return groups * size; }

  /// Returns whether kSeveral neighbours that begin at a multiple of kSeveral are in one group, and
  /// so are their parameters.
  HS_HD bool keep_packs() const {
    return int64_t{inner} == 1 && int64_t{size} % kSeveral == 0 && int64_t{params} % kSeveral == 0;
  }
  /// Reads the parameters of neighbours.
  template <class In, class T>
  HS_HD void read_parameters(const In& from, const Neighbours& at, T (&to)[kSeveral]) const {
    if (keep_packs()) {
      read(from, Neighbours{param(at.first), at.count}, to);
      return;
    }
    read_parameters(from, Spaced{at.first, 1, at.count}, to);
  }
  template <class In, class T>
  HS_HD void read_parameters(const In& from, const Spaced& at, T (&to)[kSeveral]) const {
    for (int j = 0; j < kSeveral; ++j) {
      to[j] = j < at.count ? from[param(at.first + j * at.step)] : T{0};
    }
  }
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
  SumWay way;

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
      add(thread, in, shared.sums, Values{in}, [](double value) { return value; });
    } else if (s == 2) {
      add(thread, in, shared.sums, Squares{in, centre}, [&](double value) {
        const double centred = value - centre;
        return centred * centred;
      });
    } else if (LineSums::leads(thread)) {
      if (s == 1) centre = take_mean(group, in, thread, shared.sums);
      if (s == 3) take_deviation(group, in, centre, thread, shared.sums);
    }
  }

 private:
  template <class Terms, class Term>
  HS_HD void add(int thread, const In<T>& in, LineSums& sums, const Terms& terms,
                 const Term& term) const {
    if (way == SumWay::interleaved) {
      sums.first[thread] = interleaved_part(terms, groups.size, thread % kPartialSums);
    } else if (way == SumWay::wide) {
      sums.add_several(groups.size, thread, [&](const Spaced& at, double& total, double&) {
        T element[kSeveral];
        read(in, at, element);
        for (int j = 0; j < kSeveral; ++j) {
          if (j < at.count) total += term(static_cast<double>(element[j]));
        }
      });
    }
  }
  HS_HD double total(int thread, const LineSums& sums) const {
    if (way == SumWay::wide) return sums.total(thread).first;
    return static_cast<double>(add_tree<float>(sums.first + thread));
  }
  HS_HD double take_mean(int64_t group, const In<T>& in, int thread, const LineSums& sums) const {
    if (mean == nullptr) return 0.0;
    const double sum = way == SumWay::named ? named_sum_of<T>(how, Values{in}, groups.size, group)
                                            : total(thread, sums);
    const double centre = sum / static_cast<double>(groups.size);
    mean[group] = static_cast<T>(centre);
    return centre;
  }
  HS_HD void take_deviation(int64_t group, const In<T>& in, double centre, int thread,
                            const LineSums& sums) const {
    const double squares =
        way == SumWay::named
            ? named_products<T>(how.second(), Squares{in, centre}, groups.size, group)
            : total(thread, sums);
    const double variance = squares / static_cast<double>(groups.size);
    inverse[group] = static_cast<T>(1.0 / std::sqrt(variance + epsilon));
  }
};

/// Item: several neighbours.
template <class T>
struct NormalizeGroup {
  DeviceGroups groups;
  In<T> x, mean, inverse, scale, bias;  ///< mean and bias may be null
  Out<T> y;
  Destination cast{};  ///< if it has memory, gets fp32 outputs rounded; y may be null then

  int64_t items() const { return items_of_several(groups.count()); }
  HS_HD void operator()(int64_t item) const {
    const Neighbours at = several_of(item, groups.count());
    T element[kSeveral], of_scale[kSeveral], of_bias[kSeveral] = {};
    read(x, at, element);
    groups.read_parameters(scale, at, of_scale);
    if (bias != nullptr) groups.read_parameters(bias, at, of_bias);
    T middle{0}, factor{0};
    for (int j = 0; j < kSeveral; ++j) {
      if (j >= at.count) continue;
      if (j == 0 || !groups.keep_packs()) {
        const int64_t group = (at.first + j) / groups.size;
        middle = mean != nullptr ? mean[group] : T{0};
        factor = inverse[group];
      }
      const T scaled = (element[j] - middle) * factor * of_scale[j];
      element[j] = bias != nullptr ? scaled + of_bias[j] : scaled;
    }
    if (y != nullptr) write(y, at, element);
    if constexpr (std::is_same_v<T, float>) {
      if (cast.memory != nullptr) write(cast, at, element);
    }
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
  SumWay way;

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
      add(first, thread, shared);
    } else if (LineSums::leads(thread)) {
      finish(group, totals(group, first, thread, shared));
    }
  }

 private:
  HS_HD void add(int64_t first, int thread, Shared& shared) const {
    const int64_t size = of.groups.size;
    if (way == SumWay::wide) {
      const int64_t group = first / of.groups.size;
      const double centre = of.mean != nullptr ? static_cast<double>(of.mean[group]) : 0.0;
      const double inverse = static_cast<double>(of.inverse[group]);
      shared.add_several(size, thread, [&](const Spaced& at, double& sum, double& product) {
        const Spaced there{first + at.first, at.step, at.count};
        T dy[kSeveral], x[kSeveral], scale[kSeveral];
        read(of.dy, there, dy);
        read(of.x, there, x);
        of.groups.read_parameters(of.scale, there, scale);
        for (int j = 0; j < kSeveral; ++j) {
          if (j >= at.count) continue;
          const double g = static_cast<double>(dy[j]) * static_cast<double>(scale[j]);
          sum += g;
          product += g * ((static_cast<double>(x[j]) - centre) * inverse);
        }
      });
    } else if (way == SumWay::interleaved) {
      const int partial = thread % kPartialSums;
      shared.first[thread] = interleaved_part(Slopes{of, first, false}, size, partial);
      shared.second[thread] = interleaved_part(Slopes{of, first, true}, size, partial);
    }
  }
  HS_HD PlaneSums totals(int64_t group, int64_t first, int thread, const Shared& shared) const {
    const int64_t size = of.groups.size;
    if (way == SumWay::wide) return shared.total(thread);
    if (way == SumWay::interleaved) {
      return {static_cast<double>(add_tree<float>(shared.first + thread)),
              static_cast<double>(add_tree<float>(shared.second + thread))};
    }
    const ChainSpec third = how.second().second();
    return {named_products<T>(third, Slopes{of, first, false}, size, group),
            named_products<T>(third.second(), Slopes{of, first, true}, size, group)};
  }
  HS_HD void finish(int64_t group, const PlaneSums& sums) const {
    const int64_t size = of.groups.size;
    const double n = static_cast<double>(size);
    share[group] = of.mean != nullptr ? static_cast<T>(sums.first / n) : T{0};
    slope[group] = static_cast<T>(sums.second / n);
  }
};

/// Item: several neighbours.
template <class T>
struct NormalizeGroupGrad {
  NormOperands<T> of;
  In<T> share, slope;
  Out<T> dx;

  int64_t items() const { return items_of_several(of.groups.count()); }
  HS_HD void operator()(int64_t item) const {
    const Neighbours at = several_of(item, of.groups.count());
    T dy[kSeveral], x[kSeveral], scale[kSeveral];
    read(of.dy, at, dy);
    read(of.x, at, x);
    of.groups.read_parameters(of.scale, at, scale);
    T middle{0}, inverse{0}, of_share{0}, of_slope{0};
    for (int j = 0; j < kSeveral; ++j) {
      if (j >= at.count) continue;
      if (j == 0 || !of.groups.keep_packs()) {
        const int64_t group = (at.first + j) / of.groups.size;
        middle = of.mean != nullptr ? of.mean[group] : T{0};
        inverse = of.inverse[group];
        of_share = share[group];
        of_slope = slope[group];
      }
      const T g = dy[j] * scale[j], h = (x[j] - middle) * inverse;
      x[j] = inverse * ((g - of_share) - h * of_slope);
    }
    write(dx, at, x);
  }
};

/// Line: a parameter.
template <class T>
struct ParameterGrads {
  static constexpr int kThreads = LineTeams::kThreads;
  using Shared = TeamSums<2>::Shared;
  using State = TeamSums<2>::State;

  NormOperands<T> of;
  Out<T> dscale, dbias;  ///< dbias may be null
  TeamSums<2> sums;      ///< of products, of gradients
  ChainSpec how;

  /// (dy, h), and (dy, 1).
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
  struct Factors {
    Terms products, gradients;
    const ChainSpec& how;
    HS_HD float left(int, int64_t k) const { return gradients.left(k); }
    HS_HD float right(int sum, int64_t k) const { return sum == 0 ? products.right(k) : 1.0f; }
    HS_HD double total(int sum) const {
      const int64_t n = gradients.of.groups.per_param(), p = gradients.p;
      if (sum != 0) return named_sum_of<T>(how, gradients, n, p);
      return named_products<T>(how.second(), products, n, p);
    }
  };

  int64_t blocks() const { return sums.teams.blocks(); }
  HS_HD int64_t steps() const { return sums.steps() + 1; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State& state) const {
    const int64_t p = sums.teams.line(block, thread);
    if (p >= sums.teams.lines) return;
    if (s == sums.steps()) {
      if (sums.teams.worker(thread) != 0) return;
      dscale[p] = static_cast<T>(sums.total(0, thread, shared));
      if (dbias != nullptr) dbias[p] = static_cast<T>(sums.total(1, thread, shared));
      return;
    }
    const auto compute = [&](const TermShare& share, double(&terms)[2][kSeveral]) {
      for (int j = 0; j < kSeveral; ++j) {
        if (j >= share.count) continue;
        const int64_t i = of.groups.of_param(p, share.term(j));
        const double g = static_cast<double>(of.dy[i]);
        terms[0][j] = g * of.normal(i);
        terms[1][j] = g;
      }
    };
    const Factors factors{{of, p, true}, {of, p, false}, how};
    sums.step(s, thread, shared, state, compute, factors);
  }
};

/// ParameterGrads with sums in double for parameters that are adjacent in memory, and many terms.
/// Some threads read a piece of kRows terms of kSeveral parameters, a row each, while the others
/// add the piece before: one thread per partial sum.
template <class T>
struct ParameterColumns {
  static constexpr int kRows = 160, kAdding = kPartialSums * kSeveral, kThreads = kRows + kAdding;
  static_assert(kRows % kPartialSums == 0);

  NormOperands<T> of;  ///< inner = 1
  Out<T> dscale, dbias;

  /// A row begins in another memory bank than the row before.
  struct Shared {
    double product[2][kRows][kSeveral + 1];
    T gradient[2][kRows][kSeveral + 1];
    double products[kSeveral][kPartialSums], gradients[kSeveral][kPartialSums];
  };
  struct State {
    double product, gradient;
  };

  /// Returns whether there are enough terms for this body, and whole blocks of parameters.
  static bool suits(const DeviceGroups& groups) {
    return int64_t{groups.inner} == 1 && int64_t{groups.params} % kSeveral == 0 &&
           groups.per_param() >= kRows;
  }

  int64_t blocks() const { return int64_t{of.groups.params} / kSeveral; }
  HS_HD int64_t steps() const { return ceil_div(of.groups.per_param(), kRows) + 2; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State& state) const {
    const int64_t first = block * kSeveral;
    if (s + 1 == steps()) {
      if (thread >= kSeveral) return;
      dscale[first + thread] = static_cast<T>(add_tree(shared.products[thread]));
      if (dbias != nullptr) {
        dbias[first + thread] = static_cast<T>(add_tree(shared.gradients[thread]));
      }
      return;
    }
    if (thread < kRows) {
      const int64_t row = s * kRows + thread;
      if (row < of.groups.per_param()) {
        load(row, first, shared.product[s % 2][thread], shared.gradient[s % 2][thread]);
      }
      return;
    }
    const int column = (thread - kRows) % kSeveral, partial = (thread - kRows) / kSeveral;
    if (s == 0) {
      state = {0.0, 0.0};
      return;
    }
    add(s - 1, partial, column, shared, state);
    if (s + 2 < steps()) return;
    shared.products[column][partial] = state.product;
    shared.gradients[column][partial] = state.gradient;
  }

 private:
  HS_HD void load(int64_t row, int64_t first, double (&product)[kSeveral + 1],
                  T (&gradient)[kSeveral + 1]) const {
    const int64_t from = row * int64_t{of.groups.params} + first;
    const bool whole = int64_t{of.groups.params} == int64_t{of.groups.size};  // a row is a group
    T dy[kSeveral], x[kSeveral];
    read(of.dy, Neighbours{from, kSeveral}, dy);
    read(of.x, Neighbours{from, kSeveral}, x);
    int64_t group = row;
    T mean{0}, inverse{0};
    for (int j = 0; j < kSeveral; ++j) {
      if (j == 0 || !whole) {
        if (!whole) group = (from + j) / of.groups.size;
        mean = of.mean != nullptr ? of.mean[group] : T{0};
        inverse = of.inverse[group];
      }
      const double centred = static_cast<double>(x[j]) - static_cast<double>(mean);
      product[j] = static_cast<double>(dy[j]) * (centred * static_cast<double>(inverse));
      gradient[j] = dy[j];
    }
  }
  HS_HD void add(int64_t piece, int partial, int column, const Shared& shared, State& state) const {
    const int n = static_cast<int>(smaller(kRows, of.groups.per_param() - piece * kRows));
    for (int k = partial; k < n; k += kPartialSums) {
      state.product += shared.product[piece % 2][k][column];
      state.gradient += static_cast<double>(shared.gradient[piece % 2][k][column]);
    }
  }
};

}  // namespace halfscope::gpu
