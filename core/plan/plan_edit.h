// SPDX-License-Identifier: MIT
// PlanEdit: a change of a lane's settings as one value. Rules recommend it, a search tests it part
// by part, the viewer collects it from clicks, and apply() turns it into a plan.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/plan/causes.h"
#include "core/plan/plan.h"

namespace halfscope {

/// One part of an edit. The meaning of `path` and `value` depends on the kind:
///
///   operator_fp32         a node: its operands, its accumulation and its outputs
///   store_fp32            a node: its outputs only
///   accumulate_fp32       a node: its accumulation
///   constant              a node: its constants become numbers that its read format can represent
///   clamp                 a node: outputs beyond the range of their format become its largest
///   prescale              a node: its outputs are stored times the power of two `value`
///   keep_integer          a node and `nodes`, which compute its operands: all of them in fp32
///   stochastic_rounding   the lane; `text` says for what: "weights" or "gradients"
///   scale_round_up, weights_fp32, state_fp32, update_fp32, average_fp32, gradient_sum_fp32,
///   clip_fp32, schedule_fp32, buffers_on_step
///                         the lane: no path
///   amax_floor            the lane: its unguarded scales; `value` is the floor, 0 for 1e-12
///   loss_scale            the lane; `value` is a static scale, which is not part of plans
///   reduce_order, reduce_fp32, config
///                         the lane; `text` is how ranks reduce: "ring:format=fp32"
///   format                the lane; `text` is the format that replaces those with fewer bits than
///                         fp32
///
/// Edits of other kinds describe what to do and change no plan.
struct Change {
  FixKind kind = FixKind::other;
  std::string path{};
  double value = 0.0;
  std::string text{};
  std::vector<std::string> nodes{};

  friend bool operator==(const Change&, const Change&) = default;

  /// Returns whether testing it would change anything.
  bool can_be_tried() const noexcept;
  /// Returns its name in run files and reports: "conv2" (operator_fp32), "store_fp32 conv2",
  /// "variables.storage" (weights_fp32), "loss_scale" ...
  std::string name() const;
};

/// The default of amax_floor: the lower bound of torchao, the Transformer Engine and others.
inline constexpr double kUsualAmaxFloor = 1e-12;

struct PlanEdit {
  std::vector<Change> changes{};  ///< no two alike

  friend bool operator==(const PlanEdit&, const PlanEdit&) = default;

  static PlanEdit of(FixKind kind, std::string path = {});
  /// Returns the edit that computes these nodes in fp32.
  static PlanEdit in_fp32(std::vector<std::string> layers);
  static PlanEdit with_loss_scale(double scale);
  /// Returns the edit that changes the reduction over ranks.
  static PlanEdit with_reduction(FixKind kind, const Reduction& how);

  bool empty() const noexcept { return changes.empty(); }
  /// Returns whether apply() changes anything.
  bool changes_plan() const noexcept;
  bool has(FixKind kind) const noexcept;
  bool keeps(const std::string& layer) const noexcept;
  /// Returns the nodes to compute in fp32.
  std::vector<std::string> fp32_layers() const;
  std::optional<double> loss_scale() const noexcept;
  std::optional<Reduction> reduction() const;
  /// Returns the change that sets the reduction.
  std::optional<Change> reduction_change() const;

  /// Adds or removes a layer.
  void keep(const std::string& layer, bool in_fp32);
  /// Adds or removes a change of the whole lane.
  void set(FixKind kind, bool on);
  void set_loss_scale(std::optional<double> scale);
  /// Adds the changes of `other`. A loss scale or reduction that is already set stays.
  void add(const PlanEdit& other);
  void add(const Change& change);

  /// Returns the plan with these changes, which take precedence over all its rules.
  Plan apply(Plan plan) const;

  /// Returns the parts that can be tested one by one. Buffers are not a part, because no training
  /// loss depends on them.
  std::vector<PlanEdit> members() const;
  PlanEdit without(const PlanEdit& member) const;
  /// Returns the name of a member's change.
  std::string member_name() const;
};

}  // namespace halfscope
