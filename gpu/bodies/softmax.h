// SPDX-License-Identifier: MIT
// Softmax, LogSoftmax and their gradients, a team of threads per line: in double, rounded once.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/numeric/elementary/elementary.h"
#include "core/numeric/sums/chain.h"
#include "gpu/bodies/team_sums.h"
#include "gpu/bodies/work.h"

namespace halfscope::gpu {

/// The largest element of each line and the sum of exp(x - largest), in steps(); for softmax and
/// losses.
/// X is In<T>, or reads like it.
template <class T, class X = In<T>>
struct ExpSums {
  struct Shared {
    TeamSums<1>::Shared sums;
    TeamLargest largest;
  };
  struct State {
    TeamSums<1>::State sums;
    double largest;
    T element[kSeveral];  ///< the thread's, of lines of one piece: they are read only once
  };

  X x;
  DeviceLines lines;
  TeamSums<1> sums;
  ChainSpec how;
  bool zero_masked = false;  ///< lines of nothing but -infinity have the sum 1 and the largest 0

  /// exp(x - largest) in fp32, as the plan sums it.
  struct Factors {
    const X& x;
    int64_t first, stride, size, line;
    double largest;
    const ChainSpec& how;

    HS_HD float left(int64_t k) const {
      const double value = static_cast<double>(x[first + k * stride]);
      return static_cast<float>(elementary::exp(value - largest));
    }
    HS_HD float right(int64_t) const { return 1.0f; }
    HS_HD bool present(int64_t) const { return true; }

    HS_HD float left(int, int64_t k) const { return left(k); }
    HS_HD float right(int, int64_t) const { return 1.0f; }
    HS_HD double total(int) const { return named_sum_of<T>(how, *this, size, line); }
  };

  static constexpr int kThreads = LineTeams::kThreads;
  const LineTeams& teams() const { return sums.teams; }
  HS_HD int64_t steps() const { return 2 + sums.steps(); }

  /// For threads with a line.
  HS_HD void step(int64_t s, int64_t line, int thread, Shared& shared, State& state) const {
    const int64_t first = lines.first(line);
    if (s == 0) {
      shared.largest.store(thread, largest_seen(first, thread, state));
      return;
    }
    if (s == 1) {
      shared.largest.combine(sums.teams, thread);
      return;
    }
    if (s == 2) {
      const double largest = shared.largest.of(sums.teams, thread);
      state.largest = is_masked(largest) ? 0.0 : largest;
    }
    const Factors factors{x, first, lines.stride, lines.size, line, state.largest, how};
    const auto compute = [&](const TermShare& share, double(&terms)[1][kSeveral]) {
      T element[kSeveral];
      elements(share.elements(first, lines.stride), state, element);
      for (int j = 0; j < kSeveral; ++j) {
        if (j < share.count) {
          terms[0][j] = elementary::exp(static_cast<double>(element[j]) - state.largest);
        }
      }
    };
    sums.step(s - 2, thread, shared.sums, state.sums, compute, factors);
  }

  /// Returns the sum for the thread's line, after these steps.
  HS_HD double total(int thread, const Shared& shared) const {
    if (zero_masked && is_masked(shared.largest.of(sums.teams, thread))) return 1.0;
    return sums.total(0, thread, shared.sums);
  }

  /// Calls f(position, x - largest, its exp) for the thread's elements of its line; the exp is only
  /// computed if requested.
  template <class F>
  HS_HD void for_elements(int64_t line, int thread, const Shared& shared, const State& state,
                          bool with_exp, const F& f) const {
    const int64_t first = lines.first(line);
    for (int64_t piece = 0; piece < sums.teams.pieces(); ++piece) {
      const TermShare share = sums.teams.share(piece, thread);
      const Spaced at = share.elements(first, lines.stride);
      T element[kSeveral];
      elements(at, state, element);
      for (int j = 0; j < kSeveral; ++j) {
        if (j >= at.count) continue;
        const double shifted = static_cast<double>(element[j]) - state.largest;
        f(at.first + j * at.step, shifted, with_exp ? power(shifted, thread, j, shared) : 0.0);
      }
    }
  }

 private:
  HS_HD bool is_masked(double largest) const {
    return zero_masked && largest == static_cast<double>(-INFINITY);
  }
  HS_HD bool keeps_elements() const { return sums.teams.pieces() == 1; }
  /// Returns elements that largest_seen() has read before.
  HS_HD void elements(const Spaced& at, const State& state, T (&to)[kSeveral]) const {
    if (!keeps_elements()) return read(x, at, to);
    for (int j = 0; j < kSeveral; ++j) to[j] = state.element[j];
  }
  HS_HD double largest_seen(int64_t first, int thread, State& state) const {
    double largest = static_cast<double>(-INFINITY);
    for (int64_t piece = 0; piece < sums.teams.pieces(); ++piece) {
      const Spaced at = sums.teams.share(piece, thread).elements(first, lines.stride);
      T element[kSeveral];
      read(x, at, element);
      for (int j = 0; keeps_elements() && j < kSeveral; ++j) state.element[j] = element[j];
      for (int j = 0; j < kSeveral; ++j) {
        if (j >= at.count) continue;
        largest = TeamLargest::larger_of(largest, static_cast<double>(element[j]));
      }
    }
    return largest;
  }
  /// Returns the exp of the thread's j-th element of a piece; short lines still have it.
  HS_HD double power(double shifted, int thread, int j, const Shared& shared) const {
    return sums.keeps_terms() ? sums.kept_term(0, thread, j, shared.sums)
                              : elementary::exp(shifted);
  }
};

template <class T, class X = In<T>>
struct SoftmaxLines {
  static constexpr int kThreads = ExpSums<T, X>::kThreads;
  using Shared = typename ExpSums<T, X>::Shared;
  using State = typename ExpSums<T, X>::State;

