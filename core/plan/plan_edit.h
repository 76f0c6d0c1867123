// SPDX-License-Identifier: MIT
// PlanEdit: a change of a lane's set-up as one value. Rules advise it, a search tries it part by
// part, the viewer collects it from clicks, and apply() makes a plan of it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/plan/causes.h"
#include "core/plan/plan.h"

namespace halfscope {

/// One part of an edit. What `path` and `value` mean depends on the kind:
///
///   operator_fp32         a node: what it reads, what it sums in, and its results
///   store_fp32            a node: its results alone
///   accumulate_fp32       a node: what it sums in
///   constant              a node: its constants become numbers that the format it reads has
///   clamp                 a node: results beyond the range of their format become its largest
///   prescale              a node: its results are kept times the power of two `value`
///   keep_integer          a node and `nodes`, which compute its operands: all of them in fp32
///   stochastic_rounding   the lane; `text` says of what: "weights" or "gradients"
///   scale_round_up, weights_fp32, state_fp32, update_fp32, average_fp32, gradient_sum_fp32,
///   clip_fp32, schedule_fp32, buffers_on_step
///                         the lane: no path
///   amax_floor            the lane: its unguarded scales; `value` is the floor, 0 for 1e-12
///   loss_scale            the lane; `value` is a static scale, which no plan holds
///   reduce_order, reduce_fp32, config
///                         the lane; `text` is how ranks reduce: "ring:format=fp32"
///   format                the lane; `text` is the format in place of those with fewer bits than
///                         fp32
///
/// Edits of other kinds say what to do and change no plan.
struct Change {
  FixKind kind = FixKind::other;
  std::string path{};
  double value = 0.0;
  std::string text{};
  std::vector<std::string> nodes{};

  friend bool operator==(const Change&, const Change&) = default;

  /// Whether trying it changes anything.
  bool can_be_tried() const noexcept;
  /// As run files and reports name it: "conv2" (operator_fp32), "store_fp32 conv2",
  /// "variables.storage" (weights_fp32), "loss_scale" ...
  std::string name() const;
};

/// The lower bound of torchao, the Transformer Engine and others, for amax_floor.
inline constexpr double kUsualAmaxFloor = 1e-12;

struct PlanEdit {
  std::vector<Change> changes{};  ///< no two alike

  friend bool operator==(const PlanEdit&, const PlanEdit&) = default;

  static PlanEdit of(FixKind kind, std::string path = {});
  /// Those nodes computed in fp32.
  static PlanEdit in_fp32(std::vector<std::string> layers);
  static PlanEdit with_loss_scale(double scale);
  /// Another reduction over ranks.
  static PlanEdit with_reduction(FixKind kind, const Reduction& how);

  bool empty() const noexcept { return changes.empty(); }
  /// Whether apply() does anything.
  bool changes_plan() const noexcept;
  bool has(FixKind kind) const noexcept;
  bool keeps(const std::string& layer) const noexcept;
  /// Nodes to compute in fp32.
  std::vector<std::string> fp32_layers() const;
  std::optional<double> loss_scale() const noexcept;
  std::optional<Reduction> reduction() const;
  /// The change that says so.
  std::optional<Change> reduction_change() const;

  /// Adds or takes out a layer.
  void keep(const std::string& layer, bool in_fp32);
  /// Adds or takes out a change of the whole lane.
  void set(FixKind kind, bool on);
  void set_loss_scale(std::optional<double> scale);
  /// Takes over what the other changes; a loss scale and a reduction that are there stay.
  void add(const PlanEdit& other);
  void add(const Change& change);

  /// The plan with these changes, which win over all its rules.
  Plan apply(Plan plan) const;

  /// The parts that may be needed one by one. Buffers are no part, as no loss of a training depends
  /// on them.
  std::vector<PlanEdit> members() const;
  PlanEdit without(const PlanEdit& member) const;
  /// Of a member: the name of its change.
  std::string member_name() const;
};

}  // namespace halfscope
