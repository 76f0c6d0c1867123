// SPDX-License-Identifier: MIT
// What every backend decides alike when it runs an executable graph: which values share memory,
// which results are rounded and with what random words, which inner sums a plan names.
#pragma once

#include <cstdint>
#include <map>

#include "core/graph/graph.h"
#include "core/numeric/formats/rng.h"
#include "core/numeric/formats/tensor_rounding.h"

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

/// Operators whose output is their operand under another shape.
bool is_view(const Node& node);

/// Rounding cannot change what only moves values of formats that the target holds.
bool needs_rounding(const Graph& graph, const Node& node, const Value& output);

/// Values that lie in another one's memory: a variable's next value, an operand's other shape.
std::map<ValueId, ValueId> memory_aliases(const Graph& graph);

/// How a node sums; `unrounded` results are wanted as for fp32, whatever their format.
SumSpec sum_spec_of(const Graph& graph, const Node& node, bool unrounded = false);

/// Fused operators (normalization, loss) take their inner sums in double, unless the plan names an
/// accumulation other than an fp32 or fp64 chain; tensor cores have no part in such sums.
inline bool names_inner_sums(const SumSpec& spec) noexcept {
  const Accumulation::Kind kind = spec.accumulation.kind;
  const bool plain =
      kind == Accumulation::fp32 || kind == Accumulation::fp64 || kind == Accumulation::tensor_core;
  return !plain || !spec.accumulation.is_single_chain();
}

/// For further sums of the same node, with other random words. Their operands were computed in
/// fp32: no tensor core takes them.
inline SumSpec second_sums(SumSpec spec) noexcept {
  spec.key = splitmix64(spec.key);
  spec.read = kFp32;
  spec.read_b.reset();
  return spec;
}

/// For sums of different lengths of one node, such as those of GatherGrad: each has words of its
/// own.
inline SumSpec sums_of_row(SumSpec spec, int64_t row) noexcept {
  spec.key = splitmix64(spec.key + static_cast<uint64_t>(row));
  return spec;
}

}  // namespace halfscope
