// SPDX-License-Identifier: MIT
// Summary of all trials: whether every harm is noticed, and nothing healthy is blamed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/zoo/trial.h"

namespace halfscope::zoo {

enum class Judgement : uint8_t {
  right,
  missed,   ///< harm, and no alarm
  alarmed,  ///< an alarm, and no harm
  unjudged  ///< the harm is neither small nor large
};
Judgement judge(const Trial& trial);

struct Score {
  int cases = 0;                         ///< documented failures
  int noticed_right = 0;                 ///< of the cases, under every plan of the right kind
  int noticed_plain = 0;                 ///< under at least one plain plan that does harm
  int not_reproduced = 0;                ///< no plan of the right kind does clear harm
  int controls = 0, alarms = 0;          ///< trials of controls without harm; those with an alarm
  int clean = 0, clean_alarms = 0;       ///< the same of plans that a failure does not show under
  int harmful = 0, harmful_noticed = 0;  ///< trials with harm
  int unjudged = 0;
};
Score score_of(const std::vector<Case>& cases, const std::vector<Trial>& trials);

/// Runs every plan of every case; calls `done` after each.
std::vector<Trial> run_cases(const std::vector<Case>& cases, const std::filesystem::path& folder,
                             const std::function<void(const Trial&)>& done);

/// The table, a row for each trial, and the totals.
std::string table_head();
std::string table_row(const Trial& trial, bool with_headline);
std::string totals(const Score& score);
/// The tables of docs/zoo.md: a row for each case.
std::string markdown(const std::vector<Case>& cases, const std::vector<Trial>& trials);

}  // namespace halfscope::zoo
