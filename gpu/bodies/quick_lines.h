// SPDX-License-Identifier: MIT
// Softmax, its gradient and that of the loss in plain steps whose results are rounded to few bits.
// Sums and functions are computed in fewer operations, in any order, with a bound on the error. If
// the bound leaves no doubt about how a result is rounded, its bits are those of the exact bodies;
// about one line in a thousand has a doubtful result, and is computed by the exact body as well.
// All lines have adjacent elements, which a thread takes kSeveral at a time.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/numeric/elementary/quick_exp.h"
#include "gpu/bodies/decision.h"
#include "gpu/bodies/element_steps.h"
#include "gpu/bodies/loss.h"
#include "gpu/bodies/several.h"
#include "gpu/bodies/softmax.h"
#include "gpu/bodies/team_sums.h"
#include "gpu/bodies/work.h"

namespace halfscope::gpu {

/// Blocks that a multiprocessor should hold of these bodies, which wait for memory and for long
/// functions: this limits their registers.
inline constexpr int kBlocksAtOnce = 3;

/// The step of an exact body. Few lines need it; inlined, it would take most of the registers.
template <class Exact>
HS_HD HS_SELDOM void exact_step(const Exact& exact, int64_t s, int64_t block, int thread,
                                typename Exact::Shared& shared, typename Exact::State& state) {
  exact.step(s, block, thread, shared, state);
}

/// Largest relative error of a sum of positive terms: of LineTeams's 16 partial sums in order, and
/// of LinePacks's sums.
HS_HD inline double error_of_sums(const LineTeams& teams) {
  const double in_order = static_cast<double>(teams.size) / kPartialSums + 5.0;
  const double of_packs = static_cast<double>(teams.size) / static_cast<double>(teams.workers()) +
                          2.0 * kSeveral + teams.workers() / kPartialSums + kPartialSums;
  return (in_order + of_packs) * 0x1p-53;
}
/// Same of a quotient of quick exponentials and their sum: twice that of quick_exp() and exp(), the
/// sums, and a few more operations.
HS_HD inline double error_of_shares(const LineTeams& teams) {
  return 2.0 * (elementary::kQuickError + 0x1p-52) + error_of_sums(teams) + 0x1p-50;
}

/// kSeveral neighbours of a line, those from `begin` to before `end`.
struct Pack {
  Neighbours at;
  int begin, end;

  HS_HD bool has(int j) const { return j >= begin && j < end; }
  HS_HD bool is_whole() const { return begin == 0 && end == kSeveral; }
};

/// Stores rounded results.
HS_HD inline void write_rounded(const Out<float>& to, const Pack& pack,
                                const float (&result)[kSeveral]) {
  if (pack.is_whole()) {
    write(to, pack.at, result);
    return;
  }
  for (int j = 0; j < kSeveral; ++j) {
    if (pack.has(j)) to[pack.at.first + j] = result[j];
  }
}
HS_HD inline void write_rounded(const ElementSink& to, const Pack& pack,
                                float (&result)[kSeveral]) {
  to.steps(pack.at, result);
  write_rounded(to.y, pack, result);
}
/// Returns how a node's own output is rounded.
HS_HD inline const Destination& rounds_of(const Out<float>& to) { return to.destination(); }
HS_HD inline const Destination& rounds_of(const ElementSink& to) { return to.rounds; }

/// Divides lines of adjacent elements among threads as LineTeams does, in packs that begin at
/// multiples of kSeveral, whatever a line begins at.
struct LinePacks {
  static constexpr int64_t kLeastTerms = 32, kMostTerms = 1 << 17;

  LineTeams teams;
  int64_t pitch = teams.size;  ///< elements from one line to the next

  static bool suits(const DeviceLines& lines) {
    return int64_t{lines.stride} == 1 && lines.size >= kLeastTerms && lines.size <= kMostTerms;
  }
  /// Returns whether a thread has one pack.
  HS_HD bool is_single() const {
    return pitch % kSeveral == 0 && teams.size <= int64_t{teams.workers()} * kSeveral;
  }
  /// Calls f(pack) for the thread's packs of its line.
  template <class F>
  HS_HD void each(int64_t line, int thread, const F& f) const {
    const int64_t first = line * pitch, end = first + teams.size, all = teams.lines * pitch;
    int64_t at = (first / kSeveral + teams.worker(thread)) * kSeveral;
    for (; at < end; at += int64_t{teams.workers()} * kSeveral) {
      const Pack pack{{at, static_cast<int>(smaller(kSeveral, all - at))},
                      static_cast<int>(larger(first - at, 0)),
                      static_cast<int>(smaller(end - at, kSeveral))};
      f(pack);
    }
  }
};

/// Combines a number of each thread, and again those of 16 threads per line.
struct TeamNumbers {
  double of_thread[LineTeams::kThreads];
  double of_line[LineTeams::kMostLines * kPartialSums];

