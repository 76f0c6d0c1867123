// SPDX-License-Identifier: MIT
// Steps of the operators after the gradients, and of scaled operands.
#pragma once

#include "gpu/bodies/indexing.h"
#include "gpu/bodies/quantize.h"
#include "gpu/bodies/updates.h"
#include "gpu/engine/node_call.h"

namespace halfscope::gpu {

/// The first four inputs of every operator that reads a gradient are the variable, the gradient,
/// 1 / scale and the clipping factor.
template <class X, class T>
Gradient<T> gradient_of(const NodeCall<X, T>& c) {
  return {c.in[0], c.in[1], c.in[2], c.in[3], attribute_of<T>(*c.node, "weight_decay")};
}

template <class X, class T, class Rule>
Step apply_step(const NodeCall<X, T>& c, const Rule& rule) {
  const Update<T, Rule> plain{.rule = rule,
                              .w = c.in[0],
                              .next = c.out[0],
                              .update = c.out[1],
                              .n = c.out_count(0),
                              .storage = c.out_format(0),
                              .rounds = c.out_format(0) != kFp32};
  const RoundingChoice choice = c.graph->value(c.node->outputs[0]).rounding;
  const ValueId value = c.node->outputs[0];
  uint64_t* const lost = c.lost;
  X& executor = *c.executor;
  return [&executor, plain, choice, value, lost](const RunState& state) {
    Update<T, Rule> body = plain;
    body.rounding = rounding_now(choice, value, state.random);
    body.lost = state.measured ? lost : nullptr;
    executor.items(items_of_several(body.n), body);
  };
}

template <class X, class T>
Step average_step(const NodeCall<X, T>& c) {
  const double d = real_attribute(*c.node, "decay", 0.0);
  const WeightAverage<T> plain{.e = c.in[0],
                               .w = c.in[1],
                               .next = c.out[0],
                               .update = c.out[1],
                               .keep = static_cast<T>(d),
                               .rate = static_cast<T>(1.0 - d),
                               .lerp = int_attribute(*c.node, "lerp", 1) != 0,
                               .inside = c.node->plan.write,
                               .storage = c.out_format(0),
                               .rounds_inside = !c.unrounded && c.node->plan.write != kFp32,
                               .rounds = c.out_format(0) != kFp32};
  const RoundingChoice choice = c.graph->value(c.node->outputs[0]).rounding;
  const ValueId value = c.node->outputs[0];
  const int64_t n = c.out_count(0);
  uint64_t* const lost = c.lost;
  X& executor = *c.executor;
  return [&executor, plain, choice, value, n, lost](const RunState& state) {
    WeightAverage<T> body = plain;
    body.rounding = rounding_now(choice, value, state.random);
    body.lost = state.measured ? lost : nullptr;
    executor.items(n, body);
  };
}

template <class X, class T>
Step norm_step(const NodeCall<X, T>& c) {
  X& executor = *c.executor;
  int64_t count = 0;
  for (size_t i = 0; i < c.in.size(); ++i) count += ceil_div(c.in_count(i), kSumChunk);
  double* sums = c.template working_memory<double>(count);
  std::vector<Step> steps;
  double* next = sums;
  for (size_t i = 0; i < c.in.size(); ++i) {
    const ChunkTotals<T, true> squares{c.in[i], c.in_count(i), next};
    steps.push_back(blocks_step(executor, squares));
    next += squares.chunks();
  }
  while (count > 1) {
    const int64_t chunks = ceil_div(count, kSumChunk);
    double* const totals = c.template working_memory<double>(chunks);
    steps.push_back(blocks_step(executor, ChunkTotals<double, false>{sums, count, totals}));
    sums = totals;
    count = chunks;
  }
  steps.push_back(
      items_step(executor, 1, NormTotal<T>{count != 0 ? sums : nullptr, c.wide, c.out[0]}));
  return in_turn(std::move(steps));
}

template <class X, class T>
Step momentum_step(const NodeCall<X, T>& c) {
  const int64_t n = c.out_count(0);
  return items_step(
      *c.executor, items_of_several(n),
      Momentum<T>{gradient_of(c), c.in[4], c.out[0], attribute_of<T>(*c.node, "momentum"), n});
}

template <class X, class T>
Step adam_moments_step(const NodeCall<X, T>& c) {
  const double b1 = real_attribute(*c.node, "beta1", 0.9);
  const double b2 = real_attribute(*c.node, "beta2", 0.999);
  return items_step(
      *c.executor, c.out_count(0),
      AdamMoments<T>{gradient_of(c), c.in[4], c.in[5], c.out[0], c.out[1], static_cast<T>(b1),
                     static_cast<T>(b2), static_cast<T>(1.0 - b1), static_cast<T>(1.0 - b2)});
}

template <class X, class T>
Step square_average_step(const NodeCall<X, T>& c) {
  const double a = real_attribute(*c.node, "alpha", 0.99);
  return items_step(*c.executor, c.out_count(0),
                    SquareAverage<T>{gradient_of(c), c.in[4], c.out[0], static_cast<T>(a),
                                     static_cast<T>(1.0 - a)});
}

template <class X, class T>
Step rms_momentum_step(const NodeCall<X, T>& c) {
  return items_step(
      *c.executor, c.out_count(0),
      RmsMomentum<T>{gradient_of(c), c.in[4], c.in[5], c.out[0],
                     attribute_of<T>(*c.node, "momentum"), attribute_of<T>(*c.node, "eps")});
}

template <class X, class T>
Step gradient_sum_step(const NodeCall<X, T>& c) {
  return items_step(*c.executor, c.out_count(0),
                    GradientSum<T>{c.in[0], c.in[1], c.in[2], c.out[0]});
}

template <class X, class T>
Step sgd_step(const NodeCall<X, T>& c) {
  return apply_step(c, SgdRule<T>{gradient_of(c), c.in[4], c.optional_in(5)});
}

template <class X, class T>
Step rms_step(const NodeCall<X, T>& c) {
  return apply_step(c, RmsRule<T>{gradient_of(c), c.in[4], c.in[5], c.optional_in(6),
                                  attribute_of<T>(*c.node, "eps")});
}

template <class X, class T>
Step adam_step(const NodeCall<X, T>& c) {
  return apply_step(
      c, AdamRule<T>{c.in[1], c.in[2], c.in[3], c.in[4], c.in[5], attribute_of<T>(*c.node, "eps"),
                     real_attribute(*c.node, "decoupled_decay", 0.0)});
}

/// Appends the steps that find the largest magnitude of the first input; returns where its bits go.
template <class X, class T>
const uint32_t* find_amax(const NodeCall<X, T>& c, bool only_finite, std::vector<Step>& steps) {
  using Search = LargestMagnitude<T>;
  uint32_t* const bits = c.template working_memory<uint32_t>(1);
  const int64_t n = c.in_count(0);
  steps.push_back(items_step(*c.executor, 1, Fill<uint32_t>{bits, 0}));
  steps.push_back(items_step(*c.executor, Search::items(n), Search{c.in[0], n, only_finite, bits}));
  return bits;
}

template <class X, class T>
Step quantize_step(const NodeCall<X, T>& c) {
  X& executor = *c.executor;
  const TensorScale& choice = c.node->plan.scale;
  const FloatFormat code = c.node->plan.write;
  std::vector<Step> steps;
  if (!choice.by_block()) {
    const bool current = choice.kind == TensorScale::Kind::current;
    const uint32_t* const amax = current ? find_amax(c, false, steps) : nullptr;
    T* const factor = c.template working_memory<T>(1);
    steps.push_back(items_step(
        executor, 1,
        TensorFactor<T>{choice, code, amax, c.optional_in(1), factor, c.out[1], c.out[2]}));
    steps.push_back(items_step(executor, c.out_count(0), Multiply<T>{c.in[0], factor, c.out[0]}));
    return in_turn(std::move(steps));
  }
  const BlockFormat format = block_format(*c.node);
  const bool two_scales = format.scale == ScaleKind::e4m3fn_and_fp32;
  const Blocks blocks{block_shape(*c.node, c.in_shape(0)), choice.block()};
  T *const scales = exact(c.out[1]), *const tensor_scale = exact(c.out[2]);
  const uint32_t* const amax = two_scales ? find_amax(c, true, steps) : nullptr;
  steps.push_back(items_step(executor, 1, TensorScaleOf<T>{amax, tensor_scale}));
  steps.push_back(items_step(executor, c.out_count(1),
                             BlockScale<T>{c.in[0], tensor_scale, scales, blocks, format}));
  steps.push_back(items_step(
      executor, c.out_count(0),
      BlockCodes<T>{c.in[0], scales, tensor_scale, c.out[0], blocks, format.scale, code}));
  return in_turn(std::move(steps));
}

template <class X, class T>
Step scale_update_step(const NodeCall<X, T>& c) {
  const TensorScale& choice = c.node->plan.scale;
  std::vector<Step> steps;
  check_node(*c.node, !stored_at_once(c.out[0]),
             "its state must be fp32, because later steps read it");
  T* const state = exact(c.out[0]);
  if (state != address(c.in[1])) {
    const Strided whole{1, {c.out_count(0)}, {1}};
    steps.push_back(items_step(*c.executor, c.out_count(0), CopyFrom<T>{c.in[1], state, whole}));
  }
  const uint32_t* const amax = find_amax(c, false, steps);
  steps.push_back(items_step(*c.executor, 1,
                             ScaleUpdate<T>{amax, state, c.out_count(0) - kScaleStateHead,
                                            c.node->plan.write, choice.amax, choice.margin}));
  return in_turn(std::move(steps));
}

template <class X, class T>
Step dequantize_step(const NodeCall<X, T>& c) {
  const Blocks blocks{block_shape(*c.node, c.in_shape(0)), c.node->plan.scale.block()};
  return items_step(*c.executor, c.out_count(0),
                    Dequantize<T>{c.in[0], c.in[1], c.in[2], c.out[0], blocks});
}

template <class X, class T>
Step update_step(const NodeCall<X, T>& c) {
  static constexpr StepRow<X, T> kRows[] = {
      {"GradientNorm", norm_step<X, T>},
      {"GradientSum", gradient_sum_step<X, T>},
      {"Momentum", momentum_step<X, T>},
      {"AdamMoments", adam_moments_step<X, T>},
      {"SquareAverage", square_average_step<X, T>},
      {"RmsMomentum", rms_momentum_step<X, T>},
      {"SgdUpdate", sgd_step<X, T>},
      {"RmsUpdate", rms_step<X, T>},
      {"AdamUpdate", adam_step<X, T>},
      {"WeightAverage", average_step<X, T>},
      {"Quantize", quantize_step<X, T>},
      {"Dequantize", dequantize_step<X, T>},
      {"ScaleUpdate", scale_update_step<X, T>},
  };
  return step_from(kRows, c);
}

}  // namespace halfscope::gpu
