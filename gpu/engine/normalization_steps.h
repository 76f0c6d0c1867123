// SPDX-License-Identifier: MIT
// Steps of softmax along an axis, normalizations within a sample, and squared errors.
#pragma once

#include <type_traits>

#include "core/ops/softmax.h"
#include "gpu/bodies/group_normalization.h"
#include "gpu/bodies/quick_lines.h"
#include "gpu/bodies/softmax.h"
#include "gpu/engine/chain_parts.h"
#include "gpu/engine/reduction_steps.h"

namespace halfscope::gpu {

/// Returns whether lines can be computed quickly: the node names no sums, and rounds at once.
template <class X>
bool is_quick(const NodeCall<X, float>& c, const DeviceLines& lines, SumWay way, bool log) {
  return !log && way == SumWay::wide && LinePacks::suits(lines) && decides_at_once(c, lines.size);
}

template <class X, class T>
Step softmax_step(const NodeCall<X, T>& c, bool log) {
  const auto how = [](auto& body) -> ChainSpec& { return body.of.how; };
  ExpSums<T> of = exp_sums(c, axis_lines(*c.node, c.in_shape(0)));
  of.zero_masked = !log && zeroes_masked_lines(*c.node);
  if constexpr (std::is_same_v<T, float>) {
    if (c.softmax != nullptr) {
      const ExpSums<float, ElementSource> after{
          {c.softmax->x, c.softmax->steps}, of.lines, of.sums, of.how, of.zero_masked};
      const SoftmaxLines<float, ElementSource> body{after, c.out[0], log, c.out_format(0), c.cast};
      if (is_quick(c, of.lines, of.sums.way, log))
        return blocks_step(*c.executor, QuickSoftmax{body});
      return block_sums_step(c, body, how);
    }
  }
  const SoftmaxLines<T> body{of, c.out[0], log, c.out_format(0)};
  if constexpr (std::is_same_v<T, float>) {
    if (is_quick(c, of.lines, of.sums.way, log))
      return blocks_step(*c.executor, QuickSoftmax{body});
  }
  return block_sums_step(c, body, how);
}

template <class X, class T>
Step softmax_grad_step(const NodeCall<X, T>& c, bool log) {  // (dy, y)
  const AxisLines lines = axis_lines(*c.node, c.in_shape(1));
  const SoftmaxLinesGrad<T> body{
      .dy = c.in[0],
      .y = c.in[1],
      .dx = c.out[0],
      .lines = on_device(lines),
      .sums = {LineTeams::of(lines.count, lines.size, lines.stride), inner_sums(c)},
      .how = chain_spec(c.sum_spec()),
      .log = log,
      .write = c.out_format(0)};
  if constexpr (std::is_same_v<T, float>) {
    if (c.softmax != nullptr) {
      const ElementSink dx{c.out[0], c.softmax->rounds, c.softmax->steps};
      const SoftmaxLinesGrad<float, ElementSink> after{body.dy,   body.y,   dx,       body.lines,
                                                       body.sums, body.how, body.log, body.write};
      const bool quick = !log && body.sums.way == SumWay::wide && LinePacks::suits(body.lines) &&
                         Decision::suits(dx.rounds.format, body.lines.size);
      if (quick) return blocks_step(*c.executor, QuickSoftmaxGrad{after});
      return block_sums_step(c, after);
    }
    if (is_quick(c, body.lines, body.sums.way, log)) {
      return blocks_step(*c.executor, QuickSoftmaxGrad{body});
    }
  }
  return block_sums_step(c, body);
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
                                      .way = inner_sums(c)};
  const NormalizeGroup<T> normalize{groups,  c.in[0],          mean,     inverse,
                                    c.in[1], c.optional_in(2), c.out[0], c.cast};
  return in_turn(
      {block_sums_step(c, statistics), items_step(*c.executor, normalize.items(), normalize)});
}

template <class X, class T>
Step normalization_grad_step(const NodeCall<X, T>& c) {  // (dy, x, scale, mean?, inverse)
  const NormGroups groups = norm_groups_of_gradient(*c.node, c.in_shape(1), c.in_shape(2));
  const NormOperands<T> of{.groups = on_device(groups),
                           .dy = c.in[0],
                           .x = c.in[1],
                           .scale = c.in[2],
                           .mean = c.in[3],
                           .inverse = c.in[4]};
  const ChainSpec how = chain_spec(c.sum_spec());
  const SumWay way = inner_sums(c);
  T* const share = c.template working_memory<T>(groups.groups);
  T* const slope = c.template working_memory<T>(groups.groups);
  const int64_t neighbours = groups.inner == 1 ? groups.params : 1;
  const ParameterGrads<T> parameters{
      of,
      c.out[1],
      c.out.size() > 2 ? c.out[2] : Out<T>(nullptr),
      {LineTeams::of(groups.params, groups.per_param(), neighbours), way},
      how};
  const bool columns = way == SumWay::wide && ParameterColumns<T>::suits(of.groups);
  const NormalizeGroupGrad<T> normalize{of, share, slope, c.out[0]};
  return in_turn({block_sums_step(c, GroupGradSums<T>{of, share, slope, how, way}),
                  items_step(*c.executor, normalize.items(), normalize),
                  columns ? blocks_step(*c.executor, ParameterColumns<T>{of, parameters.dscale,
                                                                         parameters.dbias})
                          : block_sums_step(c, parameters)});
}

template <class X, class T>
Step squared_error_step(const NodeCall<X, T>& c) {
  const int64_t n = c.in_count(0), chunks = ceil_div(n, kLossChunk);
  const SumWay way = inner_sums(c);
  double* const sums = c.template working_memory<double>(chunks);
  const MeanOfSquares<T> mean{.prediction = c.in[0],
                              .target = c.in[1],
                              .n = n,
                              .chunks = sums,
                              .y = c.out[0],
                              .sums = {LineTeams::of(1, way == SumWay::wide ? chunks : n, 1), way},
                              .how = chain_spec(c.sum_spec()),
                              .write = c.out_format(0)};
  if (way != SumWay::wide) return block_sums_step(c, mean);
  return in_turn({blocks_step(*c.executor, SquaredErrors<T>{c.in[0], c.in[1], n, sums}),
                  block_sums_step(c, mean)});
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