  HS_HD void store(int thread, double number) { of_thread[thread] = number; }
  template <class Combine>
  HS_HD void combine(const LineTeams& teams, int thread, const Combine& two) {
    const int place = teams.place(thread), worker = teams.worker(thread);
    if (worker >= kPartialSums) return;
    double all = of_thread[thread];
    for (int other = worker + kPartialSums; other < teams.workers(); other += kPartialSums) {
      all = two(all, of_thread[teams.thread_of(place, other)]);
    }
    of_line[place * kPartialSums + worker] = all;
  }
  template <class Combine>
  HS_HD double of(const LineTeams& teams, int thread, const Combine& two) const {
    const double* const parts = of_line + teams.place(thread) * kPartialSums;
    double all = parts[0];
    for (int j = 1; j < kPartialSums; ++j) all = two(all, parts[j]);
    return all;
  }
};

/// The largest element of each line and the sum of exp(x - largest), in kSteps steps. X is
/// In<float>, or reads like it.
template <class X>
struct QuickExpSums {
  static constexpr int kThreads = LineTeams::kThreads;
  static constexpr int64_t kSteps = 4;

  struct State {
    double largest;
    double power[kSeveral];  ///< the exponentials of a single pack
  };

  const X& x;  ///< a copy of an ElementSource would fill each thread's stack
  LinePacks packs;

  struct Larger {
    HS_HD double operator()(double a, double b) const { return TeamLargest::larger_of(a, b); }
  };
  struct Plus {
    HS_HD double operator()(double a, double b) const { return a + b; }
  };

  /// For threads with a line.
  HS_HD void step(int64_t s, int64_t line, int thread, TeamNumbers& shared, State& state) const {
    const LineTeams& teams = packs.teams;
    if (s == 0) {
      shared.store(thread, largest_seen(line, thread, state));
    } else if (s == 1) {
      shared.combine(teams, thread, Larger{});
    } else if (s == 2) {
      state.largest = shared.of(teams, thread, Larger{});
      shared.store(thread, sum_seen(line, thread, state));
    } else {
      shared.combine(teams, thread, Plus{});
    }
  }
  /// Returns the sum of the thread's line, after these steps.
  HS_HD double total(int thread, const TeamNumbers& shared) const {
    return shared.of(packs.teams, thread, Plus{});
  }

  /// Returns whether quick_exp() can be used: the largest element is finite.
  HS_HD static bool is_finite(double largest) { return largest - largest == 0.0; }
  /// Returns exp(x - largest).
  HS_HD static double power_of(float x, double largest) {
    if (x == -INFINITY) return 0.0;
    return elementary::quick_exp(static_cast<double>(x) - largest);
  }
  /// Calls f(pack, double[kSeveral]) with the exponentials of the thread's packs. Elements of other
  /// lines are zeros.
  template <class F>
  HS_HD void each_powers(int64_t line, int thread, double largest, const F& f) const {
    packs.each(line, thread, [&](const Pack& pack) {
      float element[kSeveral];
      read(x, pack.at, element);
      double power[kSeveral];
      for (int j = 0; j < kSeveral; ++j) {
        power[j] = pack.has(j) ? power_of(element[j], largest) : 0.0;
      }
      f(pack, power);
    });
  }

