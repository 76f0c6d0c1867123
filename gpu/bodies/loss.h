// SPDX-License-Identifier: MIT
// The fused losses, their gradients and the accuracy. They compute in double, a team of threads per
// row, and return one value that is rounded afterwards.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/axis_lines.h"
#include "core/numeric/elementary/elementary.h"
#include "core/numeric/sums/chain.h"
#include "gpu/bodies/normalization.h"
#include "gpu/bodies/softmax.h"
#include "gpu/bodies/team_sums.h"
#include "gpu/bodies/work.h"

namespace halfscope::gpu {

template <class T>
struct LossRows {
  In<T> x;
  const int32_t* labels;
  int64_t rows, classes, ignored;
  int64_t pitch;  ///< elements from one row to the next

  HS_HD bool counts(int64_t row) const { return labels[row] >= 0 && labels[row] != ignored; }
};

/// Computes losses[row] for rows that count.
template <class T>
struct RowLoss {
  static constexpr int kThreads = ExpSums<T>::kThreads;
  using Shared = typename ExpSums<T>::Shared;
  using State = typename ExpSums<T>::State;

  LossRows<T> of;
  ExpSums<T> sums;
  double* losses;
  const uint32_t* only_if = nullptr;  ///< if not null and zero, nothing is done

  int64_t blocks() const { return sums.teams().blocks(); }
  HS_HD int64_t steps() const { return sums.steps() + 1; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State& state) const {
    if (only_if != nullptr && *only_if == 0) return;
    const LineTeams& teams = sums.sums.teams;
    const int64_t row = teams.line(block, thread);
    if (row >= of.rows || !of.counts(row)) return;
    if (s < sums.steps()) {
      sums.step(s, row, thread, shared, state);
    } else if (teams.worker(thread) == 0) {
      const double value = static_cast<double>(of.x[row * of.pitch + of.labels[row]]);
      losses[row] = elementary::log(sums.total(thread, shared)) - (value - state.largest);
    }
  }
};

/// Counts the rows that count (those with a label that is not ignored).
template <class T>
struct CountRows {
  LossRows<T> of;
  uint64_t* count;

  HS_HD void operator()(int64_t row) const {
    if (of.counts(row)) add_to(count, uint64_t{1});
  }
};

/// One block: the mean of the rows that count. The k-th of them is added to partial sum k %
/// kPartialSums, so the block first finds out which is the k-th. Steps per piece: count the
/// thread's rows, count them over neighbouring threads, place the losses, add.
template <class T>
struct MeanLoss {
  static constexpr int kThreads = 256, kRows = 16, kPiece = kThreads * kRows, kSteps = 4;
  static constexpr int kGroup = kThreads / kPartialSums;  ///< threads whose counts one thread adds

  LossRows<T> of;
  const double* losses;
  Out<T> y;
  bool fp32;  ///< the partial sums are in fp32
  FloatFormat write;
  const uint32_t* only_if = nullptr;  ///< if not null and zero, nothing is done
  /// If not null, the losses are quick ones, and this becomes 1 if the mean's bits are in doubt.
  uint32_t* doubtful = nullptr;
  double loss_error = 0.0;  ///< of quick losses

  struct Shared {
    double loss[kPiece];  ///< of rows that count, without gaps
    int of_thread[kThreads], of_group[kThreads / kGroup];
    double partial[kPartialSums];
  };
  struct State {
    double sum;
    int64_t count;
  };

  int64_t blocks() const { return 1; }
  HS_HD int64_t pieces() const { return larger(ceil_div(of.rows, kPiece), 1); }
  HS_HD int64_t steps() const { return kSteps * pieces() + 1; }

  HS_HD void step(int64_t s, int64_t, int thread, Shared& shared, State& state) const {
    if (only_if != nullptr && *only_if == 0) return;
    const int64_t first = s / kSteps * kPiece + thread * kRows;
    if (s == 0) state = {0.0, 0};
    if (s + 1 == steps()) {
      if (thread != 0) return;
      const double total =
          fp32 ? static_cast<double>(add_tree<float>(shared.partial)) : add_tree(shared.partial);
      finish(total / static_cast<double>(state.count));
    } else if (s % kSteps == 0) {
      int count = 0;
      for (int64_t row = first; row < end(first); ++row) count += of.counts(row) ? 1 : 0;
      shared.of_thread[thread] = count;
    } else if (s % kSteps == 1) {
      if (thread < kThreads / kGroup) shared.of_group[thread] = group_count(thread, shared);
    } else if (s % kSteps == 2) {
      place(first, thread, shared);
    } else if (thread < kPartialSums) {
      add(thread, shared, state);
      shared.partial[thread] = state.sum;
    }
  }

