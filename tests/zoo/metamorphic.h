// SPDX-License-Identifier: MIT
// Metamorphic relations: how the diagnosis of a case must change when its network, its data or its
// format is changed. Whether a changed case still fails is decided by the same computation in
// double (trial.h). What overflows or stalls is decided by magnitudes and counts, never by the
// diagnosis.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/zoo/cure.h"

namespace halfscope::zoo {

/// Result of one case under one change.
struct Pair {
  enum class State : uint8_t {
    holds,
    broken,
    left_out,  ///< no expectation; `why` gives the reason
  };

  std::string case_id, change;
  State state = State::left_out;
  std::string why{};  ///< half a sentence
  double seconds = 0.0;
};

/// The changes, by name.
const std::vector<std::string>& change_names();
Pair hold(const Case& which, const std::string& change, const std::filesystem::path& folder);

std::string pair_row(const Pair& pair);
/// Returns how many pairs are as expected, by change.
std::string pair_totals(const std::vector<Pair>& pairs);

}  // namespace halfscope::zoo
