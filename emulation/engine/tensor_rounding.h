// SPDX-License-Identifier: MIT
// Rounding and measuring of whole tensors as a value's plan says, from the random words of the
// step.
#pragma once

#include <cstdint>

#include "core/graph/graph.h"
#include "core/numeric/rng.h"
#include "core/numeric/tensor_rounding.h"
#include "emulation/measure/measure.h"

namespace halfscope {

/// Where the random words of a run come from: the same for any backend.
struct RandomSource {
  uint64_t seed = 0, step = 0;
};

/// How this value of the graph is rounded now.
inline TensorRounding rounding_now(const RoundingChoice& choice, ValueId value,
                                   const RandomSource& source) noexcept {
  const bool draws = choice.mode == RoundingMode::stochastic;
  return {.mode = choice.mode,
          .key = draws ? random_key(source.seed, source.step, static_cast<uint64_t>(value)) : 0,
          .random_bits = choice.random_bits};
}

/// Key of the stochastic sums behind this value: other words than those of its own rounding.
inline uint64_t sum_key(const RoundingChoice& choice, ValueId value,
                        const RandomSource& source) noexcept {
  if (choice.mode != RoundingMode::stochastic) return 0;
  constexpr uint64_t kSums = uint64_t{1} << 63;
  return random_key(source.seed, source.step, kSums | static_cast<uint64_t>(value));
}

}  // namespace halfscope
