// SPDX-License-Identifier: MIT
// Studies made by hand: every loss, gap and first overflow is known.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "analysis/study/study_view.h"

namespace halfscope::test {

/// Writes the results of a trial that has finished.
using TrialMaker = std::function<void(TrialRow& trial, int plan, int seed)>;

/// Returns plans by seeds with a baseline for each seed; `make` fills in each trial. `plan` is -1
/// for baselines.
StudyView made_study(const std::vector<std::string>& plans, int seeds, const TrialMaker& make);

/// Returns a finished trial: a loss that falls from 2 to `loss`, in `bits`.
void finish_trial(TrialRow& trial, double loss, double bits);

/// 3 plans and 10 seeds. Baseline losses are 1. mixed_float16 overflows in conv2 in 7 seeds: in
/// seeds 1 to 6 with NaN from step 40 on, in seed 7 with a loss of 3. mixed_bfloat16 ends 2% above
/// the baseline, int8_like 4% above; none of them fails.
StudyView sample_study();
/// The same with the trials of the first `finished` seeds; all others wait.
StudyView partial_study(int finished);

}  // namespace halfscope::test
