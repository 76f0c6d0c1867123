// SPDX-License-Identifier: MIT
// A cure: the cause that HalfScope finds for a case and the change that it proves to help, compared
// with the labels of the case.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "analysis/diagnosis/diagnosis.h"
#include "analysis/proof/proof.h"
#include "core/models/zoo/zoo.h"
#include "emulation/backends.h"

namespace halfscope::zoo {

struct Cure {
  std::string case_id, plan;
  Diagnosis diagnosis{};
  std::string why_not{};  ///< why nothing was proved; else what the proof says
  std::string proof{};    ///< as JSON; "" if there is none
  double seconds = 0.0;

  // Against the labels.
  bool named = false;          ///< the cause: a root, or of settings a kind of fix that is accepted
  bool explained = false;      ///< with the labelled mechanism
  bool decoy_advised = false;  ///< a decoy is part of the fix
  bool proved = false;         ///< the fix cures
  bool minimal = false;        ///< and has no more changes than the labelled one
};

/// Records the case under that plan on that backend, searches for the smallest change that fixes
/// it, proves it, and requests the diagnosis like `halfscope diagnose --verify`.
Cure find_cure(const Case& which, const std::string& plan, const std::filesystem::path& folder,
               const Backend& backend = emulation_backend());

/// Number of failures for which each statement is true, under all of their right plans.
struct CureScore {
  int cases = 0, named = 0, explained = 0, decoys = 0, proved = 0, minimal = 0;
  double seconds = 0.0;
};
CureScore score_of(const std::vector<Cure>& cures);

std::vector<Cure> find_cures(const std::vector<Case>& cases, const std::filesystem::path& folder,
                             const std::function<void(const Cure&)>& done);

std::string cure_head();
std::string cure_row(const Cure& cure);
std::string cure_totals(const CureScore& score);
/// The table of docs/zoo.md.
std::string cure_markdown(const std::vector<Cure>& cures);

}  // namespace halfscope::zoo
