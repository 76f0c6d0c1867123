// SPDX-License-Identifier: MIT
// The advice of a run as text for a framework, for `diagnose --fix-as`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/fixes/fixes.h"
#include "analysis/proof/proof_record.h"
#include "analysis/rules/recommend.h"
#include "analysis/run_view.h"

namespace halfscope {

std::vector<std::string> fix_target_names();
/// Throws Error (usage) that lists the names.
FixTarget parse_fix_as(const std::string& text);

/// Returns the proved change if there is a proof, else the advice. Without either, the text says in
/// a comment what to do instead, or that nothing has to change if `other` is "".
std::string advised_fix(FixTarget target, const LaneInfo& lane,
                        const std::optional<Recommendation>& advice,
                        const std::optional<Proof>& proof, const std::string& other);

}  // namespace halfscope
