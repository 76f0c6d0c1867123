// SPDX-License-Identifier: MIT
// Steps of softmax along an axis, normalizations within a sample, and squared errors.
#pragma once

#include "core/ops/softmax.h"
#include "gpu/bodies/group_normalization.h"
#include "gpu/bodies/softmax.h"
#include "gpu/engine/reduction_steps.h"

namespace halfscope::gpu {

template <class T>
bool takes_named_sums(const SumSpec& spec) {
  return kNamesSums<T> && names_inner_sums(spec);
}

template <class X, class T>
Step softmax_step(const NodeCall<X, T>& c, bool log) {
  const SumSpec spec = c.sum_spec();
  const SoftmaxLine<T> body{.x = c.in[0],
                            .y = c.out[0],
                            .lines = axis_lines(*c.node, c.in_shape(0)),
                            .how = chain_spec(spec),
                            .named = takes_named_sums<T>(spec),
                            .log = log,
                            .zero_masked = !log && zeroes_masked_lines(*c.node),
                            .write = c.out_format(0)};
  return sums_step(c, body.lines.count, body, [](auto& each) -> ChainSpec& { return each.how; });
}

template <class X, class T>
Step softmax_grad_step(const NodeCall<X, T>& c, bool log) {  // (dy, y)
  const SumSpec spec = c.sum_spec();
  const SoftmaxLineGrad<T> body{.dy = c.in[0],
                                .y = c.in[1],
                                .dx = c.out[0],
                                .lines = axis_lines(*c.node, c.in_shape(1)),
                                .how = chain_spec(spec),
                                .named = takes_named_sums<T>(spec),
                                .log = log,
                                .write = c.out_format(0)};
  return sums_step(c, body.lines.count, body, [](auto& each) -> ChainSpec& { return each.how; });
}

inline DeviceGroups on_device(const NormGroups& of) {
  return {of.groups, of.size, of.params, of.inner};
}

template <class X, class T>
Step group_norm_step(const NodeCall<X, T>& c) {
  const DeviceGroups groups = on_device(norm_groups(*c.node, c.in_shape(0)));
  const SumSpec spec = c.sum_spec();
  const bool centred = c.out.size() > 2;
  T *const mean = centred ? exact(c.out[1]) : nullptr, *const inverse =
                                                           exact(c.out[centred ? 2 : 1]);
  const GroupStatistics<T> statistics{.groups = groups,
                                      .x = c.in[0],
                                      .mean = mean,
                                      .inverse = inverse,
                                      .epsilon = real_attribute(*c.node, "epsilon", 1e-5),
                                      .how = chain_spec(spec),
                                      .named = takes_named_sums<T>(spec)};
  return in_turn({block_sums_step(c, statistics),
                  items_step(*c.executor, c.out_count(0),
                             NormalizeGroup<T>{groups, c.in[0], mean, inverse, c.in[1],
                                               c.optional_in(2), c.out[0]})});
}

template <class X, class T>
Step normalization_grad_step(const NodeCall<X, T>& c) {  // (dy, x, scale, mean?, inverse)
  const NormOperands<T> of{
      .groups = on_device(norm_groups_of_gradient(*c.node, c.in_shape(1), c.in_shape(2))),
      .dy = c.in[0],
      .x = c.in[1],
      .scale = c.in[2],
      .mean = c.in[3],
      .inverse = c.in[4]};
  const SumSpec spec = c.sum_spec();
  const ChainSpec how = chain_spec(spec);
  const bool named = takes_named_sums<T>(spec);
  T* const share = c.template working_memory<T>(of.groups.groups);
  T* const slope = c.template working_memory<T>(of.groups.groups);
  const auto how_of = [](auto& each) -> ChainSpec& { return each.how; };
  const Out<T> dbias = c.out.size() > 2 ? c.out[2] : Out<T>(nullptr);
  return in_turn(
      {block_sums_step(c, GroupGradSums<T>{of, share, slope, how, named}),
       items_step(*c.executor, c.out_count(0), NormalizeGroupGrad<T>{of, share, slope, c.out[0]}),
       sums_step(c, of.groups.params, ParameterGrads<T>{of, c.out[1], dbias, how, named}, how_of)});
}

template <class X, class T>
Step squared_error_step(const NodeCall<X, T>& c) {
  const int64_t n = c.in_count(0), chunks = ceil_div(n, kLossChunk);
  const SumSpec spec = c.sum_spec();
  double* const sums = c.template working_memory<double>(chunks);
  const MeanOfSquares<T> mean{.prediction = c.in[0],
                              .target = c.in[1],
                              .n = n,
                              .sums = sums,
                              .y = c.out[0],
                              .how = chain_spec(spec),
                              .named = takes_named_sums<T>(spec),
                              .write = c.out_format(0)};
  return in_turn({items_step(*c.executor, chunks, SquaredErrors<T>{c.in[0], c.in[1], n, sums}),
                  sums_step(c, 1, mean, [](auto& each) -> ChainSpec& { return each.how; })});
}

template <class X, class T>
Step squared_error_grad_step(const NodeCall<X, T>& c) {
  return items_step(
      *c.executor, c.out_count(0),
      SquaredErrorGrad<T>{c.in[0], c.in[1], c.in[2], c.out[0], c.in_count(0), c.out_format(0)});
}

template <class X, class T>
Step normalization_step(const NodeCall<X, T>& call) {
  using Call = NodeCall<X, T>;
  static constexpr StepRow<X, T> kRows[] = {
      {"Softmax", [](const Call& c) { return softmax_step(c, false); }},
      {"LogSoftmax", [](const Call& c) { return softmax_step(c, true); }},
      {"SoftmaxGrad", [](const Call& c) { return softmax_grad_step(c, false); }},
      {"LogSoftmaxGrad", [](const Call& c) { return softmax_grad_step(c, true); }},
      {"LayerNormalization", group_norm_step<X, T>},
      {"GroupNormalization", group_norm_step<X, T>},
      {"InstanceNormalization", group_norm_step<X, T>},
      {"RMSNormalization", group_norm_step<X, T>},
      {"NormalizationGrad", normalization_grad_step<X, T>},
      {"MeanSquaredError", squared_error_step<X, T>},
      {"MeanSquaredErrorGrad", squared_error_grad_step<X, T>},
  };
  return step_from(kRows, call);
}

}  // namespace halfscope::gpu
