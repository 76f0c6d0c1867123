// SPDX-License-Identifier: MIT
// Before HalfScope judges plans on a twin, it repeats the fp32 losses that PyTorch recorded.
#pragma once

#include <string>

#include "cli/tasks/twin_folder.h"
#include "cli/terminal/output.h"

namespace halfscope {

/// Result of the repetition. Differences are parts of PyTorch's loss, or of its first loss if that
/// is larger.
struct TwinMatch {
  int64_t steps = 0;
  /// The first steps, in which rounding moves the loss by less than kMostRounding. Later losses say
  /// little: two correct trainings differ as much.
  int64_t compared = 0;
  bool bitwise = true;   ///< in all steps
  double largest = 0.0;  ///< largest |loss - PyTorch's loss|
  double allowed = 0.0;  ///< largest difference that rounding explains
  /// A sentence about the first step if few steps could be compared.
  std::string first_step{};
  std::vector<std::string> lost_casts{}, autocast_off{};  ///< of the twin
  /// Places where the network drops elements. PyTorch drops others, so its losses are those without
  /// dropout, and so are HalfScope's here.
  int64_t dropouts = 0;

  /// Returns sentences for a person.
  std::string text() const;
  Json json() const;
};

/// Largest part of the loss that rounding may explain in steps that are compared.
inline constexpr double kMostRounding = 1e-3;

/// Trains float32 without dropout for at most `steps` steps, and beside it the same from weights
/// moved by one fp32 ulp, and compares each loss with PyTorch's. Throws Error that names the first
/// step whose difference rounding does not explain.
TwinMatch repeat_twin(const TwinFolder& twin, int64_t steps, bool quiet);

}  // namespace halfscope
