// SPDX-License-Identifier: MIT
// One function per framework. For the sources of this folder.
#pragma once

#include <string>
#include <vector>

#include "core/observe/recording.h"
#include "core/plan/plan_edit.h"

namespace halfscope::fixes {

/// @param storage the format of the lane's weights
std::string pytorch_text(const LaneInfo& lane, const FloatFormat& storage, const PlanEdit& edit);
std::string torchao_text(const LaneInfo& lane, const PlanEdit& edit);
std::string transformer_engine_text(const LaneInfo& lane, const PlanEdit& edit);
std::string keras_text(const LaneInfo& lane, const PlanEdit& edit);
std::string tensorflow_text(const LaneInfo& lane, const PlanEdit& edit);

/// Returns comments on the changes of other kinds than `done`: FRAMEWORK has no setting for them.
std::string not_expressed(const std::string& framework, const PlanEdit& edit,
                          const std::vector<FixKind>& done);

}  // namespace halfscope::fixes
