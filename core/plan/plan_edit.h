// SPDX-License-Identifier: MIT
// PlanEdit: a change of a lane's set-up as one value. Rules advise it, a proof tries it part by
// part, the viewer collects it from clicks, and apply() makes a plan of it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/plan/plan.h"

namespace halfscope {

struct PlanEdit {
  std::vector<std::string> fp32_layers{};  ///< node paths, no two alike
  bool fp32_storage = false;               ///< of variables and of the optimizer's state
  bool buffers_on_step = false;            ///< running statistics move with the update
  std::optional<double> loss_scale{};      ///< a static one; no plan holds it
  std::optional<Reduction> reduction{};    ///< of data-parallel ranks

  friend bool operator==(const PlanEdit&, const PlanEdit&) = default;

  bool empty() const noexcept { return !changes_plan() && !loss_scale; }
  /// Whether apply() does anything.
  bool changes_plan() const noexcept {
    return !fp32_layers.empty() || fp32_storage || buffers_on_step || reduction;
  }
  bool keeps(const std::string& layer) const noexcept;
  /// Adds or takes out a layer.
  void keep(const std::string& layer, bool in_fp32);
  /// Takes over what the other changes; its layers come last, and a loss scale that is there stays.
  void add(const PlanEdit& other);

  /// The plan with these changes, which win over all its rules.
  Plan apply(Plan plan) const;

  /// The parts that training may need one by one: an edit for each layer, for the storage, for the
  /// reduction and for the loss scale. Buffers are no part, as no loss of a training depends on
  /// them.
  std::vector<PlanEdit> members() const;
  PlanEdit without(const PlanEdit& member) const;
  /// Of a member, as run files and reports name it: the layer's path, "variables.storage",
  /// "variables.reduce", "loss_scale".
  std::string member_name() const;
};

}  // namespace halfscope
