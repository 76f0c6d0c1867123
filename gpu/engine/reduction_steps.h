// SPDX-License-Identifier: MIT
// Steps of reductions, pooling, the loss and batch normalization.
#pragma once

#include <algorithm>
#include <numeric>
#include <type_traits>

#include "gpu/bodies/chain_sums.h"
#include "gpu/bodies/channels_last.h"
#include "gpu/bodies/loss.h"
#include "gpu/bodies/normalization.h"
#include "gpu/bodies/pooling.h"
#include "gpu/bodies/quick_lines.h"
#include "gpu/bodies/reductions.h"
#include "gpu/bodies/running_sums.h"
#include "gpu/bodies/softmax.h"
#include "gpu/bodies/team_sums.h"
#include "gpu/engine/movement_steps.h"
#include "gpu/engine/node_call.h"

namespace halfscope::gpu {

/// Returns the reduction over `axes` of a tensor with this shape.
inline Reduction reduction_over(const Node& node, const Shape& shape,
                                const std::vector<int64_t>& axes, bool channels_last = false) {
  std::vector<int64_t> own = row_major(shape);
  if (channels_last) {
    own = {shape[1] * shape[2] * shape[3], 1, shape[1] * shape[3], shape[1]};
  }
  std::vector<int64_t> sizes[2], strides[2];
  Reduction result;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool reduced = std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(i));
    sizes[reduced].push_back(shape[i]);
    strides[reduced].push_back(own[i]);
    if (reduced) result.count = result.count * shape[i];
  }
  result.outer = strided(node, sizes[0], strides[0]);
  result.inner = strided(node, sizes[1], strides[1]);
  return result;
}

inline Reduction reduction_of(const Node& node, const Shape& shape) {
  return reduction_over(node, shape, reduction_axes(node, shape.size()));
}

template <class X, class T>
std::vector<int64_t> reduced_axes(const NodeCall<X, T>& c) {
  return reduction_axes(*c.node, c.in_shape(0).size());
}

/// Returns axes 2 and beyond.
inline std::vector<int64_t> pixel_axes(const Shape& shape) {
  std::vector<int64_t> axes;
  for (size_t i = 2; i < shape.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  return axes;
}

/// Returns how the inner sums of a fused operator are taken.
template <class X, class T>
SumWay inner_sums(const NodeCall<X, T>& c) {
  const SumSpec spec = c.sum_spec();
  return sum_way<T>(chain_spec(spec), names_inner_sums(spec));
}

inline DeviceLines on_device(const AxisLines& lines) {
  return {lines.count, lines.size, lines.stride};
}

/// Returns the sums of exp over lines, for softmax and losses.
template <class X, class T>
ExpSums<T> exp_sums(const NodeCall<X, T>& c, const AxisLines& lines) {
  return {.x = c.in[0],
          .lines = on_device(lines),
          .sums = {LineTeams::of(lines.count, lines.size, lines.stride), inner_sums(c)},
          .how = chain_spec(c.sum_spec())};
}

/// Makes the step of few outputs with one fp32 chain each if the kept axes are adjacent; otherwise
/// returns nothing.
template <class X>
Step chain_sums_step(const NodeCall<X, float>& c, const std::vector<int64_t>& axes, bool mean) {
  Shape x = c.in_shape(0);
  const ChainSpec how = chain_spec(c.sum_spec());
  const auto reduced = [&](size_t i) {
    return std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(i));
  };
  if (c.last_in(0)) {
    // Pixels of all samples are the lines of a matrix, in the order of the sum.
    if (!reduced(0)) return {};
    x = {x[0] * x[2] * x[3], x[1]};
  }
  size_t first = 0, last = x.size();
  ChainSums body{c.in[0], c.out[0], 1, 1, 1, 1.0, 1};
  int64_t inner = 1;
  while (first < last && reduced(first)) body.outer *= x[first++];
  while (last > first && reduced(last - 1)) inner *= x[--last];
  for (size_t i = first; i < last; ++i) {
    if (reduced(i)) return {};
    body.chains *= x[i];
  }
  body.inner = inner;
  if (!how.is_fp32_chain() || !ChainSums::suits(body.chains, body.terms())) return {};
  body.per_block = ChainSums::chains_of_block(body.chains, inner);
  if (mean) body.divisor = static_cast<double>(body.terms());
  if (inner == 1 && body.chains % kSeveral == 0) {
    return blocks_step(*c.executor,
                       ColumnSums{body.x, body.y, body.outer, body.chains, body.divisor});
  }
  return blocks_step(*c.executor, body);
}
template <class X>
Step chain_sums_step(const NodeCall<X, double>&, const std::vector<int64_t>&, bool) {
  return {};
}