 private:
  HS_HD void finish(double mean) const {
    const T result = delivered<T>(mean, write);
    *y = result;
    if (doubtful == nullptr) return;
    // Losses are not negative. Each has the rounding errors of a few operations, and so has the
    // sum.
    const double roundings = static_cast<double>(of.rows) + 64.0;
    const double error = loss_error + mean * roundings * 0x1p-53;
    const bool certain = mean - mean != 0.0 || (delivered<T>(mean - error, write) == result &&
                                                delivered<T>(mean + error, write) == result);
    *doubtful = certain ? 0 : 1;
  }
  HS_HD int64_t end(int64_t first) const { return smaller(first + kRows, of.rows); }
  HS_HD int group_count(int group, const Shared& shared) const {
    int count = 0;
    for (int i = 0; i < kGroup; ++i) count += shared.of_thread[group * kGroup + i];
    return count;
  }
  HS_HD void place(int64_t first, int thread, Shared& shared) const {
    int at = 0;
    for (int group = 0; group < thread / kGroup; ++group) at += shared.of_group[group];
    for (int i = thread / kGroup * kGroup; i < thread; ++i) at += shared.of_thread[i];
    for (int64_t row = first; row < end(first); ++row) {
      if (of.counts(row)) shared.loss[at++] = losses[row];
    }
  }
  HS_HD void add(int partial, const Shared& shared, State& state) const {
    int n = 0;
    for (const int count : shared.of_group) n += count;
    const int passed = static_cast<int>(state.count % kPartialSums);
    for (int i = (partial - passed + kPartialSums) % kPartialSums; i < n; i += kPartialSums) {
      const double sum = state.sum + shared.loss[i];
      const float narrow = static_cast<float>(state.sum) + static_cast<float>(shared.loss[i]);
      state.sum = fp32 ? static_cast<double>(narrow) : sum;
    }
    state.count += n;
  }
};

/// One item: same mean under any other accumulation that the plan names.
template <class T>
struct NamedMeanLoss {
  LossRows<T> of;
  ChainSpec how;
  const double* losses;
  float* counted;  ///< memory for the losses of rows that count
  Out<T> y;
  FloatFormat write;

  struct Terms {
    const float* x;
    HS_HD float left(int64_t k) const { return x[k]; }
    HS_HD float right(int64_t) const { return 1.0f; }
    HS_HD bool present(int64_t) const { return true; }
  };

  HS_HD void operator()(int64_t) const {
    int64_t count = 0;
    for (int64_t row = 0; row < of.rows; ++row) {
      if (of.counts(row)) counted[count++] = static_cast<float>(losses[row]);
    }
    const double total = sum_of_terms(how.second(), Terms{counted}, count, 0);
    *y = delivered<T>(total / static_cast<double>(count), write);
  }
};

/// One item: the common factor of all rows' gradients.
template <class T>
struct LossScale {
  const uint64_t* count;  ///< of rows that count
  In<T> upstream;
  double* scale;

  HS_HD void operator()(int64_t) const {
    *scale = static_cast<double>(*upstream) / static_cast<double>(*count);
  }
};

template <class T>
struct LossGrad {
  static constexpr int kThreads = ExpSums<T>::kThreads;
  using Shared = typename ExpSums<T>::Shared;
  using State = typename ExpSums<T>::State;

  LossRows<T> of;
  ExpSums<T> sums;
  const double* scale;
  Out<T> dx;
  FloatFormat write;

  int64_t blocks() const { return sums.teams().blocks(); }
  HS_HD int64_t steps() const { return sums.steps() + 1; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State& state) const {
    const int64_t row = sums.sums.teams.line(block, thread);
    if (row >= of.rows) return;
    const bool last = s == sums.steps();
    if (!of.counts(row)) {
      if (last) clear(row, thread);
    } else if (!last) {
      sums.step(s, row, thread, shared, state);
    } else {
      const int64_t label = row * of.pitch + of.labels[row];
      const double sum = sums.total(thread, shared), factor = *scale;
      sums.for_elements(row, thread, shared, state, true, [&](int64_t at, double, double power) {
        const double p = power / sum - (at == label ? 1.0 : 0.0);
        dx[at] = delivered<T>(p * factor, write);
      });
    }
  }

 private:
  HS_HD void clear(int64_t row, int thread) const {
    const LineTeams& teams = sums.sums.teams;
    for (int64_t j = teams.worker(thread); j < of.classes; j += teams.workers()) {
      dx[row * of.pitch + j] = T{0};
    }
  }
};

/// Counts the rows that count and whose first largest element is the label's. A row with a NaN is
/// never right.
template <class T>
struct RowsRight {
  static constexpr int kThreads = LineTeams::kThreads;
  struct Shared {
    uint32_t wrong[LineTeams::kMostLines];
  };
  struct State {};

  LossRows<T> of;
  LineTeams teams;
  uint64_t* right;

