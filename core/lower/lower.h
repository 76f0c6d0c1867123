// SPDX-License-Identifier: MIT
// lower(): source graph + plan + optimizer -> executable graph of one lane.
//
//   source graph --expand stagewise composites, and those without a kernel--> primitives
//     --once more with batch normalizations as in inference, where there are any: for eval-->
//     --settle the forward formats--> --differentiate--> --ranges of results (result_range.h)-->
//     --sums of micro-batches, norm, updates-->
//     --a Cast or scaled codes where an operand is read narrower than it is stored (narrow.h)-->
//     entry points, taps, layer table
//
// lower_inference() is the same flow without what only training needs.
//
// A buffer (running mean) that commits with the step has a working copy: `begin` sets it to the
// buffer, every micro-batch of `grad` moves it on, `update` makes it the buffer's next value. A
// skipped step runs no update, so it leaves no trace.
//
// Formats of gradients: the gradient that a node makes for its input v is written in v's format
// where the node reads v in a format that holds all of v's values (so it is rounded once), else
// in the node's read format, as frameworks deliver it. Products of scaled operands deliver
// gradients in their write format in place of the read one, which is that of the codes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/graph/model.h"
#include "core/lower/optimizer.h"
#include "core/lower/weight_average.h"
#include "core/numeric/sums/reduction.h"
#include "core/plan/plan.h"

namespace halfscope {

/// In the order of a step: begin, (grad, accumulate) per micro-batch, norm, update unless skipped.
enum class Entry : uint8_t {
  begin,       ///< working copies of buffers; may be empty
  grad,        ///< forward and backward
  accumulate,  ///< adds the gradients to the step's sums; empty without micro-batches and ranks
  norm,        ///< the ranks' gradients become one; sum of squares of the step's gradients
  update,      ///< optimizer and buffers
  eval,        ///< loss and accuracy as in inference; of an executable for inference all there is
};
inline constexpr size_t kEntryCount = 6;

/// What a step adds to the network.
struct TrainingSpec {
  Optimizer optimizer;
  int64_t micro_batches = 1;
  /// Format in which the gradients of micro-batches are summed; by default that of the variable.
  std::optional<FloatFormat> sum_format = std::nullopt;
  /// Format in which the optimizer keeps its state; by default that of the variable.
  std::optional<FloatFormat> state_format = std::nullopt;
  /// Moving averages of the trained variables; buffers have none.
  std::optional<WeightAverage> average = std::nullopt;
  bool clips = false;  ///< gradients are clipped by their norm
  /// Data-parallel ranks, each with its own micro-batches, and how their gradients become one; a
  /// plan that says how wins.
  int64_t ranks = 1;
  Reduction reduction{};
};

/// Of one of several ranks: a variable's gradients on all of them, and what is made of these.
struct ReducedGradient {
  std::string variable;   ///< its path
  ValueId stack = kNone;  ///< [ranks, ...], a variable
  ValueId reduced = kNone;
};

/// A variable that keeps the moving average of another.
struct AveragedVariable {
  std::string path;  ///< of the variable that is averaged
  ValueId variable = kNone, average = kNone;
};

/// A value to be measured, and the site it is.
struct Tap {
  ValueId value = kNone;
  SiteInfo site;
};

struct Executable {
  Graph graph;
  std::array<std::vector<NodeId>, kEntryCount> entries;  ///< nodes in execution order
  std::vector<Tap> taps;                                 ///< taps[i].site.order == i
  std::vector<LayerInfo> layers;
  std::vector<AveragedVariable> averages;  ///< of TrainingSpec::average
  /// The entry that begins the forward pass: values that no node makes are measured in it.
  Entry forward = Entry::grad;

  // Written by the caller.
  std::vector<NamedValue> inputs;         ///< of the network and its loss, as far as they are used
  ValueId input = kNone, labels = kNone;  ///< two of them
  ValueId loss_scale = kNone, inverse_scale = kNone, learning_rate = kNone;
  ValueId clip = kNone;  ///< factor on unscaled gradients, 1 without clipping
  /// Where the graph itself finds that factor, in a format of the plan: the largest norm.
  ValueId clip_limit = kNone;
  ValueId correction_1 = kNone, correction_2 = kNone;  ///< Adam's 1 - beta^t
  ValueId keep_sum = kNone;  ///< 0 for the first micro-batch of a step, else 1
  // Of several ranks: which one computes, and whose gradients are summed (one flag per rank).
  ValueId rank = kNone, rank_takes_part = kNone;
  // Read by the caller; accuracies are missing where there are no logits.
  std::vector<NamedValue> outputs;  ///< for inference
  ValueId loss = kNone, accuracy = kNone, logits = kNone;
  ValueId eval_loss = kNone, eval_accuracy = kNone;
  ValueId gradient_norm = kNone;  ///< sum of squares of all (scaled) weight gradients
  ValueId rank_norm = kNone;      ///< the same of the gradients of one of several ranks

  int64_t ranks = 1;
  Reduction reduction{};  ///< of several ranks
  std::vector<ReducedGradient> reduced;

  const std::vector<NodeId>& entry(Entry which) const {
    return entries[static_cast<size_t>(which)];
  }
};

/// Throws Error (usage) if a path of the plan matches no node, Error if the model has no loss or
/// none that depends on a variable. Variables that the loss does not depend on stay as they are.
Executable lower(const Model& model, const Plan& plan, const TrainingSpec& spec);

/// The forward pass alone, with batch normalizations as in inference: `eval` computes the model's
/// outputs, and the taps are those of all its tensors. What only the loss needs is left out.
/// Delayed scales move on with every run of `eval`. Throws Error (usage) for a path of the plan
/// that matches no node, Error if the model has no outputs.
Executable lower_inference(const Model& model, const Plan& plan);

}  // namespace halfscope
