// SPDX-License-Identifier: MIT
// Steps of the operators after the gradients, and of scaled operands.
#pragma once

#include <type_traits>

#include "gpu/bodies/indexing.h"
#include "gpu/bodies/quantize.h"
#include "gpu/bodies/updates.h"
#include "gpu/engine/group_steps.h"
#include "gpu/engine/node_call.h"
#include "gpu/engine/rank_reduction_steps.h"

namespace halfscope::gpu {

/// The first four inputs of every operator that reads a gradient are the variable, the gradient,
/// 1 / scale and the clipping factor.
template <class X, class T>
Gradient<T> gradient_of(const NodeCall<X, T>& c) {
  return {c.in[0],
          c.in[1],
          c.in[2],
          c.in[3],
          attribute_of<T>(*c.node, "weight_decay"),
          int_attribute(*c.node, "maximize", 0) != 0};
}

/// Makes the step of a body that rounds the first output itself and counts lost updates. Nodes that
/// run together draw no random words and are not measured.
template <class X, class T, class Make>
Step rounding_step(const NodeCall<X, T>& c, const Make& make) {
  const auto complete = [&](const NodeCall<X, T>& call) {
    auto body = make(call);
    body.rounding =
        rounding_now(call.graph->value(call.node->outputs[0]).rounding, call.node->outputs[0], {});
    return body;
  };
  if (!c.others.empty()) return joint_step(c, complete);
  const auto body = complete(c);
  using Body = std::remove_const_t<decltype(body)>;
  const auto launch = [](const BodyStep<X>& step, const RunState& state) {
    Body now = step.body.template as<Body>();
    now.rounding = rounding_now(step.rounding, step.value, state.random);
    now.lost = state.measured ? step.lost : nullptr;
    step.executor->items(step.n, now);
  };
  const ValueId value = c.node->outputs[0];
  return body_step(c.executor, launch, body, body.items(), c.graph->value(value).rounding, value,
                   c.lost);
}

/// Makes the step of an update by the rule that rule_of(call) returns.
template <class X, class T, class RuleOf>
Step apply_step(const NodeCall<X, T>& c, const RuleOf& rule_of) {
  return rounding_step(c, [&](const NodeCall<X, T>& call) {
    return Update<T, decltype(rule_of(call))>{.rule = rule_of(call),
                                              .w = call.in[0],
                                              .next = call.out[0],
                                              .update = call.out[1],
                                              .n = call.out_count(0),
                                              .storage = call.out_format(0),
                                              .rounds = call.out_format(0) != kFp32};
  });
}

template <class X, class T>
Step average_step(const NodeCall<X, T>& c) {
  return rounding_step(c, [](const NodeCall<X, T>& call) {
    const double d = real_attribute(*call.node, "decay", 0.0);
    return WeightAverage<T>{.e = call.in[0],
                            .w = call.in[1],
                            .next = call.out[0],
                            .update = call.out[1],
                            .n = call.out_count(0),
                            .keep = static_cast<T>(d),
                            .rate = static_cast<T>(1.0 - d),
                            .lerp = int_attribute(*call.node, "lerp", 1) != 0,
                            .inside = call.node->plan.write,
                            .storage = call.out_format(0),
                            .rounds_inside = !call.unrounded && call.node->plan.write != kFp32,
                            .rounds = call.out_format(0) != kFp32};
  });
}

template <class X, class T>
Step norm_step(const NodeCall<X, T>& c) {
  X& executor = *c.executor;
  int64_t count = 0;
  for (size_t i = 0; i < c.in.size(); ++i) count += ceil_div(c.in_count(i), kSumChunk);
  double* sums = c.template working_memory<double>(count);
  std::vector<Step> steps;
  std::vector<ChunkTotals<T, true>> squares;
  double* next = sums;
  for (size_t i = 0; i < c.in.size(); ++i) {
    squares.push_back({c.in[i], c.in_count(i), next});
    next += squares.back().chunks();
  }
  steps.push_back(group_step<BlockGroup>(c, squares));
  while (count > 1) {
    const int64_t chunks = ceil_div(count, kSumChunk);
    double* const totals = c.template working_memory<double>(chunks);
    steps.push_back(blocks_step(executor, ChunkTotals<double, false>{sums, count, totals}));
    sums = totals;
    count = chunks;
  }
  steps.push_back(items_step(executor, 1,
                             NormTotal<T>{count != 0 ? sums : nullptr, c.wide, c.out[0],
                                          int_attribute(*c.node, "finite_only", 0) != 0}));
  return in_turn(std::move(steps));
}

template <class X, class T>
Step momentum_step(const NodeCall<X, T>& c) {
  return joint_step(c, [](const NodeCall<X, T>& call) {
    return Momentum<T>{gradient_of(call),
                       call.in[4],
                       call.optional_in(5),
                       call.out[0],
                       {call.optional_in(6), attribute_of<T>(*call.node, "momentum")},
                       call.out_count(0)};
  });
}

template <class X, class T>
Step adam_moments_step(const NodeCall<X, T>& c) {
  return joint_step(c, [](const NodeCall<X, T>& call) {
    const double b1 = real_attribute(*call.node, "beta1", 0.9);
    const double b2 = real_attribute(*call.node, "beta2", 0.999);
    return AdamMoments<T>{gradient_of(call),
                          call.in[4],
                          call.in[5],
                          call.out[0],
                          call.out[1],
                          {call.optional_in(6), static_cast<T>(b1)},
                          {call.optional_in(7), static_cast<T>(1.0 - b1)},
                          static_cast<T>(b2),
                          static_cast<T>(1.0 - b2),
                          call.out_count(0)};
  });
}

template <class X, class T>
Step square_average_step(const NodeCall<X, T>& c) {
  return joint_step(c, [](const NodeCall<X, T>& call) {
    const double a = real_attribute(*call.node, "alpha", 0.99);
    return SquareAverage<T>{
        gradient_of(call),       call.in[4],       call.out[0], static_cast<T>(a),
        static_cast<T>(1.0 - a), call.out_count(0)};
  });
}

template <class X, class T>
Step rms_momentum_step(const NodeCall<X, T>& c) {
  return joint_step(c, [](const NodeCall<X, T>& call) {
    return RmsMomentum<T>{gradient_of(call),
                          call.in[4],
                          call.in[5],
                          call.out[0],
                          {call.optional_in(6), attribute_of<T>(*call.node, "momentum")},
                          attribute_of<T>(*call.node, "eps"),
                          call.out_count(0)};
  });
}

template <class X, class T>
Step gradient_sum_step(const NodeCall<X, T>& c) {
  return joint_step(c, [](const NodeCall<X, T>& call) {
    return GradientSum<T>{call.in[0], call.in[1], call.in[2], call.out[0], call.out_count(0)};
  });
}

template <class X, class T>
Step sgd_step(const NodeCall<X, T>& c) {
  return apply_step(c, [](const NodeCall<X, T>& call) {
    return SgdRule<T>{gradient_of(call), call.in[4], call.optional_in(5)};
  });
}

template <class X, class T>
Step rms_step(const NodeCall<X, T>& c) {
  return apply_step(c, [](const NodeCall<X, T>& call) {
    return RmsRule<T>{gradient_of(call), call.in[4], call.in[5], call.optional_in(6),
                      attribute_of<T>(*call.node, "eps")};
  });
}

template <class X, class T>
Step adam_step(const NodeCall<X, T>& c) {
  return apply_step(c, [](const NodeCall<X, T>& call) {
    return AdamRule<T>{call.in[1],
                       call.in[2],
                       call.in[3],
                       call.in[4],
                       call.in[5],
                       attribute_of<T>(*call.node, "eps"),
                       real_attribute(*call.node, "decoupled_decay", 0.0)};
  });
}

/// Appends the steps that find the largest magnitude of the first input; returns where its bits go.
template <class X, class T>
const uint32_t* find_amax(const NodeCall<X, T>& c, bool only_finite, std::vector<Step>& steps) {
  uint32_t* const bits = c.template working_memory<uint32_t>(1);
  steps.push_back(items_step(*c.executor, 1, Fill<uint32_t>{bits, 0}));
  steps.push_back(
      blocks_step(*c.executor, LargestMagnitude<T>{c.in[0], c.in_count(0), only_finite, bits}));
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
    steps.push_back(
        choice.kind == TensorScale::Kind::divided
            ? items_step(executor, c.out_count(0), Divide<T>{c.in[0], factor, c.out[0]})
            : items_step(executor, c.out_count(0), Multiply<T>{c.in[0], factor, c.out[0]}));
    return in_turn(std::move(steps));
  }
  const BlockFormat format = block_format(*c.node);
  const bool two_scales = format.scale == ScaleKind::e4m3fn_and_fp32;
  const Blocks blocks{block_shape(*c.node, c.in_shape(0)), format.block_size};
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
  const Blocks blocks{block_shape(*c.node, c.in_shape(0)), block_format(*c.node).block_size};
  return items_step(*c.executor, c.out_count(0),
                    Dequantize<T>{c.in[0], c.in[1], c.in[2], c.out[0], blocks});
}

template <class X, class T>
Step update_step(const NodeCall<X, T>& c) {
  static constexpr StepRow<X, T> kRows[] = {
      {"GradientNorm", norm_step<X, T>},
      {"GradientSum", gradient_sum_step<X, T>},
      {"RankGradients", rank_gradients_step<X, T>},
      {"RankReduction", rank_reduction_step<X, T>},
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
