// SPDX-License-Identifier: MIT
// Metamorphic relations: what must become of the diagnosis of a case when its network, its data or
// its format is changed. Whether a changed case still fails is told by the same computation in
// double (trial.h), and what overflows or stalls by magnitudes and counts, never by the diagnosis.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/zoo/cure.h"

namespace halfscope::zoo {

/// What became of one case under one change.
struct Pair {
  enum class State : uint8_t {
    holds,
    broken,
    left_out,  ///< nothing is expected of it; `why` says why
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
/// How many pairs hold, by change.
std::string pair_totals(const std::vector<Pair>& pairs);

}  // namespace halfscope::zoo
