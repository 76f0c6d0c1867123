// SPDX-License-Identifier: MIT
#include "tests/report/study_fixtures.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace halfscope::test {

StudyView made_study(const std::vector<std::string>& plans, int seeds, const TrialMaker& make) {
  StudyInfo info;
  info.name = "plans by seeds";
  info.json = "{\"schema\": \"halfscope.study/1\"}";
  info.version = "0.1.0";
  info.baseline = "float32";
  info.axes = {{"plan", plans}, {"seed", {}}};
  for (int seed = 1; seed <= seeds; ++seed) info.axes[1].values.push_back(std::to_string(seed));
  std::vector<TrialRow> rows;
  const int count = static_cast<int>(plans.size());
  const auto add = [&](int plan, int seed) {
    TrialRow row;
    row.hash = fmt::format("{:016x}", 0x1000 * (plan + 2) + seed);
    row.baseline = plan < 0;
    row.places = {plan, seed};
    if (plan >= 0) row.base = count * seeds + seed;
    row.command =
        fmt::format("halfscope train --plan {} --seed {} --out trials/{}.hscope",
                    plan < 0 ? "float32" : plans[static_cast<size_t>(plan)], seed + 1, row.hash);
    row.run = fmt::format("trials/{}.hscope", row.hash);
    make(row, plan, seed);
    rows.push_back(std::move(row));
  };
  for (int plan = 0; plan < count; ++plan) {
    for (int seed = 0; seed < seeds; ++seed) add(plan, seed);
  }
  for (int seed = 0; seed < seeds; ++seed) add(-1, seed);
  return StudyView(std::move(info), std::move(rows));
}

void finish_trial(TrialRow& trial, double loss, double bits) {
  trial.status = TrialStatus::done;
  trial.steps = 100;
  trial.loss = loss;
  trial.test_loss = loss * 1.1;
  trial.accuracy = 0.9;
  trial.bits = bits;
  for (int step = 0; step < 100; ++step) {
    const double share = step / 99.0;
    trial.curve.push_back(
        {static_cast<float>(step), static_cast<float>(2.0 + (loss - 2.0) * share)});
  }
}

namespace {

void sample_trial(TrialRow& trial, int plan, int seed) {
  // Seeds differ a little, so that fans have a width.
  const double level = 1.0 + 0.01 * seed;
  if (plan < 0) return finish_trial(trial, level, 32.0);
  if (plan == 1) return finish_trial(trial, 1.02 * level, 18.0);
  if (plan == 2) return finish_trial(trial, 1.04 * level, 12.0);
  finish_trial(trial, seed == 6 ? 3.0 * level : level, 16.0);
  if (seed > 6) return;
  trial.first_bad = {40 + seed, "conv2", "activation"};
  trial.cause = "forward_overflow";
  trial.cause_layer = "conv2";
  trial.skipped = 10;
  if (seed == 6) return;
  trial.loss = std::numeric_limits<double>::quiet_NaN();
  for (CurvePoint& point : trial.curve) {
    if (point.step >= 40.0F) point.loss = std::numeric_limits<float>::quiet_NaN();
  }
}

}  // namespace

StudyView sample_study() {
  return made_study({"mixed_float16", "mixed_bfloat16", "int8_like"}, 10, sample_trial);
}

StudyView partial_study(int finished) {
  return made_study({"mixed_float16", "mixed_bfloat16", "int8_like"}, 10,
                    [&](TrialRow& trial, int plan, int seed) {
                      if (seed < finished) sample_trial(trial, plan, seed);
                    });
}

}  // namespace halfscope::test