  ExpSums<T, X> of;
  Out<T> y;
  bool log;
  FloatFormat write;
  Destination cast{};  ///< if it has memory, gets fp32 outputs rounded; y may be null then

  int64_t blocks() const { return of.teams().blocks(); }
  HS_HD int64_t steps() const { return of.steps() + 1; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State& state) const {
    const int64_t line = of.sums.teams.line(block, thread);
    if (line >= of.sums.teams.lines) return;
    if (s < of.steps()) {
      of.step(s, line, thread, shared, state);
      return;
    }
    const double sum = of.total(thread, shared);
    const double log_sum = log ? elementary::log(sum) : 0.0;
    of.for_elements(line, thread, shared, state, !log,
                    [&](int64_t at, double shifted, double power) {
                      const T result = delivered<T>(log ? shifted - log_sum : power / sum, write);
                      if (y != nullptr) y[at] = result;
                      if (cast.memory != nullptr) cast.round(at, static_cast<float>(result));
                    });
  }
};

/// Y is Out<T>, or is written like it.
template <class T, class Y = Out<T>>
struct SoftmaxLinesGrad {
  static constexpr int kThreads = LineTeams::kThreads;
  using Shared = TeamSums<1>::Shared;
  struct State {
    TeamSums<1>::State sums;
    T gradient[kSeveral], value[kSeveral];  ///< the thread's, of lines of one piece
  };

  In<T> dy, y;
  Y dx;
  DeviceLines lines;
  TeamSums<1> sums;
  ChainSpec how;
  bool log;
  FloatFormat write;

  /// Factors in fp32, as the plan sums them.
  struct Factors {
    In<T> dy, y;  ///< start at the line's first elements; y null: plain values
    int64_t stride, size, line;
    const ChainSpec& how;

    HS_HD float left(int64_t k) const { return static_cast<float>(dy[k * stride]); }
    HS_HD float right(int64_t k) const {
      return y == nullptr ? 1.0f : static_cast<float>(y[k * stride]);
    }
    HS_HD bool present(int64_t) const { return true; }

    HS_HD float left(int, int64_t k) const { return left(k); }
    HS_HD float right(int, int64_t k) const { return right(k); }
    HS_HD double total(int) const {
      return y == nullptr ? named_sum_of<T>(how, *this, size, line)
                          : named_products<T>(how.second(), *this, size, line);
    }
  };

  int64_t blocks() const { return sums.teams.blocks(); }
  HS_HD int64_t steps() const { return sums.steps() + 1; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State& state) const {
    const int64_t line = sums.teams.line(block, thread);
    if (line >= sums.teams.lines) return;
    const int64_t first = lines.first(line);
    if (s == sums.steps()) {
      store(first, thread, sums.total(0, thread, shared), state);
      return;
    }
    const In<T> no_values = nullptr;
    const Factors factors{dy + first, log ? no_values : y + first, lines.stride, lines.size, line,
                          how};
    const auto compute = [&](const TermShare& share, double(&terms)[1][kSeveral]) {
      const Spaced at = share.elements(first, lines.stride);
      T gradient[kSeveral], value[kSeveral];
      read(dy, at, gradient);
      if (!log) read(y, at, value);
      if (keeps_elements()) keep(gradient, value, state);
      for (int j = 0; j < kSeveral; ++j) {
        const double g = static_cast<double>(gradient[j]);
        terms[0][j] = log ? g : g * static_cast<double>(value[j]);
      }
    };
    sums.step(s, thread, shared, state.sums, compute, factors);
  }

 private:
  /// Returns whether the sum's only piece leaves all that is needed in registers.
  HS_HD bool keeps_elements() const { return sums.keeps_terms() && !log; }
  HS_HD static void keep(const T (&gradient)[kSeveral], const T (&value)[kSeveral], State& state) {
    for (int j = 0; j < kSeveral; ++j) {
      state.gradient[j] = gradient[j];
      state.value[j] = value[j];
    }
  }
  HS_HD void store(int64_t first, int thread, double total, const State& state) const {
    for (int64_t piece = 0; piece < sums.teams.pieces(); ++piece) {
      const Spaced at = sums.teams.share(piece, thread).elements(first, lines.stride);
      T gradient[kSeveral], value[kSeveral];
      if (keeps_elements()) {
        for (int j = 0; j < kSeveral; ++j) {
          gradient[j] = state.gradient[j];
          value[j] = state.value[j];
        }
      } else {
        read(dy, at, gradient);
        read(y, at, value);
      }
      for (int j = 0; j < kSeveral; ++j) {
        if (j >= at.count) continue;
        const double g = static_cast<double>(gradient[j]), v = static_cast<double>(value[j]);
        const double result = log ? g - elementary::exp(v) * total : v * (g - total);
        dx[at.first + j * at.step] = delivered<T>(result, write);
      }
    }
  }
};

}  // namespace halfscope::gpu
