// SPDX-License-Identifier: MIT
// Plan: in which format every operator reads, accumulates and writes, and how variables are
// stored. A plan is a default and a list of rules that select nodes by path glob or operator, so
// it applies to any model and diffs well. docs/contracts.md describes the JSON form.
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

/// How one node computes; see docs/contracts.md, "Plan JSON".
struct NodePlan {
  FloatFormat read = kFp32;
  FloatFormat write = kFp32;
  Accumulation accumulation = Accumulation::fp32;
  RoundingChoice rounding{};  ///< of results, and of operands that are narrowed for the node
  /// Of products: how operands that are narrowed for them are scaled.
  TensorScale scale{};
  /// Of products in the backward pass: the format and the rounding of the gradient among their
  /// operands, where that is another than of all operands.
  std::optional<FloatFormat> grad_read = std::nullopt;
  std::optional<RoundingChoice> grad_rounding = std::nullopt;
  bool stagewise = false;
  bool follows = false;  ///< read and write are the widest format among the inputs
  /// Constants that are narrowed for the node and are too large or too small for its read format
  /// become the format's largest or smallest normal number, with their sign.
  bool constants_in_range = false;
  /// Results beyond the range of `write`, and infinities, become its largest number.
  bool clamps = false;
  /// Results are kept times 2^prescale, and whoever reads them undoes it; see moved_range().
  int prescale = 0;
};

/// Exponents that a plan can name.
inline constexpr int kLargestPrescale = 100;

/// The format with its range moved, so that x in it is x * 2^by in `format`: the same significands
/// over other exponents. Nothing if fp32 could not hold its values.
std::optional<FloatFormat> moved_range(const FloatFormat& format, int by) noexcept;

/// One rule. What is not set is left as earlier rules have it.
struct PlanRule {
  std::string path;  ///< glob over node paths; "" matches all
  std::string op;    ///< operator name; "" matches all
  std::optional<FloatFormat> read = std::nullopt, write = std::nullopt;
  bool follow = false;  ///< read and write are the widest format among the inputs
  std::optional<Accumulation> accumulation = std::nullopt;
  std::optional<RoundingChoice> rounding = std::nullopt;
  std::optional<TensorScale> scale = std::nullopt;
  /// A rule that sets `read` without `grad_read` sets both.
  std::optional<FloatFormat> grad_read = std::nullopt;
  /// A rule that sets `rounding` without `grad_rounding` sets both.
  std::optional<RoundingChoice> grad_rounding = std::nullopt;
  std::optional<bool> stagewise = std::nullopt;
  std::optional<bool> constants_in_range = std::nullopt;
  std::optional<bool> clamps = std::nullopt;
  std::optional<int> prescale = std::nullopt;

  friend bool operator==(const PlanRule&, const PlanRule&) = default;
};

/// When the forward pass's own variables (running means) take their new values.
enum class BufferCommit : uint8_t {
  on_step,  ///< with the update; a skipped step leaves them alone
  always,   ///< in the forward pass itself, as frameworks do, whether the step is skipped or not
};

struct Plan {
  std::string name = "float32";
  NodePlan defaults;
  FloatFormat storage = kFp32;        ///< of variables and optimizer state
  RoundingChoice storage_rounding{};  ///< of their new values
  /// Of the optimizer's state, and of sums of gradients over micro-batches. What is not set here is
  /// as the training says, and by default the variable's format.
  std::optional<FloatFormat> state = std::nullopt, gradient_sum = std::nullopt;
  BufferCommit buffers = BufferCommit::on_step;
  /// Of moving averages of the variables (TrainingSpec::average): what they are kept in, by default
  /// the variable's format, and what each operation on them is rounded to.
  std::optional<FloatFormat> average = std::nullopt;
  FloatFormat average_compute = kFp32;
  FloatFormat update_compute = kFp32;  ///< what each operation of the optimizer is rounded to
  FloatFormat schedule = kFp32;        ///< that the learning rate is computed in
  /// Gradients are unscaled, their norm taken and clipped in this format; in fp32 the norm is taken
  /// in double. `clip_stagewise`: squares and sums are rounded, too.
  FloatFormat clip = kFp32;
  bool clip_stagewise = false;
  /// How the gradients of data-parallel ranks become one, in place of what the training says.
  std::optional<Reduction> reduction = std::nullopt;
  std::vector<PlanRule> rules;
  /// Computes in double throughout, without rounding or taps; the reference "float64".
  bool double_precision = false;
};

/// Adds a rule that keeps the nodes matching `glob` in fp32. Throws Error (usage) if it is empty.
void keep_fp32(Plan& plan, const std::string& glob);

/// Sets the accumulation of all nodes, whatever the plan said before.
void accumulate_in(Plan& plan, Accumulation accumulation);

/// True if the plan rounds nothing below fp32, so that its lane can serve as a reference.
bool is_full_precision(const Plan& plan);

/// Returns the plan of the reference that lanes of `plan` are judged by: float32 throughout, with
/// composites taken apart where `plan` takes them apart, so that both lanes have the same tensors.
Plan reference_of(const Plan& plan);

/// What the rules say of a node (format "follow" is settled by lower(), which knows the inputs).
NodePlan resolve(const Plan& plan, const std::string& path, const std::string& op);

/// `*` matches any text, `?` one character; a backslash takes the next character as it is.
bool glob_match(std::string_view glob, std::string_view text) noexcept;
/// The glob that matches this path and no other.
std::string exact_glob(std::string_view path);

}  // namespace halfscope
