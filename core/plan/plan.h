// SPDX-License-Identifier: MIT
// Plan: the formats in which every operator reads, accumulates and writes, and in which variables
// are stored. A plan is a default and a list of rules that select nodes by path glob or operator,
// so it applies to any model and diffs well. docs/reference/plans.md describes the JSON form.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/rounding.h"
#include "core/numeric/scaling/tensor_scale.h"
#include "core/numeric/sums/accumulation.h"
#include "core/numeric/sums/reduction.h"

namespace halfscope {

/// The arithmetic of one node; see docs/reference/plans.md, "Plan JSON".
struct NodePlan {
  FloatFormat read = kFp32;
  FloatFormat write = kFp32;
  Accumulation accumulation = Accumulation::fp32;
  RoundingChoice rounding{};  ///< for outputs, and for operands that are narrowed for the node
  /// Products: how narrowed operands are scaled, and the second one if it differs.
  TensorScale scale{};
  std::optional<TensorScale> second_scale = std::nullopt;
  /// Products in the backward pass: format and rounding of the gradient operand, if different from
  /// the other operand's.
  std::optional<FloatFormat> grad_read = std::nullopt;
  std::optional<RoundingChoice> grad_rounding = std::nullopt;
  bool stagewise = false;
  bool follows = false;  ///< read and write are the input format with the most precision
  /// With `follows`: products refuse operands of different formats instead of widening them.
  bool same_formats = false;
  /// Weights that the operator reads as they are stored (scales and shifts of normalizations,
  /// slopes) are read in `read`, too: copies of master weights in that format.
  bool rounds_weights = false;
  /// Constants that are too large or too small for the read format become its largest or smallest
  /// normal number, with their sign.
  bool constants_in_range = false;
  /// Outputs beyond the range of `write`, and infinities, become its largest number.
  bool clamps = false;
  /// Outputs are stored multiplied by 2^prescale, and every reader undoes it; see moved_range().
  int prescale = 0;
};

/// Largest absolute value of `prescale`.
inline constexpr int kLargestPrescale = 100;

/// Returns the format with its range moved, in which the value stored for x is x * 2^by in
/// `format`: the same significands with other exponents. Returns nothing if fp32 could not
/// represent its values.
std::optional<FloatFormat> moved_range(const FloatFormat& format, int by) noexcept;

/// One rule. Settings without a value keep what earlier rules say.
struct PlanRule {
  std::string path;  ///< glob over node paths; "" matches all
  std::string op;    ///< operator name; "" matches all
  std::optional<FloatFormat> read = std::nullopt, write = std::nullopt;
  bool follow = false;  ///< read and write are the input format with the most precision
  /// With `follow`: as where PyTorch's autocast is off; products need operands of one format.
  bool same_formats = false;
  std::optional<Accumulation> accumulation = std::nullopt;
  std::optional<RoundingChoice> rounding = std::nullopt;
  std::optional<TensorScale> scale = std::nullopt;
  /// For products in inference. A rule that sets `scale` without it sets both.
  std::optional<TensorScale> second_scale = std::nullopt;
  /// A rule that sets `read` without `grad_read` sets both.
  std::optional<FloatFormat> grad_read = std::nullopt;
  /// A rule that sets `rounding` without `grad_rounding` sets both.
  std::optional<RoundingChoice> grad_rounding = std::nullopt;
  std::optional<bool> stagewise = std::nullopt;
  std::optional<bool> rounds_weights = std::nullopt;
  std::optional<bool> constants_in_range = std::nullopt;
  std::optional<bool> clamps = std::nullopt;
  std::optional<int> prescale = std::nullopt;
  /// For people: what decided this rule, and what would change it. No effect on the arithmetic.
  std::string why{}, change{};

  friend bool operator==(const PlanRule&, const PlanRule&) = default;
};

/// When the variables that the forward pass updates (running means) take their new values.
enum class BufferCommit : uint8_t {
  on_step,  ///< with the update; a skipped step does not change them
  always,   ///< in the forward pass, as frameworks do, even if the step is skipped
};

struct Plan {
  std::string name = "float32";
  NodePlan defaults;
  /// As in PlanRule, for nodes that no rule gives a format.
  std::string why{}, change{};
  FloatFormat storage = kFp32;        ///< for variables and optimizer state
  RoundingChoice storage_rounding{};  ///< for their new values
  /// Initial values of variables and buffers are rounded to it once, as by model.half().
  std::optional<FloatFormat> initial = std::nullopt;
  /// Formats of the optimizer's state, and of gradient sums over micro-batches. If not set here,
  /// the training settings decide; their default is the variable's format.
  std::optional<FloatFormat> state = std::nullopt, gradient_sum = std::nullopt;
  BufferCommit buffers = BufferCommit::on_step;
  /// Moving averages of the variables (TrainingSpec::average): their storage format (default: the
  /// variable's format), and the format to which each operation on them is rounded.
  std::optional<FloatFormat> average = std::nullopt;
  FloatFormat average_compute = kFp32;
  FloatFormat update_compute = kFp32;  ///< each operation of the optimizer is rounded to it
  FloatFormat schedule = kFp32;        ///< the learning rate is computed in it
  /// Format in which gradients are unscaled, their norm computed and clipped. In fp32 the norm is
  /// computed in double. `clip_stagewise`: squares and sums are rounded, too.
  FloatFormat clip = kFp32;
  bool clip_stagewise = false;
  /// Reduction of the gradients of data-parallel ranks, in place of the training's setting.
  std::optional<Reduction> reduction = std::nullopt;
  /// Chains of element-wise operators round once, at their end (core/lower/fused_chains.h).
  bool fuses = false;
  std::vector<PlanRule> rules;
  /// Computes everything in double, without rounding or taps; the reference "float64".
  bool double_precision = false;
};

/// Adds a rule that keeps the nodes matching `glob` in fp32. Throws Error (usage) if it is empty.
void keep_fp32(Plan& plan, const std::string& glob);

/// Sets the accumulation of all nodes, overriding what the plan said before.
void accumulate_in(Plan& plan, Accumulation accumulation);

/// Returns whether the plan rounds nothing to less than fp32, so that its lane can be a reference.
bool is_full_precision(const Plan& plan);

/// Returns the plan of the reference with which lanes of `plan` are compared: float32 throughout.
/// Composites are expanded where `plan` expands them, so that both lanes have the same tensors.
Plan reference_of(const Plan& plan);

/// Returns what the rules say about a node. lower() resolves the format "follow", because it knows
/// the inputs.
NodePlan resolve(const Plan& plan, const std::string& path, const std::string& op);

/// Returns whether `glob` matches. `*` matches any text, `?` one character; a backslash makes the
/// next character literal.
bool glob_match(std::string_view glob, std::string_view text) noexcept;
/// Returns the glob that matches this path and no other.
std::string exact_glob(std::string_view path);

}  // namespace halfscope
