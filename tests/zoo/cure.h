// SPDX-License-Identifier: MIT
// A cure: what HalfScope finds out about one case under one plan, and what it costs.
#pragma once

#include <filesystem>
#include <string>

#include "analysis/proof/proof.h"
#include "core/models/zoo/zoo.h"

namespace halfscope::zoo {

struct Cure {
  std::string case_id, plan;
  std::optional<Proof> proof{};
  std::string why_not{};  ///< why nothing was proved
  double seconds = 0.0;
};

/// Records the case under that plan, searches for the smallest change that cures it, and proves it.
Cure find_cure(const Case& which, const std::string& plan, const std::filesystem::path& folder,
               const TrialBudget& budget);

}  // namespace halfscope::zoo