/// Makes the step of sums under interleaved16; otherwise returns nothing.
template <class X>
Step interleaved_sums_step(const NodeCall<X, float>& c, const std::vector<int64_t>& axes,
                           bool mean) {
  if (!chain_spec(c.sum_spec()).is_interleaved()) return {};
  const Reduction reduction = reduction_over(*c.node, c.in_shape(0), axes);
  // Adjacent outputs read adjacent elements if the last dimension is kept.
  const Strided& kept = reduction.outer;
  const bool beside = kept.rank > 0 && kept.stride[kept.rank - 1] == 1;
  const int64_t neighbours = beside ? int64_t{kept.size[kept.rank - 1]} : 1;
  const LineTeams teams = LineTeams::of(c.out_count(0), reduction.count, neighbours);
  const InterleavedSum body{c.in[0], c.out[0], reduction, {teams, SumWay::interleaved}, mean};
  return blocks_step(*c.executor, body);
}
template <class X>
Step interleaved_sums_step(const NodeCall<X, double>&, const std::vector<int64_t>&, bool) {
  return {};
}

template <class X, class T>
Step sum_step(const NodeCall<X, T>& c, const std::vector<int64_t>& axes, bool mean) {
  if (Step step = chain_sums_step(c, axes, mean)) return step;
  if (!c.last_in(0)) {
    if (Step step = interleaved_sums_step(c, axes, mean)) return step;
  }
  const Reduction reduction = reduction_over(*c.node, c.in_shape(0), axes, c.last_in(0));
  return sums_step(c, c.out_count(0),
                   Sum<T>{c.in[0], c.out[0], reduction, chain_spec(c.sum_spec()), mean},
                   [](Sum<T>& body) -> ChainSpec& { return body.how; });
}

template <class X, class T>
Step cumulative_sum_step(const NodeCall<X, T>& c) {
  const Shape& x = c.in_shape(0);
  const AxisSplit s = split_at(x, axis_attribute(*c.node, x.size()));
  const bool reverse = int_attribute(*c.node, "reverse", 0) != 0;
  const bool exclusive = int_attribute(*c.node, "exclusive", 0) != 0;
  const ChainSpec how = chain_spec(c.sum_spec());
  if (RunningSums<T>::suits(how)) {
    const int64_t lines = s.outer * s.inner,
                  per_block = RunningSums<T>::lines_of_block(lines, s.inner);
    return blocks_step(
        *c.executor,
        RunningSums<T>{c.in[0], c.out[0], lines, s.length, s.inner, per_block,
                       RunningSums<T>::terms_of_piece(per_block), reverse, exclusive, how});
  }
  return sums_step(c, c.out_count(0),
                   CumulativeSum<T>{c.in[0], c.out[0], s.length, s.inner, reverse, exclusive, how},
                   [](CumulativeSum<T>& body) -> ChainSpec& { return body.how; });
}

// A tensor of one pixel has no order of channels, so the other one decides.

template <class X, class T>
Step max_pool_step(const NodeCall<X, T>& c) {
  const auto windows = pool_geometry<Divisor>(*c.node, c.in_shape(0), c.out_shape(0));
  if (c.last_in(0) || c.last_out(0)) {
    const int64_t channels = c.in_shape(0)[1];
    return items_step(*c.executor, c.out_count(0),
                      MaxPoolLast<T>{c.in[0], c.out[0], c.index_out[1], windows, channels});
  }
  return items_step(*c.executor, c.out_count(0),
                    MaxPool<T>{c.in[0], c.out[0], c.index_out[1], windows});
}