 private:
  HS_HD double largest_seen(int64_t line, int thread, State& state) const {
    double largest = static_cast<double>(-INFINITY);
    packs.each(line, thread, [&](const Pack& pack) {
      float element[kSeveral];
      read(x, pack.at, element);
      if (packs.is_single()) {
        for (int j = 0; j < kSeveral; ++j) state.power[j] = static_cast<double>(element[j]);
      }
      float most = -INFINITY;
      for (int j = 0; j < kSeveral; ++j) {
        if (pack.has(j)) most = element[j] > most || is_nan(element[j]) ? element[j] : most;
      }
      largest = TeamLargest::larger_of(largest, static_cast<double>(most));
    });
    return largest;
  }
  HS_HD double sum_seen(int64_t line, int thread, State& state) const {
    const double largest = state.largest;
    if (!is_finite(largest)) return elementary::kNaN;
    double sum = 0.0;
    if (packs.is_single()) {
      packs.each(line, thread, [&](const Pack& pack) {
        for (int j = 0; j < kSeveral; ++j) {
          const float element = static_cast<float>(state.power[j]);
          state.power[j] = pack.has(j) ? power_of(element, largest) : 0.0;
          sum += state.power[j];
        }
      });
      return sum;
    }
    each_powers(line, thread, largest, [&](const Pack&, const double(&power)[kSeveral]) {
      for (int j = 0; j < kSeveral; ++j) sum += power[j];
    });
    return sum;
  }
};

/// Lines of a block that an exact body must compute after all.
struct Doubts {
  uint32_t of_line[LineTeams::kMostLines];

  HS_HD void clear(const LineTeams& teams, int thread) {
    if (teams.worker(thread) == 0) of_line[teams.place(thread)] = 0;
  }
  HS_HD void raise(const LineTeams& teams, int thread) {
    add_to(&of_line[teams.place(thread)], 1u);
  }
  HS_HD bool about(const LineTeams& teams, int thread) const {
    return of_line[teams.place(thread)] != 0;
  }
};

/// SoftmaxLines without `log`.
template <class X>
struct QuickSoftmax {
  using Exact = SoftmaxLines<float, X>;
  static constexpr int kThreads = LineTeams::kThreads;
  static constexpr int64_t kQuickSteps = QuickExpSums<X>::kSteps + 1;

  struct Shared {
    typename Exact::Shared exact;
    TeamNumbers numbers;
    Doubts doubts;
  };
  struct State {
    typename Exact::State exact;
    typename QuickExpSums<X>::State quick;
  };

  static constexpr int kLeastBlocks = kBlocksAtOnce;

  SoftmaxLines<float, X> exact;

  int64_t blocks() const { return exact.blocks(); }
  HS_HD int64_t steps() const { return kQuickSteps + exact.steps(); }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State& state) const {
    const LineTeams& teams = exact.of.sums.teams;
    const int64_t line = teams.line(block, thread);
    if (line >= teams.lines) return;
    if (s >= kQuickSteps) {
      if (shared.doubts.about(teams, thread)) {
        exact_step(exact, s - kQuickSteps, block, thread, shared.exact, state.exact);
      }
      return;
    }
    const QuickExpSums<X> sums{exact.of.x, {teams}};
    if (s == 0) shared.doubts.clear(teams, thread);
    if (s < QuickExpSums<X>::kSteps) {
      sums.step(s, line, thread, shared.numbers, state.quick);
      return;
    }
    if (!QuickExpSums<X>::is_finite(state.quick.largest)) {
      shared.doubts.raise(teams, thread);
      return;
    }
    const double inverse = 1.0 / sums.total(thread, shared.numbers);
    const auto store = [&](const Pack& pack, const double(&power)[kSeveral]) {
      if (!write(pack, power, inverse)) shared.doubts.raise(teams, thread);
    };
    if (sums.packs.is_single()) {
      sums.packs.each(line, thread, [&](const Pack& pack) { store(pack, state.quick.power); });
    } else {
      sums.each_powers(line, thread, state.quick.largest, store);
    }
  }

 private:
  /// Returns whether all results are certain.
  HS_HD bool write(const Pack& pack, const double (&power)[kSeveral], double inverse) const {
    const Decision decision{exact.y.destination()};
    const double error = error_of_shares(exact.of.sums.teams);
    bool certain = true;
    float result[kSeveral];
    for (int j = 0; j < kSeveral; ++j) {
      result[j] = 0.0f;
      if (!pack.has(j) || power[j] == 0.0) continue;
      const double share = power[j] * inverse;
      certain = decision.round_share(share, error, result[j]) && certain;
    }
    if (exact.y != nullptr) write_rounded(exact.y, pack, result);
    if (exact.cast.memory != nullptr) {
      write_rounded(Out<float>(nullptr, exact.cast, true), pack, result);
    }
    return certain;
  }
};

