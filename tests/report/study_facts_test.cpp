// SPDX-License-Identifier: MIT
// The facts of a study against values worked out by hand, and intervals against published ones.
#include "analysis/study/study_facts.h"

#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <functional>
#include <vector>

#include "analysis/study/gap_axis.h"
#include "tests/report/study_fixtures.h"

namespace halfscope::test {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(WilsonInterval, AgreesWithPublishedValues) {
  struct Case {
    int hits, trials;
    double low, high;
  };
  // R. G. Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in
  // Medicine 17, 1998, table I, method 3, to its four digits.
  for (const Case& each : {Case{81, 263, 0.2553, 0.3662}, Case{15, 148, 0.0624, 0.1605},
                           Case{0, 20, 0.0, 0.1611}, Case{1, 29, 0.0061, 0.1718}}) {
    const Interval interval = wilson_interval(each.hits, each.trials);
    EXPECT_NEAR(interval.low, each.low, 5.1e-5) << each.hits;
    EXPECT_NEAR(interval.high, each.high, 5.1e-5) << each.hits;
  }
  // scipy.stats.binomtest(k, n).proportion_ci(0.95, 'wilson'), SciPy 1.15.
  for (const Case& each :
       {Case{0, 1, 0.0, 0.793450685622763}, Case{1, 1, 0.206549314377237, 1.0},
        Case{0, 10, 0.0, 0.277532799862889}, Case{10, 10, 0.722467200137111, 1.0},
        Case{3, 10, 0.107791267406301, 0.603221852538855},
        Case{7, 10, 0.396778147461145, 0.892208732593699},
        Case{5, 20, 0.111861701407666, 0.468700877618744},
        Case{500, 1000, 0.469069600368104, 0.530930399631896}}) {
    const Interval interval = wilson_interval(each.hits, each.trials);
    EXPECT_NEAR(interval.low, each.low, 1e-14) << each.hits << " of " << each.trials;
    EXPECT_NEAR(interval.high, each.high, 1e-14) << each.hits << " of " << each.trials;
  }
  EXPECT_EQ(wilson_interval(0, 0).low, 0.0);
  EXPECT_EQ(wilson_interval(0, 0).high, 1.0);
}

TEST(StudyFacts, CountsWhatFailsInWhichGroup) {
  const StudyView study = sample_study();
  const StudyFacts facts = make_study_facts(study);
  ASSERT_EQ(facts.groups.size(), 4u);
  EXPECT_EQ(facts.groups[0].name, "float32 (baseline)");
  EXPECT_TRUE(facts.groups[0].baseline);
  EXPECT_EQ(facts.groups[1].name, "mixed_float16");
  EXPECT_EQ(facts.planned, 40);
  EXPECT_EQ(facts.finished, 40);
  EXPECT_EQ(facts.failing, 7);
  EXPECT_EQ(facts.groups[1].failing, 7);
  EXPECT_DOUBLE_EQ(facts.groups[1].failing_share(), 0.7);
  EXPECT_NEAR(facts.groups[1].interval.low, 0.396778147461145, 1e-14);
  EXPECT_EQ(facts.groups[2].failing, 0);
  ASSERT_EQ(facts.groups[1].reasons.size(), 1u);
  EXPECT_EQ(facts.groups[1].reasons[0].text, "conv2 overflows");
  EXPECT_EQ(facts.groups[1].reasons[0].trials, 7);
  // Gaps of mixed_float16: 6 infinite, one of 2, three of 0. The middle two are infinite.
  EXPECT_EQ(facts.groups[1].gap, std::numeric_limits<double>::infinity());
  EXPECT_DOUBLE_EQ(*facts.groups[1].least_gap, 0.0);
  EXPECT_NEAR(*facts.groups[2].gap, 0.02, 1e-12);
  EXPECT_NEAR(*facts.groups[3].worst_gap, 0.04, 1e-12);
  // Losses of mixed_bfloat16: 1.02 * (1, 1.01 ... 1.09); the median is 1.02 * 1.045.
  EXPECT_NEAR(*facts.groups[2].loss, 1.02 * 1.045, 1e-12);
  EXPECT_EQ(facts.group_of(0), 1);
  EXPECT_EQ(facts.group_of(39), 0);
}

TEST(StudyFacts, APlanPoolsItsTrialsWhateverElseDiffers) {
  const StudyView study = sample_study();
  const std::vector<StudyGroup> groups = make_study_facts(study).groups;
  StudyInfo info = study.info();
  for (StudyAxis& axis : info.axes) {
    if (axis.name == "seed") axis.name = "batch";
  }
  const StudyView batches(info, {study.trials().begin(), study.trials().end()});
  EXPECT_EQ(make_study_facts(batches).groups.size(), 40u) << "each trial is a combination";
  for (const StudyView& each : {study, batches}) {
    const std::vector<StudyGroup> plans = plan_groups(each);
    ASSERT_EQ(plans.size(), groups.size());
    EXPECT_EQ(plans[0].name, "float32");
    EXPECT_TRUE(plans[0].baseline);
    EXPECT_EQ(plans[1].name, "mixed_float16");
    for (size_t i = 0; i < plans.size(); ++i) {
      EXPECT_EQ(plans[i].planned, groups[i].planned);
      EXPECT_EQ(plans[i].finished, groups[i].finished);
      EXPECT_EQ(plans[i].failing, groups[i].failing);
      EXPECT_EQ(plans[i].loss, groups[i].loss);
      EXPECT_EQ(plans[i].first_layers.size(), groups[i].first_layers.size());
    }
    EXPECT_EQ(plans[1].first_layers[0].layer, "conv2");
    EXPECT_EQ(plans[1].first_layers[0].failing, 7);
  }
}

TEST(StudyFacts, TheFrontHasWhatNothingElseBeats) {
  const StudyFacts facts = make_study_facts(sample_study());
  EXPECT_TRUE(facts.groups[0].on_front) << "the baseline has no gap";
  EXPECT_FALSE(facts.groups[1].on_front) << "it fails";
  EXPECT_TRUE(facts.groups[2].on_front);
  EXPECT_TRUE(facts.groups[3].on_front);
  EXPECT_EQ(facts.cheapest, 3);
  // One more plan, as wide as mixed_bfloat16 and with a larger gap.
  const StudyView beaten = made_study({"a", "b"}, 2, [](TrialRow& trial, int plan, int) {
    finish_trial(trial, plan < 0 ? 1.0 : plan == 0 ? 1.01 : 1.02, plan < 0 ? 32.0 : 16.0);
  });
  const StudyFacts more = make_study_facts(beaten);
  EXPECT_TRUE(more.groups[1].on_front);
  EXPECT_FALSE(more.groups[2].on_front);
}

TEST(StudyFacts, FansHaveTheQuantilesOfTheLosses) {
  // Losses at the end: 1, 2, 3, 4, 5; numpy.percentile gives 1, 2, 3, 4, 5.
  const StudyView study = made_study(
      {"a"}, 5, [](TrialRow& trial, int, int seed) { finish_trial(trial, 1.0 + seed, 16.0); });
  const StudyFacts facts = make_study_facts(study);
  const LossBand& end = facts.groups[1].fan.back();
  EXPECT_EQ(facts.groups[1].fan.size(), 100u);
  EXPECT_EQ(end.step, 99.0);
  EXPECT_EQ(end.low, 1.0);
  EXPECT_EQ(end.lower_quartile, 2.0);
  EXPECT_EQ(end.median, 3.0);
  EXPECT_EQ(end.upper_quartile, 4.0);
  EXPECT_EQ(end.high, 5.0);
  EXPECT_EQ(end.trials, 5);
  // numpy.percentile([1, 2, 3, 4], [25, 50, 75]) is 1.75, 2.5, 3.25.
  const StudyFacts four = make_study_facts(made_study(
      {"a"}, 4, [](TrialRow& trial, int, int seed) { finish_trial(trial, 1.0 + seed, 16.0); }));
  const LossBand& last = four.groups[1].fan.back();
  EXPECT_DOUBLE_EQ(last.lower_quartile, 1.75);
  EXPECT_DOUBLE_EQ(last.median, 2.5);
  EXPECT_DOUBLE_EQ(last.upper_quartile, 3.25);
}

TEST(StudyFacts, LossesThatAreNotFiniteCountAsInfinite) {
  const StudyFacts facts = make_study_facts(sample_study());
  const std::vector<LossBand>& fan = facts.groups[1].fan;
  EXPECT_TRUE(std::isfinite(fan[39].high));
  EXPECT_TRUE(std::isinf(fan[40].high));
  EXPECT_TRUE(std::isinf(fan[40].median)) << "6 of 10";
  EXPECT_TRUE(std::isfinite(fan[40].lower_quartile));
}

TEST(StudyFacts, ATrainingThatStoppedIsInTheFanUntilThen) {
  const StudyView study = made_study({"a"}, 2, [](TrialRow& trial, int plan, int seed) {
    finish_trial(trial, 1.0, 16.0);
    if (plan != 0 || seed != 0) return;
    // Fewer points: steps 0, 10 ... 50, on the same line.
    std::vector<CurvePoint> curve;
    for (size_t step = 0; step <= 50; step += 10) curve.push_back(trial.curve[step]);
    trial.curve = curve;
    trial.error = "the scaler gave up";
    trial.steps = 51;
  });
  const StudyFacts facts = make_study_facts(study);
  const std::vector<LossBand>& fan = facts.groups[1].fan;
  EXPECT_EQ(facts.groups[1].failing, 1);
  ASSERT_EQ(fan.size(), 100u);
  EXPECT_EQ(fan[50].trials, 2);
  EXPECT_EQ(fan[51].trials, 1);
  EXPECT_NEAR(fan[25].low, fan[25].high, 1e-6) << "between two points the curve is straight";
}

TEST(StudyFacts, NamesTheLayerThatOverflowsFirst) {
  const StudyFacts facts = make_study_facts(sample_study());
  ASSERT_EQ(facts.groups[1].first_layers.size(), 1u);
  const FirstLayer& layer = facts.groups[1].first_layers[0];
  EXPECT_EQ(layer.layer, "conv2");
  EXPECT_EQ(layer.role, "activation");
  EXPECT_EQ(layer.trials, 7);
  EXPECT_EQ(layer.failing, 7);
  EXPECT_EQ(layer.median_step, 43.0) << "40 to 46";
}

TEST(StudyFacts, TheHeadlineNamesWhatFailsWhyAndWhatToUse) {
  const StudyFacts facts = make_study_facts(sample_study());
  EXPECT_EQ(facts.verdict.state, Verdict::State::attention);
  EXPECT_EQ(facts.verdict.headline,
            "mixed_float16 fails in 7 of 10 seeds because conv2 overflows. The cheapest plan that "
            "never failed is int8_like.");
  EXPECT_EQ(facts.verdict.more,
            "0 failures in 10 seeds still allow a failure rate of up to 27.8% (95% confidence).");
}

TEST(StudyFacts, SaysHowMuchOfAStudyIsFinished) {
  const StudyFacts none = make_study_facts(partial_study(0));
  EXPECT_EQ(none.verdict.headline, "No trial has finished yet.");
  EXPECT_EQ(none.verdict.more, "0 of 40 trials finished.");
  EXPECT_EQ(none.verdict.state, Verdict::State::inconclusive);
  const StudyFacts some = make_study_facts(partial_study(3));
  EXPECT_THAT(some.verdict.headline, HasSubstr("mixed_float16 fails in 3 of 3 seeds"));
  EXPECT_THAT(some.verdict.more, HasSubstr("12 of 40 trials finished."));
  const StudyFacts baselines =
      make_study_facts(made_study({"a"}, 4, [](TrialRow& trial, int plan, int) {
        if (plan < 0) finish_trial(trial, 1.0, 32.0);
      }));
  EXPECT_EQ(baselines.verdict.headline, "Only baseline trials have finished so far.");
  EXPECT_EQ(baselines.cheapest, -1);
}

TEST(StudyFacts, AStudyInWhichAllFailIsBroken) {
  const StudyFacts facts =
      make_study_facts(made_study({"a", "b"}, 3, [](TrialRow& trial, int plan, int) {
        finish_trial(trial, plan < 0 ? 1.0 : 2.0, 16.0);
      }));
  EXPECT_EQ(facts.verdict.state, Verdict::State::broken);
  EXPECT_EQ(facts.verdict.headline,
            "a fails in 3 of 3 seeds and b in 3 of 3 seeds because its loss ends above the "
            "baseline's. No plan is safe.");
  EXPECT_EQ(facts.verdict.more, "");
  const StudyFacts other =
      make_study_facts(made_study({"a", "b"}, 3, [](TrialRow& trial, int plan, int) {
        finish_trial(trial, plan < 0 ? 1.0 : plan == 0 ? 2.0 : std::nan(""), 16.0);
      }));
  EXPECT_EQ(other.verdict.headline,
            "a fails in 3 of 3 seeds and b in 3 of 3 seeds. No plan is safe.");
  EXPECT_EQ(other.verdict.more,
            "a: its loss ends above the baseline's. b: its loss is not finite.");
}

TEST(StudyFacts, AStudyInWhichNothingFailsIsHealthyOnceItIsFinished) {
  const auto good = [](TrialRow& trial, int plan, int) {
    finish_trial(trial, 1.0, plan < 0 ? 32.0 : 16.0 - plan);
  };
  const StudyFacts facts = make_study_facts(made_study({"a", "b"}, 3, good));
  EXPECT_EQ(facts.verdict.state, Verdict::State::healthy);
  EXPECT_EQ(facts.verdict.headline, "No plan fails in any seed. The cheapest plan is b.");
  const StudyFacts one =
      make_study_facts(made_study({"a"}, 3, [&](TrialRow& trial, int plan, int seed) {
        if (seed < 2) good(trial, plan, seed);
      }));
  EXPECT_EQ(one.verdict.state, Verdict::State::inconclusive);
  EXPECT_EQ(one.verdict.headline, "a fails in none of 2 seeds so far.");
}

TEST(StudyFacts, AFirstOverflowIsAReasonOnlyIfARuleSaysSo) {
  TrialRow trial;
  finish_trial(trial, 2.0, 16.0);
  trial.why = "its loss is 100% above the baseline's";
  trial.first_bad = {0, "fc2", "activation_grad"};
  EXPECT_EQ(fail_reason(trial), "its loss ends above the baseline's");
  trial.cause = "first_non_finite";
  EXPECT_EQ(fail_reason(trial), "fc2 (activation_grad) is the first to overflow or to become NaN");
  trial.skipped = 90;
  EXPECT_EQ(fail_reason(trial),
            "fc2 (activation_grad) is the first to overflow or to become NaN, and most steps are "
            "skipped");
  trial.cause = "gradient_underflow";
  trial.cause_layer = "conv1";
  EXPECT_EQ(fail_reason(trial), "gradients of conv1 underflow");
  trial.cause = "lost_updates";
  trial.cause_layer = "";
  EXPECT_EQ(fail_reason(trial), "updates are smaller than half an ulp of the weights");
  trial = {};
  finish_trial(trial, std::nan(""), 16.0);
  EXPECT_EQ(fail_reason(trial), "its loss is not finite");
  trial.error = "the scaler gave up";
  trial.why = "its training stopped: the scaler gave up";
  EXPECT_EQ(fail_reason(trial), "its training stopped: the scaler gave up");
}

TEST(StudyFacts, GapsInBothDirectionsMayBeNoise) {
  // Gaps of a: 2 of +10%, 1 of -10%, 1 of 0; of b: 2 of +10%, 2 of 0.
  const StudyFacts facts =
      make_study_facts(made_study({"a", "b"}, 4, [](TrialRow& trial, int plan, int seed) {
        const double below = plan == 0 && seed == 2 ? 0.9 : 1.0;
        finish_trial(trial, plan < 0 ? 1.0 : seed < 2 ? 1.1 : below, 16.0);
        trial.first_bad = {1, "fc2", "weight_grad"};
      }));
  EXPECT_EQ(facts.groups[1].ahead, 1);
  EXPECT_EQ(facts.groups[2].ahead, 0);
  EXPECT_THAT(facts.verdict.more,
              HasSubstr("Some losses also end more than 5% below the baseline's: a in 1 of 4 "
                        "seeds. These gaps may be the noise of training"));
  EXPECT_EQ(facts.groups[1].reasons[0].text, "its loss ends above the baseline's")
      << "a first overflow explains no finite loss";
}

TEST(StudyFacts, ABaselineThatFailsAndTrialsThatCannotRunAreSaid) {
  const StudyFacts facts =
      make_study_facts(made_study({"a"}, 3, [](TrialRow& trial, int plan, int seed) {
        finish_trial(trial, plan < 0 && seed == 0 ? std::nan("") : 1.0, 16.0);
        if (plan == 0 && seed == 1) {
          trial.status = TrialStatus::failed;
          trial.error = "not enough memory";
        }
      }));
  EXPECT_THAT(facts.verdict.more, HasSubstr("The baseline itself fails in 1 of 3 seeds"));
  EXPECT_THAT(facts.verdict.more, HasSubstr("1 trial could not be trained: not enough memory."));
  EXPECT_EQ(facts.groups[1].not_trained, 1);
  EXPECT_EQ(facts.groups[1].finished, 2);
}

TEST(StudyFacts, CombinationsOfOtherAxesAreRows) {
  StudyInfo info;
  info.baseline = "float32";
  info.axes = {{"plan", {"p"}}, {"loss_scale", {"none", "dynamic:65536"}}, {"seed", {"5", "6"}}};
  std::vector<TrialRow> rows;
  for (int scale = 0; scale < 2; ++scale) {
    for (int seed = 0; seed < 2; ++seed) {
      TrialRow row;
      row.places = {0, scale, seed};
      row.base = 4 + seed;
      finish_trial(row, scale == 0 && seed == 1 ? 2.0 : 1.0, 16.0);
      rows.push_back(row);
    }
  }
  for (int seed = 0; seed < 2; ++seed) {
    TrialRow row;
    row.baseline = true;
    row.places = {-1, -1, seed};
    finish_trial(row, 1.0, 32.0);
    rows.push_back(row);
  }
  const StudyFacts facts = make_study_facts(StudyView(info, rows));
  ASSERT_EQ(facts.groups.size(), 3u);
  EXPECT_EQ(facts.noun, "combination");
  EXPECT_EQ(facts.groups[0].name, "float32 (baseline)");
  EXPECT_EQ(facts.groups[1].name, "loss scale none");
  EXPECT_EQ(facts.groups[2].name, "loss scale dynamic:65536");
  EXPECT_EQ(facts.groups[1].failing, 1);
  EXPECT_EQ(facts.columns, (std::vector<std::string>{"5", "6"}));
  EXPECT_THAT(facts.verdict.headline,
              HasSubstr("loss scale none fails in 1 of 2 seeds because its loss ends above"));
  EXPECT_THAT(facts.verdict.headline, HasSubstr("Only loss scale dynamic:65536 never failed."));
}

/// Holds that every trial has a cell, and no two trials have the same one.
void expect_each_trial_once(const StudyView& study, const StudyFacts& facts) {
  std::vector<int> seen(study.trials().size(), 0);
  for (const StudyGroup& group : facts.groups) {
    for (const int trial : group.trials) {
      if (trial >= 0) ++seen[static_cast<size_t>(trial)];
    }
  }
  EXPECT_THAT(seen, testing::Each(1));
  EXPECT_EQ(facts.planned, static_cast<int>(seen.size()));
}

/// Four ways to reduce, of which two share a baseline, times two seeds. `places` are those of the
/// two kinds of baselines on the axis.
StudyView study_of_reductions(std::array<int, 2> places) {
  StudyInfo info;
  info.baseline = "float32";
  info.axes = {
      {"plan", {"p"}}, {"reduce", {"a:bf16", "a:fp16", "b:bf16", "b:fp16"}}, {"seed", {"5", "6"}}};
  std::vector<TrialRow> rows;
  for (int trial = 0; trial < 8; ++trial) {
    TrialRow row;
    row.places = {0, trial / 2, trial % 2};
    row.base = 8 + trial / 4 * 2 + trial % 2;
    finish_trial(row, 1.0, 16.0);
    rows.push_back(row);
  }
  for (int trial = 0; trial < 4; ++trial) {
    TrialRow row;
    row.baseline = true;
    row.places = {-1, places[static_cast<size_t>(trial / 2)], trial % 2};
    finish_trial(row, 1.0, 32.0);
    rows.push_back(row);
  }
  return StudyView(info, rows);
}

TEST(StudyFacts, EveryTrialIsInOneGroup) {
  const StudyView study = study_of_reductions({0, 2});
  const StudyFacts facts = make_study_facts(study);
  expect_each_trial_once(study, facts);
  ASSERT_EQ(facts.groups.size(), 6u);
  EXPECT_EQ(facts.groups[0].name, "float32 (reduce a:bf16 and a:fp16, baseline)");
  EXPECT_EQ(facts.groups[1].name, "float32 (reduce b:bf16 and b:fp16, baseline)");
  EXPECT_EQ(facts.groups[0].trials, (std::vector<int>{8, 9}));
  EXPECT_EQ(facts.groups[1].trials, (std::vector<int>{10, 11}));
  EXPECT_EQ(facts.groups[5].name, "reduce b:fp16");
  // Places that do not tell baselines apart hide none.
  const StudyView alike = study_of_reductions({-1, -1});
  expect_each_trial_once(alike, make_study_facts(alike));
  for (const StudyView& each : {sample_study(), partial_study(3)}) {
    expect_each_trial_once(each, make_study_facts(each));
  }
}

/// Plan p and its baseline by loss scales and learning rates, two seeds each. `make` fills in the
/// trials with these places; they are -1 where an axis does not apply.
StudyView study_of_settings(const std::function<void(TrialRow&, int scale, int lr)>& make) {
  StudyInfo info;
  info.baseline = "float32";
  info.axes = {{"plan", {"p"}},
               {"loss_scale", {"none", "dynamic"}},
               {"lr", {"0.1", "2"}},
               {"seed", {"5", "6"}}};
  std::vector<TrialRow> rows;
  for (int trial = 0; trial < 12; ++trial) {
    TrialRow row;
    row.baseline = trial >= 8;
    const int scale = row.baseline ? -1 : trial / 4, lr = trial / 2 % 2;
    row.places = {row.baseline ? -1 : 0, scale, lr, trial % 2};
    if (!row.baseline) row.base = 8 + trial % 4;
    make(row, scale, lr);
    rows.push_back(row);
  }
  return StudyView(info, rows);
}

TEST(StudyFacts, NamesOfCombinationsArePartsOfSentences) {
  const StudyFacts facts = make_study_facts(study_of_settings(
      [](TrialRow& trial, int, int) { finish_trial(trial, 1.0, trial.baseline ? 32.0 : 16.0); }));
  EXPECT_EQ(facts.groups[0].name, "float32 (lr 0.1, baseline)");
  EXPECT_EQ(facts.groups[2].name, "loss scale none, lr 0.1") << "all have the same plan";
  StudyInfo info;
  info.axes = {{"plan", {"p", "q"}}, {"lr", {"0.1", "2"}}};
  std::vector<TrialRow> rows(4);
  for (int trial = 0; trial < 4; ++trial) {
    rows[static_cast<size_t>(trial)].places = {trial / 2, trial % 2};
    finish_trial(rows[static_cast<size_t>(trial)], 1.0, 16.0);
  }
  EXPECT_EQ(make_study_facts(StudyView(info, rows)).groups[3].name, "q (lr 2)");
}

TEST(StudyFacts, SaysWhatAllFailingCombinationsHaveInCommon) {
  // Four learning rates, of which the last three fail, each in both seeds.
  StudyInfo info;
  info.baseline = "float32";
  info.axes = {{"plan", {"p", "q", "r"}}, {"lr", {"0.1", "2"}}};
  const auto study = [&](const std::function<bool(int plan, int lr)>& fails) {
    std::vector<TrialRow> rows;
    for (int trial = 0; trial < 8; ++trial) {
      TrialRow row;
      row.baseline = trial >= 6;
      row.places = {row.baseline ? -1 : trial / 2, trial % 2};
      if (!row.baseline) row.base = 6 + trial % 2;
      finish_trial(row, !row.baseline && fails(trial / 2, trial % 2) ? 1.5 : 1.0, 16.0);
      rows.push_back(row);
    }
    return make_study_facts(StudyView(info, rows)).verdict.headline;
  };
  EXPECT_THAT(study([](int, int lr) { return lr == 1; }),
              HasSubstr("3 of 6 combinations fail in some trials, all of them with lr 2. Each of "
                        "them fails in 1 of 1 trial because its loss ends above the baseline's."));
  // Nothing is common to p and q, and what safe combinations have, too, is no cause.
  const std::string mixed =
      study([](int plan, int lr) { return plan < 2 && (plan == 0 || lr == 0); });
  EXPECT_THAT(mixed, HasSubstr("3 of 6 combinations fail in some trials. Each of them"));
  EXPECT_THAT(study([](int, int) { return true; }), Not(HasSubstr("all of them with")));
}

TEST(StudyFacts, OthersMayBeAsCheapAsTheCheapest) {
  const auto verdict = [](const std::vector<std::string>& plans, int failing) {
    return make_study_facts(made_study(plans, 2,
                                       [&](TrialRow& trial, int plan, int) {
                                         finish_trial(trial,
                                                      plan >= 0 && plan < failing ? 1.5 : 1.0,
                                                      plan == 3 ? 24.0 : 16.0);
                                       }))
        .verdict.headline;
  };
  EXPECT_EQ(verdict({"a", "b"}, 0),
            "No plan fails in any seed. The cheapest plan is a; b is as cheap.");
  EXPECT_THAT(verdict({"a", "b", "c"}, 0),
              HasSubstr("The cheapest plan is a; 2 others are as cheap."));
  EXPECT_THAT(verdict({"a", "b", "c", "d"}, 1),
              HasSubstr("The cheapest plan that never failed is b; c is as cheap."));
  EXPECT_THAT(verdict({"a", "b", "c", "d"}, 2),
              HasSubstr("The cheapest plan that never failed is c."));
}

TEST(StudyFacts, OneCombinationMayFailMostOften) {
  // p fails in 3 seeds, q and r in 2, s in none.
  const auto headline = [](int first) {
    return make_study_facts(made_study({"p", "q", "r", "s"}, 3,
                                       [&](TrialRow& trial, int plan, int seed) {
                                         const int failing = plan == 0 ? first : plan == 3 ? 0 : 2;
                                         const bool fails = plan >= 0 && seed < failing;
                                         finish_trial(trial, fails ? 1.5 : 1.0, 16.0);
                                       }))
        .verdict.headline;
  };
  EXPECT_THAT(headline(3), HasSubstr("3 of 4 plans fail in some seeds. p fails most often: in 3 of "
                                     "3 seeds because its loss ends above the baseline's."));
  EXPECT_THAT(headline(2), HasSubstr("Each of them fails in 2 of 3 seeds because"))
      << "they are equal";
  EXPECT_THAT(headline(1), HasSubstr("2 of them fail most often: in 2 of 3 seeds"));
}

TEST(StudyFacts, ABaselineThatDidNotLearnIsSaid) {
  // The losses begin at 2. With the larger learning rate they stay there.
  const auto study = [](double end) {
    return make_study_facts(study_of_settings([&](TrialRow& trial, int, int lr) {
      finish_trial(trial, lr == 0 ? 1.0 : end, trial.baseline ? 32.0 : lr == 0 ? 16.0 : 8.0);
    }));
  };
  const StudyFacts flat = study(1.99);
  EXPECT_THAT(
      flat.verdict.more,
      HasSubstr("float32 (lr 2, baseline) does not learn: its loss goes from 2 to 1.99. Fix "
                "that before comparing formats."));
  EXPECT_EQ(flat.verdict.state, Verdict::State::inconclusive)
      << "nothing fails, but nothing learns";
  // There, no format can fail, so none is called cheap or good, whatever it costs.
  for (const StudyGroup& group : flat.groups) {
    const bool learned = group.name.find("lr 0.1") != std::string::npos;
    EXPECT_EQ(group.comparable, learned) << group.name;
    EXPECT_TRUE(learned || !group.on_front) << group.name;
  }
  ASSERT_GE(flat.cheapest, 0);
  EXPECT_EQ(flat.groups[static_cast<size_t>(flat.cheapest)].bits, 16.0);
  const StudyFacts learned = study(1.9);
  EXPECT_THAT(learned.verdict.more, Not(HasSubstr("not learn")));
  EXPECT_EQ(learned.verdict.state, Verdict::State::healthy);
  ASSERT_GE(learned.cheapest, 0);
  EXPECT_EQ(learned.groups[static_cast<size_t>(learned.cheapest)].bits, 8.0);
}

TEST(GapAxis, HasAPlaceForEveryGapAndRoundTicks) {
  const StudyFacts facts = make_study_facts(sample_study());
  const GapAxis axis(facts, 0.05);
  EXPECT_LT(axis.place(0.0), axis.place(0.02));
  EXPECT_LT(axis.place(0.02), axis.place(0.04));
  for (const double gap : axis.ticks()) EXPECT_TRUE(axis.shows(gap)) << gap;
  EXPECT_THAT(axis.ticks(), testing::Contains(0.0));
  EXPECT_EQ(axis.place(1e9), 1.0);
  const FanRange range = fan_range(facts);
  EXPECT_EQ(range.first, 0.0);
  EXPECT_EQ(range.last, 99.0);
  EXPECT_LE(range.low, 1.0);
  EXPECT_GT(fan_range(make_study_facts(partial_study(0))).low,
            fan_range(make_study_facts(partial_study(0))).high);
}

}  // namespace
}  // namespace halfscope::test
