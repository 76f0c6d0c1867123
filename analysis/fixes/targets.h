// SPDX-License-Identifier: MIT
// One function per framework. For the sources of this folder.
#pragma once

#include <string>
#include <vector>

#include "core/observe/recording.h"
#include "core/plan/plan_edit.h"

namespace halfscope::fixes {

/// `storage`: what the lane keeps its weights in.
std::string pytorch_text(const LaneInfo& lane, const FloatFormat& storage, const PlanEdit& edit);
std::string torchao_text(const LaneInfo& lane, const PlanEdit& edit);
std::string keras_text(const LaneInfo& lane, const PlanEdit& edit);
std::string tensorflow_text(const LaneInfo& lane, const PlanEdit& edit);

/// Comments on the changes that are none of `done`: FRAMEWORK has no setting for them.
std::string not_expressed(const std::string& framework, const PlanEdit& edit,
                          const std::vector<FixKind>& done);

}  // namespace halfscope::fixes
