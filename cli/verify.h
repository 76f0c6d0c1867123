// SPDX-License-Identifier: MIT
// Proves the advice on a run by training: `train --verify` and `recommend --verify`.
#pragma once

#include <optional>
#include <string>

#include "analysis/proof/proof.h"
#include "analysis/run_view.h"
#include "cli/output.h"

namespace halfscope {

/// Trains what the proof needs, with a progress line, and stores it in the run file; where that
/// cannot be written it says so and goes on. Nothing if the user stopped it. Throws Error if the
/// run does not say how it was trained.
std::optional<Proof> verify_advice(const std::string& file, const RunView& run,
                                   const Recommendation& advice, bool quiet);

struct Verified {
  std::optional<Recommendation> advice;  ///< nothing if there is none
  std::optional<Proof> proof;            ///< of it; nothing if the user stopped it, too
};

/// Finds the advice on a finished run and proves it.
Verified verify_run(const std::string& file, bool quiet);

/// "proof: ..." for a person.
std::string proof_line(const Verified& verified);
/// The member `proof` of results in JSON: what the report has, or null.
Json proof_member(const std::optional<Proof>& proof);

}  // namespace halfscope
