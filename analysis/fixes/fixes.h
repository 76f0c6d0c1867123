// SPDX-License-Identifier: MIT
// Advice as code to paste for the framework that a user trains with. Each text says plainly what
// that framework cannot do.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/observe/recording.h"
#include "core/plan/plan_edit.h"

namespace halfscope {

enum class FixTarget : uint8_t { pytorch, torchao, transformer_engine, keras, tensorflow, plan };

std::span<const FixTarget> all_fix_targets() noexcept;
const char* fix_target_name(FixTarget target) noexcept;  // "pytorch"
std::optional<FixTarget> parse_fix_target(std::string_view name) noexcept;

/// Returns the edit of the lane's plan as text that ends with a newline. `plan` gives the edited
/// plan itself as JSON, without a loss scale. Throws Error if that plan cannot be read.
std::string fix_as(FixTarget target, const LaneInfo& lane, const PlanEdit& edit);

}  // namespace halfscope