template <class X, class T>
Step max_pool_grad_step(const NodeCall<X, T>& c) {
  const auto windows = pool_geometry<Divisor>(*c.node, c.out_shape(0), c.in_shape(0));
  if (c.last_in(0) || c.last_out(0)) {
    const int64_t channels = c.out_shape(0)[1];
    return items_step(*c.executor, c.out_count(0),
                      MaxPoolGradLast<T>{c.in[0], c.index_in[1], c.out[0], windows, channels});
  }
  return items_step(*c.executor, c.out_count(0),
                    MaxPoolGrad<T>{c.in[0], c.index_in[1], c.out[0], windows});
}

template <class X, class T>
Step average_pool_step(const NodeCall<X, T>& c) {
  return sums_step(c, c.out_count(0),
                   AveragePool<T>{c.in[0], c.out[0],
                                  pool_geometry<Divisor>(*c.node, c.in_shape(0), c.out_shape(0)),
                                  chain_spec(c.sum_spec())},
                   [](auto& body) -> ChainSpec& { return body.how; });
}

template <class X, class T>
Step average_pool_grad_step(const NodeCall<X, T>& c) {
  const Windows s = pool_geometry<Divisor>(*c.node, c.out_shape(0), c.in_shape(0));
  const auto every = [](int64_t stride, int64_t dilation) {
    return dilation / std::gcd(stride, dilation);
  };
  return sums_step(c, c.out_count(0),
                   AveragePoolGrad<T>{c.in[0], c.out[0], s, every(s.stride_h, s.dilation_h),
                                      every(s.stride_w, s.dilation_w), chain_spec(c.sum_spec())},
                   [](auto& body) -> ChainSpec& { return body.how; });
}

template <class X, class T>
LossRows<T> loss_rows(const NodeCall<X, T>& c) {
  return {.x = c.in[0],
          .labels = c.index_in[1],
          .rows = c.in_shape(0)[0],
          .classes = c.in_shape(0)[1],
          .ignored = int_attribute(*c.node, "ignore_index", -1),
          .pitch = c.in_pitch(0)};
}

/// Returns the sums of exp over rows of logits.
template <class X, class T>
ExpSums<T> exp_sums_of_rows(const NodeCall<X, T>& c, const LossRows<T>& rows) {
  ExpSums<T> sums = exp_sums(c, AxisLines{rows.rows, rows.classes, 1});
  sums.lines.pitch = rows.pitch;
  return sums;
}

/// Returns whether results of lines of `size` terms can be computed quickly and rounded at once.
template <class X>
bool decides_at_once(const NodeCall<X, float>& c, int64_t size) {
  const FloatFormat format = c.out_format(0);
  return (c.out[0].stores_now() || format == kFp32) && Decision::suits(format, size);
}

/// Returns whether a loss or its gradient uses quick sums over its rows.
template <class X>
bool uses_row_sums(const NodeCall<X, float>& c, const ExpSums<float>& sums) {
  return c.row_sums != nullptr && sums.sums.way == SumWay::wide && LinePacks::suits(sums.lines);
}

/// Adds the step that computes them.
template <class X>
void row_sums_step(const NodeCall<X, float>& c, const LossRows<float>& rows, const LineTeams& teams,
                   std::vector<Step>& steps) {
  if (c.row_sums->are_known) return;
  steps.push_back(blocks_step(*c.executor, QuickRowSums{rows, teams, c.row_sums->sums}));
  c.row_sums->are_known = true;
}

/// Makes the step of a loss in plain steps: a quick one, and an exact one if the result of the
/// quick one is in doubt.
template <class X>
Step quick_loss_step(const NodeCall<X, float>& c, const LossRows<float>& rows,
                     const ExpSums<float>& sums, double* losses) {
  X& executor = *c.executor;
  uint32_t* const doubtful = c.template working_memory<uint32_t>(1);
  std::vector<Step> steps;
  row_sums_step(c, rows, sums.sums.teams, steps);
  MeanLoss<float> mean{rows, losses, c.out[0], false, c.out_format(0)};
  mean.doubtful = doubtful;
  mean.loss_error = error_of_losses(sums.sums.teams);
  steps.push_back(items_step(executor, rows.rows, QuickRowLoss{rows, c.row_sums->sums, losses}));
  steps.push_back(blocks_step(executor, mean));
  mean.doubtful = nullptr;
  mean.only_if = doubtful;
  steps.push_back(blocks_step(executor, RowLoss<float>{rows, sums, losses, doubtful}));
  steps.push_back(blocks_step(executor, mean));
  return in_turn(std::move(steps));
}

