// SPDX-License-Identifier: MIT
// lower(): source graph + plan + optimizer -> executable graph of one lane.
//
//   source graph --expand stagewise composites, and those without a kernel--> primitives
//     --add them again with batch normalizations as in inference, if there are any: for eval-->
//     --settle the forward formats--> --differentiate--> --output ranges (result_range.h)-->
//     --sums of micro-batches, norm, updates-->
//     --a Cast or scaled codes where an operand is read narrower than it is stored (narrow.h)-->
//     entry points, taps, layer table
//
// lower_inference() is the same flow without what only training needs.
//
// A buffer (running mean) that commits with the step has a working copy. `begin` sets it to the
// buffer, every micro-batch of `grad` updates it, and `update` makes it the buffer's next value. A
// skipped step runs no update, so it leaves no trace.
//
// Formats of gradients: the gradient that a node computes for its input v is written in v's format
// if the node reads v in a format that represents all of v's values (so it is rounded once).
// Otherwise it is written in the node's read format, as frameworks do. Products of scaled operands
// write gradients in their write format, because their read format is that of the codes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/graph/model.h"
#include "core/lower/optimizer.h"
#include "core/lower/step_scalar.h"
#include "core/lower/weight_average.h"
#include "core/numeric/sums/reduction.h"
#include "core/plan/plan.h"

namespace halfscope {

/// Entry points, in the order of a step: begin, (grad, accumulate) per micro-batch, norm, then
/// update unless the step is skipped.
enum class Entry : uint8_t {
  begin,       ///< sets working copies of buffers; may be empty
  grad,        ///< forward and backward
  accumulate,  ///< adds the gradients to the step's sums; empty without micro-batches and ranks
  norm,        ///< reduces the ranks' gradients; sum of squares of the step's gradients
  update,      ///< optimizer and buffers
  eval,        ///< loss and accuracy as in inference; the only entry of an inference executable
};
inline constexpr size_t kEntryCount = 6;

/// Everything that a training step adds to the network.
struct TrainingSpec {
  Optimizer optimizer;
  int64_t micro_batches = 1;
  /// Format in which the gradients of micro-batches are summed; by default the variable's.
  std::optional<FloatFormat> sum_format = std::nullopt;
  /// Format in which the optimizer stores its state; by default the variable's.
  std::optional<FloatFormat> state_format = std::nullopt;
  /// Moving averages of the trained variables; buffers have none.
  std::optional<WeightAverage> average = std::nullopt;
  bool clips = false;  ///< gradients are clipped by their norm
  /// Gradients are divided by the loss scale before anything else, instead of multiplied by its
  /// inverse (Keras 3). Executable::inverse_scale is then the scale itself.
  bool divides_by_scale = false;
  /// Data-parallel ranks, each with its own micro-batches, and how their gradients are reduced. A
  /// plan's reduction takes precedence.
  int64_t ranks = 1;
  Reduction reduction{};
  /// The ranks are processes: the graph has one rank's gradients, and gets their means from
  /// outside.
  bool exchanged = false;
  std::vector<ParameterGroup> groups{};      ///< of variables, with other settings of the optimizer
  std::vector<ScheduledOption> scheduled{};  ///< options that change by step
  bool scores = false;                       ///< the caller reads the scores of evaluations
};

/// The learning rate of variables whose group has a rate of its own.
struct GroupRate {
  double rate = 0.0;                  ///< ParameterGroup::learning_rate
  ValueId value = kNone;              ///< written by the caller, as Executable::learning_rate
  std::optional<size_t> scheduled{};  ///< place in TrainingSpec::scheduled of the option it follows
};

/// A scalar that the caller writes before each update.
struct StepInput {
  StepScalar scalar;
  ValueId value = kNone;
  /// Place in TrainingSpec::scheduled of the option that is its parameter, if that changes by step.
  std::optional<size_t> scheduled{};
};

/// One variable's gradients on all ranks, and their reduction.
struct ReducedGradient {
  std::string variable;   ///< its path
  ValueId stack = kNone;  ///< [ranks, ...], a variable; [1, ...] if ranks exchange gradients
  ValueId reduced = kNone;
  /// If ranks exchange gradients: a variable [1, ...] that gets their mean before it is stored.
  ValueId mean = kNone;
};

/// A variable that stores the moving average of another one.
struct AveragedVariable {
  std::string path;  ///< path of the variable that is averaged
  ValueId variable = kNone, average = kNone;
};

/// A value to be measured, and its site.
struct Tap {
  ValueId value = kNone;
  SiteInfo site;
};

struct Executable {
  Graph graph;
  std::array<std::vector<NodeId>, kEntryCount> entries;  ///< nodes in execution order
  std::vector<Tap> taps;                                 ///< taps[i].site.order == i
  std::vector<LayerInfo> layers;
  std::vector<AveragedVariable> averages;  ///< from TrainingSpec::average
  /// The entry that begins the forward pass; it measures values that no node computes.
  Entry forward = Entry::grad;

