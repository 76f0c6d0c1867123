// SPDX-License-Identifier: MIT
// Coverage: which of the documented failures F1 to F52 the zoo has, and in which way.
#pragma once

#include <string>
#include <vector>

namespace halfscope::zoo {

struct Coverage {
  // Numbers in ascending order. Each one is in exactly one of these four.
  std::vector<int> cases{};     ///< failing cases
  std::vector<int> controls{};  ///< only healthy networks, as it is the documented result
  std::vector<int> kernels{};   ///< on a backend with a faulty kernel (kernel_trial.h)
  std::vector<int> absent{};    ///< not reproduced at all

  std::vector<int> stand_ins{};         ///< of cases and controls, represented by something else
  std::vector<std::string> variants{};  ///< cases beyond the first one of a number
};

Coverage coverage();

/// The lines of zoo_score. Says why a failure is shown by something else, or not at all.
std::string coverage_text(const Coverage& coverage);

}  // namespace halfscope::zoo