template <class X, class T>
Step loss_step(const NodeCall<X, T>& c) {
  const LossRows<T> rows = loss_rows(c);
  const ExpSums<T> sums = exp_sums_of_rows(c, rows);
  double* const losses = c.template working_memory<double>(rows.rows);
  if constexpr (std::is_same_v<T, float>) {
    if (uses_row_sums(c, sums)) return quick_loss_step(c, rows, sums, losses);
  }
  const Step of_rows =
      block_sums_step(c, RowLoss<T>{rows, sums, losses},
                      [](RowLoss<T>& body) -> ChainSpec& { return body.sums.how; });
  const SumWay way = sums.sums.way;
  if (way != SumWay::named) {
    const MeanLoss<T> mean{rows, losses, c.out[0], way == SumWay::interleaved, c.out_format(0)};
    return in_turn({of_rows, blocks_step(*c.executor, mean)});
  }
  float* const counted = c.template working_memory<float>(rows.rows);
  const NamedMeanLoss<T> mean{rows, sums.how, losses, counted, c.out[0], c.out_format(0)};
  return in_turn({of_rows, sums_step(c, 1, mean, [](NamedMeanLoss<T>& body) -> ChainSpec& {
                    return body.how;
                  })});
}

/// Adds steps that count the rows with a label, and returns the counter.
template <class X, class T>
uint64_t* count_rows(const NodeCall<X, T>& c, const LossRows<T>& rows, std::vector<Step>& steps) {
  uint64_t* const count = c.template working_memory<uint64_t>(1);
  steps.push_back(items_step(*c.executor, 1, Fill<uint64_t>{count, 0}));
  steps.push_back(items_step(*c.executor, rows.rows, CountRows<T>{rows, count}));
  return count;
}

template <class X, class T>
Step loss_grad_step(const NodeCall<X, T>& c) {
  const LossRows<T> rows = loss_rows(c);
  double* const scale = c.template working_memory<double>(1);
  std::vector<Step> steps;
  const uint64_t* const count = count_rows(c, rows, steps);
  steps.push_back(items_step(*c.executor, 1, LossScale<T>{count, c.in[2], scale}));
  const ExpSums<T> sums = exp_sums_of_rows(c, rows);
  const LossGrad<T> body{rows, sums, scale, c.out[0], c.out_format(0)};
  if constexpr (std::is_same_v<T, float>) {
    if (uses_row_sums(c, sums) && decides_at_once(c, rows.classes)) {
      row_sums_step(c, rows, sums.sums.teams, steps);
      steps.push_back(blocks_step(*c.executor, QuickLossGrad{body, c.row_sums->sums}));
      return in_turn(std::move(steps));
    }
  }
  steps.push_back(
      block_sums_step(c, body, [](LossGrad<T>& each) -> ChainSpec& { return each.sums.how; }));
  return in_turn(std::move(steps));
}

template <class X, class T>
Step accuracy_step(const NodeCall<X, T>& c) {
  const LossRows<T> rows = loss_rows(c);
  uint64_t* const right = c.template working_memory<uint64_t>(1);
  std::vector<Step> steps;
  const uint64_t* const count = count_rows(c, rows, steps);
  steps.push_back(items_step(*c.executor, 1, Fill<uint64_t>{right, 0}));
  const LineTeams teams = LineTeams::of(rows.rows, rows.classes, 1);
  steps.push_back(blocks_step(*c.executor, RowsRight<T>{rows, teams, right}));
  steps.push_back(items_step(*c.executor, 1, ShareRight<T>{count, right, c.out[0]}));
  return in_turn(std::move(steps));
}

inline Planes planes_of(const Shape& shape) {
  return {.batch = shape[0],
          .channels = shape[1],
          .size = element_count(shape) / std::max<int64_t>(1, shape[0] * shape[1])};
}