/// The largest element of each row and the sum of exp(x - largest), for the loss and its gradient.
/// The sum is NaN if the largest is not finite; then so are the loss and all gradients.
struct RowSums {
  double *largest = nullptr, *sum = nullptr;
};
/// Memory that a loss and its gradient share in plain steps.
struct SharedRowSums {
  RowSums sums;
  bool are_known = false;  ///< a step that runs before computes them
};

/// Computes the RowSums of rows that count.
struct QuickRowSums {
  using Sums = QuickExpSums<In<float>>;
  static constexpr int kThreads = Sums::kThreads;
  using Shared = TeamNumbers;
  using State = Sums::State;

  LossRows<float> of;
  LineTeams teams;
  RowSums sums;

  int64_t blocks() const { return teams.blocks(); }
  HS_HD int64_t steps() const { return Sums::kSteps + 1; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State& state) const {
    const int64_t row = teams.line(block, thread);
    if (row >= of.rows || !of.counts(row)) return;
    const Sums all{of.x, {teams, of.pitch}};
    if (s < Sums::kSteps) {
      all.step(s, row, thread, shared, state);
    } else if (teams.worker(thread) == 0) {
      sums.largest[row] = state.largest;
      sums.sum[row] = all.total(thread, shared);
    }
  }
};

/// Returns by how much the error of a sum changes a row's loss.
inline double error_of_losses(const LineTeams& teams) {
  return elementary::kQuickError + 0x1p-52 + error_of_sums(teams);
}
/// Item: a row that counts. Its loss.
struct QuickRowLoss {
  LossRows<float> of;
  RowSums sums;
  double* losses;

  HS_HD void operator()(int64_t row) const {
    if (!of.counts(row)) return;
    const double value = static_cast<double>(of.x[row * of.pitch + of.labels[row]]);
    losses[row] = elementary::log(sums.sum[row]) - (value - sums.largest[row]);
  }
};

/// LossGrad with known RowSums.
struct QuickLossGrad {
  using Exact = LossGrad<float>;
  using Sums = QuickExpSums<In<float>>;
  static constexpr int kThreads = Exact::kThreads;

  struct Shared {
    Exact::Shared exact;
    Doubts doubts;
  };
  using State = Exact::State;

  static constexpr int kLeastBlocks = kBlocksAtOnce;

  LossGrad<float> exact;
  RowSums sums;

  int64_t blocks() const { return exact.blocks(); }
  HS_HD int64_t steps() const { return 2 + exact.steps(); }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State& state) const {
    const LineTeams& teams = exact.sums.sums.teams;
    const int64_t row = teams.line(block, thread);
    if (row >= exact.of.rows) return;
    if (s == 0) {
      shared.doubts.clear(teams, thread);
    } else if (s > 1) {
      if (shared.doubts.about(teams, thread))
        exact_step(exact, s - 2, block, thread, shared.exact, state);
    } else if (!exact.of.counts(row)) {
      shared.doubts.raise(teams, thread);  // zeros
    } else if (!write(row, thread)) {
      shared.doubts.raise(teams, thread);
    }
  }

 private:
  /// Returns whether all results are certain.
  HS_HD bool write(int64_t row, int thread) const {
    const double largest = sums.largest[row], sum = sums.sum[row], scale = *exact.scale;
    const LinePacks packs{exact.sums.sums.teams, exact.of.pitch};
    if (is_nan(sum) || is_nan(scale)) {
      const float nan = static_cast<float>(elementary::kNaN);
      const float result[kSeveral] = {nan, nan, nan, nan, nan, nan, nan, nan};
      packs.each(row, thread, [&](const Pack& pack) { write_rounded(exact.dx, pack, result); });
      return true;
    }
    const Decision decision{exact.dx.destination()};
    const double relative = error_of_shares(packs.teams);
    const double inverse = 1.0 / sum, factor = inverse * scale;
    const int64_t label = row * exact.of.pitch + exact.of.labels[row];
    bool certain = true;
    const Sums all{exact.of.x, packs};
    all.each_powers(row, thread, largest, [&](const Pack& pack, const double(&power)[kSeveral]) {
      float result[kSeveral];
      for (int j = 0; j < kSeveral; ++j) {
        result[j] = 0.0f;
        if (!pack.has(j)) continue;
        if (pack.at.first + j == label) {
          const double value = (power[j] * inverse - 1.0) * scale;
          const double error = elementary::magnitude(scale) * (relative + 0x1p-50);
          certain = decision.round(value, error, result[j]) && certain;
        } else {
          certain = decision.round_share(power[j] * factor, relative, result[j]) && certain;
        }
      }
      write_rounded(exact.dx, pack, result);
    });
    return certain;
  }
};

