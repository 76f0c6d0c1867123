// SPDX-License-Identifier: MIT
// Sums of few outputs. Chains: sums over all axes of a tensor except the middle ones, as in bias
// gradients. A chain has a fixed order and therefore one thread, which would wait for memory at
// every element. So a block of threads loads a piece of its chains into shared memory (adjacent
// threads load adjacent elements), while the adding threads process the previous piece.
#pragma once

#include <bit>
#include <cstdint>

#include "gpu/bodies/divisor.h"
#include "gpu/bodies/reductions.h"
#include "gpu/bodies/several.h"
#include "gpu/bodies/team_sums.h"
#include "gpu/bodies/work.h"

namespace halfscope::gpu {

/// Computes y[c] = sum of x[o][c][i] over ascending (o, i), from +0 in fp32; x is [outer, chains,
/// inner].
struct ChainSums {
  static constexpr int kThreads = 256, kPiece = 2048, kMostChains = 32;

  In<float> x;
  Out<float> y;
  int64_t outer, chains;
  Divisor inner;
  double divisor;     ///< divides the sum: 1, or for a mean the number of elements
  Divisor per_block;  ///< chains per block; if more than one, they are adjacent in memory

  struct Shared {
    float piece[2][kPiece];
  };
  struct State {
    float sum;
  };

  /// Returns whether the chains are long and few enough for this body.
  static bool suits(int64_t chains, int64_t terms) {
    constexpr int64_t kLong = 128, kManyChains = 8192;
    return terms >= kLong && chains <= kManyChains;
  }
  /// Returns how many chains share a block: adjacent ones share transactions of memory, but few
  /// blocks would leave most of the device idle.
  static int64_t chains_of_block(int64_t chains, int64_t inner) {
    constexpr int64_t kManyBlocks = 256, kTransaction = 8;
    if (inner != 1 || chains < kMostChains) return 1;
    int64_t share = kMostChains;
    while (share > kTransaction && chains / share < kManyBlocks) share /= 2;
    return share;
  }

  HS_HD int64_t terms() const { return outer * inner; }
  HS_HD int64_t terms_of_piece() const { return kPiece / per_block; }
  int64_t blocks() const { return ceil_div(chains, per_block); }
  HS_HD int64_t steps() const { return ceil_div(terms(), terms_of_piece()) + 1; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State& state) const {
    const int64_t first = block * per_block;
    if (s == 0) state.sum = 0.0f;
    if (s + 1 < steps()) load(s, first, thread, shared.piece[s % 2]);
    const int64_t chain = first + thread;
    if (s == 0 || thread >= per_block || chain >= chains) return;
    state.sum = add(s - 1, thread, shared.piece[(s - 1) % 2], state.sum);
    if (s + 1 == steps()) y[chain] = static_cast<float>(static_cast<double>(state.sum) / divisor);
  }

 private:
  HS_HD int64_t count(int64_t piece) const {
    return smaller(terms_of_piece(), terms() - piece * terms_of_piece());
  }
  HS_HD void load(int64_t piece, int64_t first, int thread, float* to) const {
    const int64_t begin = piece * terms_of_piece(), n = count(piece) * per_block;
    for (int64_t at = thread; at < n; at += kThreads) {
      const int64_t term = begin + at / per_block, chain = first + at % per_block;
      const int64_t o = term / inner, i = term - o * inner;
      if (chain < chains) to[at] = x[(o * chains + chain) * inner + i];
    }
  }
  HS_HD float add(int64_t piece, int thread, const float* from, float sum) const {
    const int n = static_cast<int>(count(piece)), stride = static_cast<int>(int64_t{per_block});
    for (int k = 0; k < n; ++k) sum += from[k * stride + thread];
    return sum;
  }
};

/// ChainSums for inner = 1 and columns in multiples of kSeveral: y[c] = sum of x[row][c]. Each
/// thread but those of the last warp loads kSeveral neighbours of a row. The last warp only adds, a
/// thread per column, and takes four terms from shared memory at a time.
struct ColumnSums {
  static constexpr int kRows = 256, kThreads = kRows + 32, kTogether = 4;

  In<float> x;
  Out<float> y;
  int64_t rows, columns;
  double divisor;

  /// A column's terms begin in another memory bank than those of the column before.
  struct Shared {
    alignas(16) float piece[2][kSeveral][kRows + kTogether];
  };
  struct State {
    float sum;
  };

  int64_t blocks() const { return columns / kSeveral; }
  HS_HD int64_t steps() const { return ceil_div(rows, kRows) + 1; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State& state) const {
    const int64_t first = block * kSeveral;
    if (thread < kRows) {
      const int64_t row = s * kRows + thread;
      if (row < rows) load(row * columns + first, thread, shared.piece[s % 2]);
      return;
    }
    const int column = thread - kRows;
    if (column >= kSeveral) return;
    state.sum = s == 0 ? 0.0f : add(s - 1, shared.piece[(s - 1) % 2][column], state.sum);
    if (s + 1 < steps()) return;
    y[first + column] = static_cast<float>(static_cast<double>(state.sum) / divisor);
  }

 private:
  HS_HD void load(int64_t first, int row, float (&to)[kSeveral][kRows + kTogether]) const {
    float element[kSeveral];
    read(x, Neighbours{first, kSeveral}, element);
    for (int j = 0; j < kSeveral; ++j) to[j][row] = element[j];
  }
  HS_HD float add(int64_t piece, const float* terms, float sum) const {
    const int n = static_cast<int>(smaller(kRows, rows - piece * kRows));
    int k = 0;
    for (; k + kTogether <= n; k += kTogether) {
      const auto words = packed::load_words<packed::Words<kTogether>>(terms + k);
      for (const uint32_t word : words.word) sum += std::bit_cast<float>(word);
    }
    for (; k < n; ++k) sum += terms[k];
    return sum;
  }
};

/// Sums under interleaved16, a team of threads per output.
struct InterleavedSum {
  static constexpr int kThreads = LineTeams::kThreads;
  using Shared = TeamSums<1>::Shared;
  using State = TeamSums<1>::State;

  In<float> x;
  Out<float> y;
  Reduction reduction;
  TeamSums<1> sums;
  bool mean;

  struct Factors {
    In<float> x;  ///< starts at the output's first element
    const Strided& inner;
    HS_HD float left(int, int64_t k) const { return x[inner.offset(k)]; }
    HS_HD float right(int, int64_t) const { return 1.0f; }
  };

  int64_t blocks() const { return sums.teams.blocks(); }
  HS_HD int64_t steps() const { return sums.steps() + 1; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State& state) const {
    const int64_t o = sums.teams.line(block, thread);
    if (o >= sums.teams.lines) return;
    if (s < sums.steps()) {
      sums.step_of_factors(s, thread, shared, state,
                           Factors{x + reduction.outer.offset(o), reduction.inner});
    } else if (sums.teams.worker(thread) == 0) {
      const double sum = sums.total(0, thread, shared);
      y[o] = static_cast<float>(mean ? sum / static_cast<double>(reduction.count) : sum);
    }
  }
};

}  // namespace halfscope::gpu
