// SPDX-License-Identifier: MIT
// Plan: in which format every operator reads, accumulates and writes, and how variables are
// stored. A plan is a default and a list of rules that select nodes by path glob or operator, so
// it applies to any model and diffs well. docs/contracts.md describes the JSON form.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"

namespace halfscope {

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
  BufferCommit buffers = BufferCommit::on_step;
  /// Of moving averages of the variables (TrainingSpec::average): what they are kept in, by default
  /// the variable's format, and what each operation on them is rounded to.
  std::optional<FloatFormat> average = std::nullopt;
  FloatFormat average_compute = kFp32;
  FloatFormat update_compute = kFp32;  ///< what each operation of the optimizer is rounded to
  /// Gradients are unscaled, their norm taken and clipped in this format; in fp32 the norm is taken
  /// in double. `clip_stagewise`: squares and sums are rounded, too.
  FloatFormat clip = kFp32;
  bool clip_stagewise = false;
  std::vector<PlanRule> rules;
  /// Computes in double throughout, without rounding or taps; the reference "float64".
  bool double_precision = false;
};

/// "float32", "float64", "mixed_float16", "mixed_bfloat16", "float16", "bfloat16", and recipes of
/// fp8 and fp4 training (docs/contracts.md, "Presets").
std::vector<std::string> preset_names();
std::optional<Plan> preset_plan(std::string_view name);

/// A preset, or else a JSON file. Throws Error (usage) that lists the presets.
Plan load_plan(const std::string& name_or_file);

/// Throws Error (usage) naming the key that is unknown, missing or has a bad value.
Plan plan_from_json(std::string_view text);
/// Stable: the same plan gives the same text, two-space indented.
std::string plan_to_json(const Plan& plan);

/// What to write instead of a text that is no format, no scale, or no accumulation.
std::string format_hint(const std::string& text);
std::string scale_hint(const std::string& text);
std::string accumulation_hint(const std::string& text);

/// Adds a rule that keeps the nodes matching `glob` in fp32. Throws Error (usage) if it is empty.
void keep_fp32(Plan& plan, const std::string& glob);

/// Sets the accumulation of all nodes, whatever the plan said before.
void accumulate_in(Plan& plan, Accumulation accumulation);

/// True if the plan rounds nothing below fp32, so that its lane can serve as a reference.
bool is_full_precision(const Plan& plan);

/// What the rules say of a node (format "follow" is settled by lower(), which knows the inputs).
NodePlan resolve(const Plan& plan, const std::string& path, const std::string& op);

/// True if any format in the plan has fewer than 8 exponent bits, so that gradients can
/// underflow and loss scaling makes sense. Operands with scales of their own do not count.
bool needs_loss_scaling(const Plan& plan);

/// `*` matches any text, `?` one character; a backslash takes the next character as it is.
bool glob_match(std::string_view glob, std::string_view text) noexcept;
/// The glob that matches this path and no other.
std::string exact_glob(std::string_view path);

}  // namespace halfscope