/// SoftmaxLinesGrad without `log`. Y is Out<float>, or is written like it.
template <class Y>
struct QuickSoftmaxGrad {
  using Exact = SoftmaxLinesGrad<float, Y>;
  static constexpr int kThreads = Exact::kThreads;

  struct Shared {
    typename Exact::Shared exact;
    TeamNumbers sum, size;
    Doubts doubts;
  };
  struct State {
    typename Exact::State exact;
    double total, error;
    float gradient[kSeveral], value[kSeveral];  ///< of a single pack
  };
  struct Plus {
    HS_HD double operator()(double a, double b) const { return a + b; }
  };

  static constexpr int kLeastBlocks = kBlocksAtOnce;

  SoftmaxLinesGrad<float, Y> exact;

  int64_t blocks() const { return exact.blocks(); }
  HS_HD int64_t steps() const { return 3 + exact.steps(); }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State& state) const {
    const LineTeams& teams = exact.sums.teams;
    const int64_t line = teams.line(block, thread);
    if (line >= teams.lines) return;
    if (s == 0) {
      shared.doubts.clear(teams, thread);
      add(line, thread, shared, state);
    } else if (s == 1) {
      shared.sum.combine(teams, thread, Plus{});
      shared.size.combine(teams, thread, Plus{});
    } else if (s == 2) {
      state.total = shared.sum.of(teams, thread, Plus{});
      state.error = shared.size.of(teams, thread, Plus{}) * error_of_sums(teams);
      if (!write(line, thread, state)) shared.doubts.raise(teams, thread);
    } else if (shared.doubts.about(teams, thread)) {
      exact_step(exact, s - 3, block, thread, shared.exact, state.exact);
    }
  }

 private:
  HS_HD void add(int64_t line, int thread, Shared& shared, State& state) const {
    const LinePacks packs{exact.sums.teams};
    double sum = 0.0, size = 0.0;
    packs.each(line, thread, [&](const Pack& pack) {
      float gradient[kSeveral], value[kSeveral];
      read(exact.dy, pack.at, gradient);
      read(exact.y, pack.at, value);
      for (int j = 0; j < kSeveral; ++j) {
        if (packs.is_single()) {
          state.gradient[j] = gradient[j];
          state.value[j] = value[j];
        }
        if (!pack.has(j)) continue;
        const double term = static_cast<double>(gradient[j]) * static_cast<double>(value[j]);
        sum += term;
        size += elementary::magnitude(term);
      }
    });
    shared.sum.store(thread, sum);
    shared.size.store(thread, size);
  }
  /// Returns whether all results are certain.
  HS_HD bool write(int64_t line, int thread, const State& state) const {
    const LinePacks packs{exact.sums.teams};
    bool certain = true;
    packs.each(line, thread, [&](const Pack& pack) {
      float gradient[kSeveral], value[kSeveral];
      if (packs.is_single()) {
        for (int j = 0; j < kSeveral; ++j) {
          gradient[j] = state.gradient[j];
          value[j] = state.value[j];
        }
      } else {
        read(exact.dy, pack.at, gradient);
        read(exact.y, pack.at, value);
      }
      for (int j = 0; j < kSeveral; ++j) {
        if (!pack.has(j)) continue;
        certain = round(static_cast<double>(gradient[j]), static_cast<double>(value[j]), state,
                        gradient[j]) &&
                  certain;
      }
      write_rounded(exact.dx, pack, gradient);
    });
    return certain;
  }
  HS_HD bool round(double gradient, double value, const State& state, float& result) const {
    const double rest = gradient - state.total, product = value * rest;
    const double error =
        elementary::magnitude(value) * (state.error + elementary::magnitude(rest) * 0x1p-50);
    // Only the sign of a zero may be in doubt.
    const bool has_sign = state.error == 0.0 || elementary::magnitude(rest) > 2.0 * state.error;
    return decision().round(product, error, result) && (value != 0.0 || has_sign);
  }
  HS_HD Decision decision() const { return {rounds_of(exact.dx)}; }
};

}  // namespace halfscope::gpu
