// SPDX-License-Identifier: MIT
// Decisions that all backends share when they run an executable graph: which values share memory,
// which outputs are rounded and with which random words, which inner sums a plan names.
#pragma once

#include <cstdint>
#include <map>

#include "core/graph/graph.h"
#include "core/numeric/formats/rng.h"
#include "core/numeric/formats/tensor_rounding.h"

namespace halfscope {

/// Source of a run's random words: the same for every backend.
struct RandomSource {
  uint64_t seed = 0, step = 0;
};

/// Returns how this value of the graph is rounded in this step.
inline TensorRounding rounding_now(const RoundingChoice& choice, ValueId value,
                                   const RandomSource& source) noexcept {
  const bool draws = choice.mode == RoundingMode::stochastic;
  return {.mode = choice.mode,
          .key = draws ? random_key(source.seed, source.step, static_cast<uint64_t>(value)) : 0,
          .random_bits = choice.random_bits};
}

/// Returns the key of the stochastic sums that compute this value. Their random words differ from
/// those of its own rounding.
inline uint64_t sum_key(const RoundingChoice& choice, ValueId value,
                        const RandomSource& source) noexcept {
  if (choice.mode != RoundingMode::stochastic) return 0;
  constexpr uint64_t kSums = uint64_t{1} << 63;
  return random_key(source.seed, source.step, kSums | static_cast<uint64_t>(value));
}

/// Returns whether the operator's output is its operand under another shape.
bool is_view(const Node& node);

/// Returns whether rounding can change the output. It cannot if the node only moves values that the
/// output's format can represent.
bool needs_rounding(const Graph& graph, const Node& node, const Value& output);

/// Returns the values that share another one's memory: a variable's next value, an operand's other
/// shape.
std::map<ValueId, ValueId> memory_aliases(const Graph& graph);

/// Returns how a node sums; `unrounded`: deliver the sums as for fp32, whatever the output's
/// format.
SumSpec sum_spec_of(const Graph& graph, const Node& node, bool unrounded = false);

/// Returns whether the plan names the inner sums of a fused operator (normalization, loss). These
/// sums are computed in double unless the accumulation is something other than an fp32 or fp64
/// chain; tensor cores play no role in them.
inline bool names_inner_sums(const SumSpec& spec) noexcept {
  const Accumulation::Kind kind = spec.accumulation.kind;
  const bool plain =
      kind == Accumulation::fp32 || kind == Accumulation::fp64 || kind == Accumulation::tensor_core;
  return !plain || !spec.accumulation.is_single_chain();
}

/// Returns the spec of further sums in the same node, with other random words. Their operands were
/// computed in fp32, so no tensor core reads them.
inline SumSpec second_sums(SumSpec spec) noexcept {
  spec.key = splitmix64(spec.key);
  spec.read = kFp32;
  spec.read_b.reset();
  return spec;
}

/// Returns the spec for one of several sums of different lengths in a node (GatherGrad): each has
/// its own random words.
inline SumSpec sums_of_row(SumSpec spec, int64_t row) noexcept {
  spec.key = splitmix64(spec.key + static_cast<uint64_t>(row));
  return spec;
}

}  // namespace halfscope
