// SPDX-License-Identifier: MIT
// Proves the advice on a run by training: `train --verify` and `diagnose --verify`.
#pragma once

#include <optional>
#include <string>

#include "analysis/proof/proof.h"
#include "analysis/run_view.h"
#include "cli/terminal/output.h"
#include "core/error.h"

namespace halfscope {

struct Verified {
  std::optional<Recommendation> advice;  ///< nothing if there is none
  std::optional<Proof> proof;            ///< of it; nothing if the user stopped it, too
  std::optional<Error> not_stored;       ///< why the proof is not in the run file, if it is not

  /// Throws not_stored: after the result has been told.
  void check_stored() const;
};

/// Trains what the proof needs, with a progress line, and stores it in the run file. Throws Error
/// if the run does not say how it was trained, or if training does not repeat it.
Verified verify_advice(const std::string& file, const RunView& run, const Recommendation& advice,
                       bool quiet);

/// Finds the advice on a finished run and proves it.
Verified verify_run(const std::string& file, bool quiet);

/// Returns "proof: ..." for a person, without a newline.
std::string proof_line(const Verified& verified);
/// The member `proof` of results in JSON: what the report has, or null.
Json proof_member(const std::optional<Proof>& proof);

}  // namespace halfscope