template <class X, class T>
Step plane_moment_step(const NodeCall<X, T>& c, const Planes& planes, const double* mean,
                       double* sums) {
  if (c.last_in(0)) {
    return blocks_step(*c.executor, PlaneMomentLast<T>{PackTiles(planes), c.in[0], mean, sums});
  }
  return blocks_step(*c.executor, PlaneMoment<T>{planes, c.in[0], mean, sums});
}

template <class X, class T>
Step normalize_step(const NodeCall<X, T>& c, const Planes& planes, const T* centre,
                    const T* factor) {
  Afterwards<T> then;
  then.last = c.out[0];
  if constexpr (std::is_same_v<T, float>) {
    if (c.then != nullptr) then = *c.then;
  }
  if (c.last_in(0)) {
    const PackItems items(planes);
    return items_step(*c.executor, items.items(),
                      NormalizeLast<T>{items, c.in[0], centre, factor, c.in[2], then});
  }
  return items_step(*c.executor, items_of_several(c.out_count(0)),
                    Normalize<T>{planes, c.in[0], centre, factor, c.in[2], then});
}

template <class X, class T>
Step batch_norm_step(const NodeCall<X, T>& c) {
  const Planes planes = planes_of(c.in_shape(0));
  const SumSpec spec = c.sum_spec();
  const bool named = std::is_same_v<T, float> && names_inner_sums(spec);
  const bool training = c.out.size() > 1;
  const int64_t parts = planes.batch * planes.channels;
  double* const sums = training ? c.template working_memory<double>(parts) : nullptr;
  double* const squares = training ? c.template working_memory<double>(parts) : nullptr;
  double* const mean = training ? c.template working_memory<double>(planes.channels) : nullptr;
  T* const centre = c.template working_memory<T>(planes.channels);
  T* const factor = c.template working_memory<T>(planes.channels);
  ChannelFactors<T> factors{.planes = planes,
                            .x = c.in[0],
                            .scale = c.in[1],
                            .old_mean = c.in[3],
                            .old_var = c.in[4],
                            .batch_mean = mean,
                            .squares = squares,
                            .next_mean = nullptr,
                            .next_var = nullptr,
                            .saved_mean = nullptr,
                            .saved_inverse = nullptr,
                            .mean = centre,
                            .factor = factor,
                            .epsilon = real_attribute(*c.node, "epsilon", 1e-5),
                            .momentum = real_attribute(*c.node, "momentum", 0.9),
                            .unbiased = 1.0,
                            .how = chain_spec(spec),
                            .named = named};
  std::vector<Step> steps;
  if (training) {
    factors.next_mean = c.out[1];
    factors.next_var = c.out[2];
    factors.saved_mean = c.out[3];
    factors.saved_inverse = c.out[4];
    const double n = planes.count();
    if (int_attribute(*c.node, "unbiased", 0) != 0) factors.unbiased = n / (n - 1.0);
    steps.push_back(plane_moment_step(c, planes, nullptr, sums));
    steps.push_back(
        block_sums_step(c, BatchMean<T>{planes, c.in[0], sums, mean, chain_spec(spec), named}));
    steps.push_back(plane_moment_step(c, planes, mean, squares));
  }
  steps.push_back(block_sums_step(c, factors));
  steps.push_back(normalize_step(c, planes, centre, factor));
  return in_turn(std::move(steps));
}