  int64_t blocks() const { return teams.blocks(); }
  HS_HD int64_t steps() const { return 3; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State&) const {
    const int64_t row = teams.line(block, thread);
    if (row >= of.rows || !of.counts(row)) return;
    uint32_t& wrong = shared.wrong[teams.place(thread)];
    if (s == 1) {
      if (is_wrong(row, thread)) add_to(&wrong, 1u);
    } else if (teams.worker(thread) == 0) {
      if (s == 0) wrong = 0;
      if (s == 2 && wrong == 0) add_to(right, uint64_t{1});
    }
  }

 private:
  /// Returns whether one of the thread's elements shows that the label's is not the first largest.
  HS_HD bool is_wrong(int64_t row, int thread) const {
    const int64_t first = row * of.pitch, label = of.labels[row];
    const T chosen = of.x[first + label];
    bool wrong = false;
    for (int64_t piece = 0; piece < teams.pieces(); ++piece) {
      const TermShare share = teams.share(piece, thread);
      T element[kSeveral];
      read(of.x, share.elements(first, 1), element);
      for (int j = 0; j < kSeveral; ++j) {
        if (j >= share.count) continue;
        const bool beats = share.term(j) < label ? element[j] >= chosen : element[j] > chosen;
        wrong = wrong || beats || is_nan(element[j]);
      }
    }
    return wrong;
  }
};

/// One item.
template <class T>
struct ShareRight {
  const uint64_t *count, *right;  ///< of rows that count
  Out<T> y;

  HS_HD void operator()(int64_t) const {
    *y = static_cast<T>(static_cast<double>(*right) / static_cast<double>(*count));
  }
};

/// Line: a chunk.
template <class T>
struct SquaredErrors {
  static constexpr int kThreads = LineSums::kThreads;
  using Shared = LineSums;
  struct State {};

  In<T> prediction, target;
  int64_t n;
  double* sums;

  HS_HD int64_t chunks() const { return ceil_div(n, kLossChunk); }
  int64_t blocks() const { return ceil_div(chunks(), LineSums::kLines); }
  HS_HD int64_t steps() const { return 2; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State&) const {
    const int64_t chunk = block * LineSums::kLines + LineSums::line_of(thread);
    if (chunk >= chunks()) return;
    if (s == 0) {
      const int64_t begin = chunk * kLossChunk;
      const In<T> predicted = prediction + begin, wanted = target + begin;
      shared.add_several(
          smaller(kLossChunk, n - begin), thread, [&](const Spaced& at, double& total, double&) {
            T one[kSeveral], other[kSeveral];
            read(predicted, at, one);
            read(wanted, at, other);
            for (int j = 0; j < kSeveral; ++j) {
              const double error = static_cast<double>(one[j]) - static_cast<double>(other[j]);
              if (j < at.count) total += error * error;
            }
          });
    } else if (LineSums::leads(thread)) {
      sums[chunk] = shared.total(thread).first;
    }
  }
};

/// One line: the mean of the squares, from the chunks' sums or under the accumulation that the plan
/// names.
template <class T>
struct MeanOfSquares {
  static constexpr int kThreads = LineTeams::kThreads;
  using Shared = TeamSums<1>::Shared;
  using State = TeamSums<1>::State;

  In<T> prediction, target;
  int64_t n;
  const double* chunks;
  Out<T> y;
  TeamSums<1> sums;  ///< over the chunks' sums, or over the errors
  ChainSpec how;
  FloatFormat write;

  struct Factors {
    In<T> prediction, target;
    int64_t n;
    const ChainSpec& how;

    HS_HD float left(int64_t k) const {
      return static_cast<float>(static_cast<double>(prediction[k]) -
                                static_cast<double>(target[k]));
    }
    HS_HD float right(int64_t k) const { return left(k); }
    HS_HD bool present(int64_t) const { return true; }

    HS_HD float left(int, int64_t k) const { return left(k); }
    HS_HD float right(int, int64_t k) const { return left(k); }
    HS_HD double total(int) const { return named_products<T>(how.second(), *this, n, 0); }
  };

  int64_t blocks() const { return sums.teams.blocks(); }
  HS_HD int64_t steps() const { return sums.steps() + 1; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State& state) const {
    if (sums.teams.line(block, thread) > 0) return;
    if (s == sums.steps()) {
      if (thread != 0) return;
      const double total = sums.total(0, thread, shared);
      *y = delivered<T>(total / static_cast<double>(n), write);
      return;
    }
    const auto compute = [&](const TermShare& share, double(&terms)[1][kSeveral]) {
      read(chunks, share.elements(0, 1), terms[0]);
    };
    sums.step(s, thread, shared, state, compute, Factors{prediction, target, n, how});
  }
};

template <class T>
struct SquaredErrorGrad {
  In<T> prediction, target, upstream;
  Out<T> dx;
  int64_t n;
  FloatFormat write;

  HS_HD void operator()(int64_t i) const {
    const double factor = 2.0 * static_cast<double>(*upstream) / static_cast<double>(n);
    const double error = static_cast<double>(prediction[i]) - static_cast<double>(target[i]);
    dx[i] = delivered<T>(error * factor, write);
  }
};

}  // namespace halfscope::gpu
