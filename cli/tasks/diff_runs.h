// SPDX-License-Identifier: MIT
// Two recorded lanes compared: where their statistics part, and by how much.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "analysis/run_view.h"

namespace halfscope {

/// A number of both lanes; empty where a lane has none.
struct DiffPair {
  std::optional<double> a{}, b{};
};

/// A tensor whose statistics differ, over the whole run.
struct SiteDiff {
  std::string site{};
  std::string formats{};    ///< "float16", or "float16, float32" if the lanes differ
  int64_t first_step = -1;  ///< of the first window that differs; -1 if no windows are comparable
  DiffPair max_abs{}, norm{};        ///< of gradients: without the loss scale
  DiffPair overflow{}, underflow{};  ///< shares, see Rates
  /// The largest of: relative differences of maximum and norm, differences of the two shares.
  double size = 0.0;
};

/// A number of every step, such as the loss.
struct StepDiff {
  std::string name{};
  int64_t first_step = -1;  ///< first step with different values; -1 if all are equal
  int64_t worst_step = -1;  ///< step of the largest difference
  DiffPair first{}, worst{}, last{};
};

/// One lane of the first run compared with one of the second.
struct LaneDiff {
  std::string a{}, b{};  ///< names of the lanes
  int64_t steps_a = 0, steps_b = 0;
  int64_t skipped_a = 0, skipped_b = 0;
  int64_t compared_sites = 0;                   ///< recorded in both
  std::vector<SiteDiff> sites{};                ///< those that differ, largest difference first
  std::vector<std::string> only_a{}, only_b{};  ///< sites of one lane
  std::vector<StepDiff> steps{};                ///< loss, loss scale and gradient norm
  int64_t first_step = -1;                      ///< first step in which a tensor differs
  std::string first_site{};                     ///< the first in execution order in that step
  bool same() const noexcept;
};

LaneDiff diff_lanes(const RunView& a, int lane_a, const RunView& b, int lane_b);

/// Returns the comparison as text, with at most `limit` tensors.
std::string lane_diff_text(const LaneDiff& diff, size_t limit);
nlohmann::ordered_json lane_diff_json(const LaneDiff& diff);

}  // namespace halfscope