  // Written by the caller.
  std::vector<NamedValue> inputs;         ///< inputs of the network and its loss that are used
  ValueId input = kNone, labels = kNone;  ///< two of `inputs`
  int32_t ignored_label = kIgnoredLabel;  ///< Model::ignored_label
  ValueId loss_scale = kNone, inverse_scale = kNone, learning_rate = kNone;
  std::vector<GroupRate> group_rates;
  ValueId clip = kNone;  ///< factor on unscaled gradients, 1 without clipping
  /// The largest norm, where the graph itself computes that factor in a format of the plan.
  ValueId clip_limit = kNone;
  std::vector<StepInput> step_scalars;  ///< each once
  ValueId keep_sum = kNone;             ///< 0 for the first micro-batch of a step, otherwise 1
  // Several ranks: the one that computes, and those whose gradients are summed (one flag per rank).
  ValueId rank = kNone, rank_takes_part = kNone;
  // Read by the caller; accuracies are missing if there are no logits.
  std::vector<NamedValue> outputs;  ///< of inference; of evaluations only without logits
  ValueId loss = kNone, accuracy = kNone, logits = kNone;
  ValueId eval_loss = kNone, eval_accuracy = kNone;
  /// With TrainingSpec::scores: scores that evaluations compare with `labels` or, of a binary
  /// cross-entropy, with the input `eval_targets`.
  ValueId eval_logits = kNone, eval_targets = kNone;
  ValueId gradient_norm = kNone;  ///< sum of squares of all (scaled) weight gradients
  ValueId rank_norm = kNone;      ///< finite exactly if one rank's gradients are

  int64_t ranks = 1;
  Reduction reduction{};          ///< for several ranks
  bool exchanged = false;         ///< as in TrainingSpec
  bool double_precision = false;  ///< of the plan: backends in double run it
  std::vector<ReducedGradient> reduced;

  const std::vector<NodeId>& entry(Entry which) const {
    return entries[static_cast<size_t>(which)];
  }
  /// Returns the shapes of `outputs` by name.
  std::map<std::string, Shape> output_shapes() const;
};

/// Lowers a model for training. Throws Error (usage) if a path of the plan matches no node, Error
/// if the model has no loss or none that depends on a variable. Variables that the loss does not
/// depend on stay unchanged.
Executable lower(const Model& model, const Plan& plan, const TrainingSpec& spec);

/// Lowers the forward pass alone, with batch normalizations as in inference. `eval` computes the
/// model's outputs, and all its tensors have taps. Nodes that only the loss needs are left out.
/// Delayed scales advance with every run of `eval`. Throws Error (usage) for a path of the plan
/// that matches no node, Error if the model has no outputs.
Executable lower_inference(const Model& model, const Plan& plan);

}  // namespace halfscope
