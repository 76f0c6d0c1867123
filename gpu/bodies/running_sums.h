// SPDX-License-Identifier: MIT
// Prefix sums where each continues the one before: one walk per line. A walk has a fixed order and
// therefore one thread, which would wait for memory at every element. So a block of threads loads a
// piece of its lines into shared memory, walks the previous piece there, and stores the piece
// before that.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/bodies/elements.h"
#include "core/numeric/sums/chain.h"
#include "gpu/bodies/divisor.h"
#include "gpu/bodies/work.h"

namespace halfscope::gpu {

/// Computes the prefix sums of lines of `length` elements that are `inner` apart.
template <class T>
struct RunningSums {
  static constexpr int kThreads = 256, kMostLines = 32, kPiece = 1056;

  In<T> x;
  Out<T> y;
  int64_t lines, length;
  Divisor inner;
  Divisor per_block;  ///< lines per block
  Divisor terms;      ///< of each line in a piece
  bool reverse, exclusive;
  ChainSpec how;

  /// In place: the elements of a piece become their prefix sums.
  struct Shared {
    T piece[3][kPiece];
  };
  struct State {
    double sum;
    float lost;  ///< kahan
  };

  /// Returns whether the sum of n + 1 terms is that of n terms and one more step. Not so for sums
  /// that are cut or paired depending on n, and stochastic ones, where each sum draws other words.
  static bool suits(const ChainSpec& how) {
    if (!kNamesSums<T>) return true;
    return how.is_single_chain() && how.kind != Accumulation::Kind::pairwise &&
           how.kind != Accumulation::Kind::interleaved16 &&
           how.rounding.mode != RoundingMode::stochastic;
  }
  /// Neighbours in memory share a block; so do lines that are too many for a block each.
  static int64_t lines_of_block(int64_t lines, int64_t inner) {
    constexpr int64_t kMany = 4096;
    return inner > 1 || lines >= kMany ? larger(smaller(lines, kMostLines), 1) : 1;
  }
  /// The distance in a piece is odd, so that threads use different banks of shared memory.
  HS_HD static int64_t pitch(int64_t per_block) { return per_block | 1; }
  static int64_t terms_of_piece(int64_t per_block) { return kPiece / pitch(per_block); }

  HS_HD int64_t pieces() const { return ceil_div(length, terms); }
  int64_t blocks() const { return length == 0 ? 0 : ceil_div(lines, per_block); }
  HS_HD int64_t steps() const { return pieces() + 2; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State& state) const {
    const int64_t first = block * per_block;
    if (s == 0) state = {0.0, 0.0f};
    if (s < pieces()) move<true>(s, first, thread, shared.piece[s % 3]);
    if (s >= 1 && s <= pieces() && thread < per_block) {
      walk(count(s - 1), shared.piece[(s - 1) % 3] + thread, state);
    }
    if (s >= 2) move<false>(s - 2, first, thread, shared.piece[(s - 2) % 3]);
  }

 private:
  HS_HD int64_t count(int64_t piece) const { return smaller(terms, length - piece * terms); }

  /// Loads or stores a piece; adjacent threads access adjacent elements.
  template <bool kLoads>
  HS_HD void move(int64_t piece, int64_t first, int thread, T* shared) const {
    const int64_t begin = piece * terms, n = count(piece), own = smaller(per_block, lines - first);
    for (int64_t at = thread; at < terms * per_block; at += kThreads) {
      const int64_t line = inner > 1 ? at % per_block : at / terms;
      const int64_t k = inner > 1 ? at / per_block : at % terms;
      if (k >= n || line >= own) continue;
      const int64_t place = reverse ? length - 1 - begin - k : begin + k;
      const int64_t outer = (first + line) / inner;
      const int64_t i = (outer * length + place) * inner + (first + line - outer * inner);
      T& element = shared[k * pitch(per_block) + line];
      if (kLoads) {
        element = x[i];
      } else {
        y[i] = element;
      }
    }
  }

  HS_HD void walk(int64_t n, T* line, State& state) const {
    if constexpr (kNamesSums<T>) {
      if (how.is_fp32_chain()) {
        float sum = static_cast<float>(state.sum);
        walk_with(
            n, line, [&](float term) { sum += term; }, [&] { return sum; });
        state.sum = static_cast<double>(sum);
      } else {
        walk_with(
            n, line, [&](float term) { add(term, state); },
            [&] {
              return how.is_wide() ? deliver(state.sum, how.write) : static_cast<float>(state.sum);
            });
      }
    } else {
      walk_with(
          n, line, [&](double term) { state.sum += term; }, [&] { return state.sum; });
    }
  }
  template <class Add, class Get>
  HS_HD void walk_with(int64_t n, T* line, const Add& add, const Get& get) const {
    const int64_t step = pitch(per_block);
    for (int64_t k = 0; k < n; ++k) {
      T& element = line[k * step];
      const T term = element;
      if (exclusive) element = get();
      add(term);
      if (!exclusive) element = get();
    }
  }

  /// One step of the chains in core/numeric/sums/chain.h.
  HS_HD void add(float term, State& state) const {
    const float sum = static_cast<float>(state.sum);
    switch (how.kind) {
      case Accumulation::Kind::fp64:
        state.sum += static_cast<double>(term);
        return;
      case Accumulation::Kind::kahan: {
        const float corrected = term - state.lost, next = sum + corrected;
        state.lost = detail::is_finite(next) ? (next - sum) - corrected : 0.0f;
        state.sum = static_cast<double>(next);
        return;
      }
      case Accumulation::Kind::format:
      case Accumulation::Kind::format_mul_add:
      case Accumulation::Kind::fma32_then_round:
        state.sum = how.rounds_otherwise()
                        ? detail::rounded_step(how.kind, how.write, {.mode = how.rounding.mode}, 0,
                                               term, 1.0f, state.sum)
                        : detail::format_step(how.kind, how.write, term, 1.0f, state.sum);
        return;
      case Accumulation::Kind::fp32:
      case Accumulation::Kind::tensor_core:
      case Accumulation::Kind::pairwise:
      case Accumulation::Kind::interleaved16:
        break;
    }
    state.sum = static_cast<double>(sum + term);
  }
};

}  // namespace halfscope::gpu