template <class X, class T>
Step batch_norm_grad_step(const NodeCall<X, T>& c) {  // (dy, x, scale, mean, inverse)
  X& executor = *c.executor;
  const Planes planes = planes_of(c.in_shape(0));
  const SumSpec spec = c.sum_spec();
  const int64_t parts = planes.batch * planes.channels;
  double* const first = c.template working_memory<double>(parts);
  double* const second = c.template working_memory<double>(parts);
  T* const memory = c.template working_memory<T>(3 * planes.channels);
  T *const factor = memory, *const share = memory + planes.channels,
           *const slope = memory + 2 * planes.channels;
  const ChannelGrads<T> grads{.planes = planes,
                              .dy = c.in[0],
                              .x = c.in[1],
                              .scale = c.in[2],
                              .mean = c.in[3],
                              .inverse = c.in[4],
                              .first = first,
                              .second = second,
                              .dscale = c.out[1],
                              .dbias = c.out[2],
                              .factor = factor,
                              .share = share,
                              .slope = slope,
                              .how = chain_spec(spec),
                              .named = std::is_same_v<T, float> && names_inner_sums(spec)};
  std::vector<Step> steps;
  if (c.last_in(0)) {
    const PackItems items(planes);
    steps.push_back(blocks_step(executor, PlaneGradSumsLast<T>{PackTiles(planes), c.in[0], c.in[1],
                                                               c.in[3], first, second}));
    steps.push_back(block_sums_step(c, grads));
    steps.push_back(items_step(
        executor, items.items(),
        NormalizeGradLast<T>{items, c.in[0], c.in[1], c.in[3], factor, share, slope, c.out[0]}));
    return in_turn(std::move(steps));
  }
  steps.push_back(
      blocks_step(executor, PlaneGradSums<T>{planes, c.in[0], c.in[1], c.in[3], first, second}));
  steps.push_back(block_sums_step(c, grads));
  steps.push_back(items_step(
      executor, items_of_several(c.out_count(0)),
      NormalizeGrad<T>{planes, c.in[0], c.in[1], c.in[3], factor, share, slope, c.out[0]}));
  return in_turn(std::move(steps));
}

template <class X, class T>
Step extreme_step(const NodeCall<X, T>& c, bool least) {
  return items_step(*c.executor, c.out_count(0),
                    Extreme<T>{c.in[0], c.out[0], reduction_of(*c.node, c.in_shape(0)), least});
}

template <class X, class T>
Step mean_grad_step(const NodeCall<X, T>& c) {
  if (c.last_out(0)) {
    const Shape& x = c.out_shape(0);
    const int64_t pixels = x[2] * x[3];
    return items_step(*c.executor, c.out_count(0),
                      MeanGradLast<T>{c.in[0], c.out[0], x[1], x[1] * pixels, pixels});
  }
  return items_step(*c.executor, c.out_count(0),
                    MeanGrad<T>{c.in[0], c.out[0], reduction_of(*c.node, c.out_shape(0))});
}

template <class X, class T>
Step max_grad_step(const NodeCall<X, T>& c) {  // (dy, x, y), dy and y with kept axes
  return items_step(
      *c.executor, c.in_count(2),
      MaxGrad<T>{c.in[0], c.in[1], c.in[2], c.out[0], reduction_of(*c.node, c.in_shape(1))});
}

template <class X, class T>
Step reduction_step(const NodeCall<X, T>& call) {
  using Call = NodeCall<X, T>;
  static constexpr StepRow<X, T> kRows[] = {
      {"ReduceSum", [](const Call& c) { return sum_step(c, reduced_axes(c), false); }},
      {"ReduceMean", [](const Call& c) { return sum_step(c, reduced_axes(c), true); }},
      {"GlobalAveragePool",
       [](const Call& c) { return sum_step(c, pixel_axes(c.in_shape(0)), true); }},
      {"ReduceMeanGrad", mean_grad_step<X, T>},
      {"ReduceMax", [](const Call& c) { return extreme_step(c, false); }},
      {"ReduceMin", [](const Call& c) { return extreme_step(c, true); }},
      {"ReduceMaxGrad", max_grad_step<X, T>},
      {"CumSum", cumulative_sum_step<X, T>},
      {"MaxPool", max_pool_step<X, T>},
      {"MaxPoolGrad", max_pool_grad_step<X, T>},
      {"AveragePool", average_pool_step<X, T>},
      {"AveragePoolGrad", average_pool_grad_step<X, T>},
      {"SoftmaxCrossEntropyLoss", loss_step<X, T>},
      {"SoftmaxCrossEntropyLossGrad", loss_grad_step<X, T>},
      {"Accuracy", accuracy_step<X, T>},
      {"BatchNormalization", batch_norm_step<X, T>},
      {"BatchNormalizationGrad", batch_norm_grad_step<X, T>},
  };
  return step_from(kRows, call);
}

}  // namespace halfscope::gpu
