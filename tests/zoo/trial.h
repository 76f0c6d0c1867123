// SPDX-License-Identifier: MIT
// A trial: one case under one plan. What HalfScope says of the recorded run, beside the harm that
// is measured without it, against the same computation in double with every reduced-precision
// setting off.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/models/zoo/truth.h"
#include "emulation/backends.h"

namespace halfscope::zoo {

struct Trial {
  std::string case_id, plan;
  bool right_kind = false;  ///< one of Case::right
  bool control = false;
  Truth truth;
  std::string verdict;   ///< the lane's
  std::string headline;  ///< the run's
  bool alarm = false;    ///< HalfScope says that something is wrong
  double seconds = 0.0;
};

/// Runs one case under one plan after another and caches the data that all of them need.
class Stage {
 public:
  Stage(const Case& which, std::filesystem::path folder);
  Trial run(const std::string& plan, const Backend& backend = emulation_backend());
  /// Runs it without HalfScope's rules, and judges the harm alone.
  Truth truth(const LaneChoice& lane) { return judge_.truth(lane); }
  const Setup& setup() const { return judge_.setup(); }

 private:
  const Case& case_;
  std::filesystem::path folder_;
  Judge judge_;
};

/// Returns whether that state of a lane or a run means that something is wrong.
bool is_alarm(const std::string& state);

}  // namespace halfscope::zoo
