// SPDX-License-Identifier: MIT
// Groups of weights with other settings, Nesterov's momentum and learning rates from files. One
// step of plain SGD says what the gradients are, and so what every other step must do.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <filesystem>

#include "core/data/npz.h"
#include "core/error.h"
#include "core/numeric/formats/round.h"
#include "core/policy/policy.h"
#include "tests/train/small_training.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: helpers of these tests
namespace fs = std::filesystem;

TrainConfig one_step(const char* optimizer) {
  TrainConfig setup = config(kMlp, "float64", "none");
  setup.steps = 1;
  setup.optimizer = parse_optimizer(optimizer);
  return setup;
}

/// Expects a[path] to be f(start[path], plain[path]), where `plain` is after a step of SGD.
template <class F>
void expect_each(const Result& a, const Result& start, const Result& plain, const std::string& path,
                 const F& f) {
  const std::vector<float>&own = a.weights.at(path).data, &w = start.weights.at(path).data;
  const std::vector<float>& moved = plain.weights.at(path).data;
  double most = 0.0;
  for (size_t i = 0; i < own.size(); ++i) {
    const double expected = f(static_cast<double>(w[i]), static_cast<double>(moved[i]));
    ASSERT_NEAR(own[i], expected, 1e-6) << path << " " << i;
    most = std::max(most, std::fabs(static_cast<double>(w[i] - moved[i])));
  }
  EXPECT_GT(most, 1e-4) << path << " does not move, so nothing was tested";
}

TEST(ParameterGroups, HaveTheirRateAndDecay) {
  const Result start = train(one_step("sgd:lr=0")), plain = train(one_step("sgd:lr=0.5"));
  TrainConfig setup = one_step("sgd:lr=0.5,weight_decay=0.25");
  setup.groups = {parse_parameter_group("fc1.weight:lr=0.125"),
                  parse_parameter_group("*.bias:weight_decay=0"),
                  parse_parameter_group("fc?.weight:lr=0.25,weight_decay=0.5")};
  const Result grouped = train(setup);
  expect_each(grouped, start, plain, "fc1.weight",
              [](double w, double moved) { return w + 0.25 * (moved - w) - 0.125 * 0.25 * w; });
  expect_each(grouped, start, plain, "fc1.bias", [](double, double moved) { return moved; });
  expect_each(grouped, start, plain, "fc2.bias", [](double, double moved) { return moved; });
  expect_each(grouped, start, plain, "fc2.weight",
              [](double w, double moved) { return w + 0.5 * (moved - w) - 0.25 * 0.5 * w; });
  EXPECT_EQ(grouped.seen.rows[0].learning_rate, 0.5);
}

// AdamW's decay is a step of its own, rate * decay * w.
TEST(ParameterGroups, DecoupledDecayHasTheGroupsRate) {
  const Result start = train(one_step("sgd:lr=0"));
  TrainConfig without = one_step("adamw:lr=0.01,weight_decay=0"), with = without;
  without.groups = {parse_parameter_group("fc1.*:lr=0.001")};
  with.groups = {parse_parameter_group("fc1.*:lr=0.001,weight_decay=100"),
                 parse_parameter_group("fc2.*:weight_decay=10")};
  const Result plain = train(without), decayed = train(with);
  for (const char* path : {"fc1.weight", "fc2.weight"}) {
    expect_each(decayed, start, plain, path,
                [](double w, double moved) { return moved - 0.1 * w; });
  }
}

TEST(ParameterGroups, ScheduleChangesAllRates) {
  TrainConfig setup = one_step("sgd:lr=0.5"), late = setup;
  setup.groups = late.groups = {parse_parameter_group("fc1.*:lr=0.25")};
  late.steps = 3;
  late.schedule = parse_schedule("step:every=1,gamma=0");
  expect_same_weights(train(late).weights, train(setup).weights);
}

TEST(ParameterGroups, RoundedUpdatesHaveThem) {
  TrainConfig setup = config(kMlp, "float32", "none");
  setup.steps = 1;
  setup.optimizer = parse_optimizer("sgd:lr=0.5");
  setup.lanes[0].plan.update_compute = kBf16;
  const Result plain = train(setup);
  setup.optimizer = parse_optimizer("sgd:lr=0.125");
  setup.groups = {parse_parameter_group("*:lr=0.5")};
  expect_same_weights(train(setup).weights, plain.weights);
}

TEST(ParameterGroups, AGroupWithoutTrainedWeightsIsRefused) {
  TrainConfig setup = one_step("sgd");
  setup.groups = {parse_parameter_group("fc4.*:lr=0.1")};
  try {
    train(setup);
    ADD_FAILURE() << "trained";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("'fc4.*' matches no weight"), std::string::npos);
  }
}

TEST(ParameterGroups, AnOptionThatTheOptimizerLacksIsRefused) {
  TrainConfig setup = one_step("sgd");
  for (const char* earlier : {"fc2.*:lr=0.1", "*:lr=0.1"}) {
    setup.groups = {parse_parameter_group(earlier), parse_parameter_group("fc1.*:beta1=0.5")};
    try {
      train(setup);
      ADD_FAILURE() << "trained";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_EQ(std::string(error.what()), "parameter group 'fc1.*': sgd has no option 'beta1'");
    }
  }
}

/// Resumes a training of `first` after one step with the settings of `second`; returns what was
/// wrong.
std::string resumed(const TrainConfig& first, const TrainConfig& second) {
  Collector seen;
  const std::atomic<bool> never{false};
  Trainer before(first, data());
  before.run(&seen, {}, never);
  Trainer after(second, data());
  try {
    after.resume(before.checkpoint());
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ParameterGroups, AResumedTrainingMustHaveTheSame) {
  TrainConfig plain = one_step("sgd");
  TrainConfig grouped = plain, other = plain;
  grouped.groups = {parse_parameter_group("fc1.*:lr=0.25")};
  other.groups = {parse_parameter_group("fc1.*:lr=0.5")};
  EXPECT_EQ(resumed(grouped, grouped), "");
  EXPECT_EQ(resumed(grouped, plain), "the checkpoint was made with --param-group (missing here)");
  EXPECT_EQ(resumed(plain, grouped), "the checkpoint was made without --param-group");
  EXPECT_EQ(resumed(grouped, other), "the checkpoint was made with another --param-group");
}

TEST(ParameterGroups, AResumedTrainingMustHaveHadTheSameRates) {
  TrainConfig first = one_step("sgd");
  first.schedule = parse_schedule("file:a.npy");
  first.schedule.rates = {0.5};
  TrainConfig longer = first, other = first;
  longer.steps = 2;
  longer.schedule.file = "b.npy";
  longer.schedule.rates = {0.5, 0.25};
  other.schedule.rates = {0.25};
  EXPECT_EQ(resumed(first, longer), "");
  EXPECT_EQ(resumed(first, other), "the checkpoint was made with another --schedule");
  TrainConfig cycled = first, moved = first;
  cycled.optimizer = moved.optimizer = first.optimizer = parse_optimizer("sgd:momentum=0.5");
  cycled.schedule.series = {{{"momentum"}, {0.5}}};
  moved.schedule.series = {{{"momentum"}, {0.75}}};
  EXPECT_EQ(resumed(cycled, cycled), "");
  EXPECT_EQ(resumed(cycled, first), "the checkpoint was made with another --schedule");
  EXPECT_EQ(resumed(cycled, moved), "the checkpoint was made with another --schedule");
}

/// Returns a schedule with a value for each step of `steps`, which all are the same.
Schedule unchanged(double rate, int64_t steps,
                   const std::vector<std::pair<const char*, double>>& options) {
  const size_t count = static_cast<size_t>(steps);
  Schedule schedule = parse_schedule("file:a.npz");
  schedule.rates.assign(count, rate);
  for (const auto& [text, value] : options) {
    schedule.series.push_back(
        {parse_scheduled_option(text).value(), std::vector<double>(count, value)});
  }
  return schedule;
}

/// Expects the same bits from options that are constants and from options that a file sets to these
/// constants in every step.
void expect_same_training(TrainConfig constant, const Schedule& schedule, const char* others) {
  TrainConfig scheduled = constant;
  scheduled.schedule = schedule;
  scheduled.optimizer = parse_optimizer(others);
  const Result expected = train(constant), actual = train(scheduled);
  expect_same_steps(expected.seen, actual.seen);
  expect_same_weights(actual.weights, expected.weights);
}

TEST(ScheduledOptions, AreTheConstantsThatTheyReplace) {
  for (const char* plan : {"float32", "float64", "bfloat16"}) {
    TrainConfig setup = config(kMlp, plan, "none");
    setup.steps = 4;
    for (const FloatFormat& compute : {kFp32, kBf16}) {
      SCOPED_TRACE(plan + std::string(" updates in ") + format_name(compute));
      if (plan != std::string("float64")) setup.lanes[0].plan.update_compute = compute;
      setup.groups = {};
      setup.optimizer = parse_optimizer("sgd:lr=0.125,momentum=0.75,dampening=0.5");
      expect_same_training(setup, unchanged(0.125, 4, {{"momentum", 0.75}}),
                           "sgd:lr=0.125,dampening=0.5");
      setup.optimizer = parse_optimizer("sgd:lr=0.125,momentum=0.75,nesterov=true");
      expect_same_training(setup, unchanged(0.125, 4, {{"momentum", 0.75}}),
                           "sgd:lr=0.125,momentum=0.1,nesterov=true");
      setup.optimizer = parse_optimizer("rmsprop:lr=0.01,momentum=0.75");
      expect_same_training(setup, unchanged(0.01, 4, {{"momentum", 0.75}}), "rmsprop:lr=0.01");
      setup.groups = {parse_parameter_group("*.bias:beta1=0.5"),
                      parse_parameter_group("fc2.*:lr=0.04")};
      setup.optimizer = parse_optimizer("adamw:lr=0.02,beta1=0.8");
      expect_same_training(setup, unchanged(0.02, 4, {{"beta1", 0.8}, {"fc2.*:lr", 0.04}}),
                           "adamw:lr=0.02");
      expect_same_training(setup, unchanged(0.02, 4, {{"beta1", 0.8}, {"*.bias:beta1", 0.5}}),
                           "adamw:lr=0.02");
    }
  }
}

TEST(ScheduledOptions, AResumedTrainingGoesOnWithTheSameBits) {
  for (const auto& [optimizer, option] :
       {std::pair("adam:lr=0.01", "beta1"), std::pair("sgd:lr=0.1", "momentum")}) {
    TrainConfig setup = config(kMlp, "mixed_float16", "dynamic:65536");
    setup.steps = 6;
    setup.optimizer = parse_optimizer(optimizer);
    setup.groups = {parse_parameter_group("*.bias:weight_decay=0.5")};
    setup.schedule = unchanged(0.01, 6, {{option, 0.5}, {"*.bias:lr", 0.1}});
    for (size_t step = 0; step < 6; ++step) {
      setup.schedule.series[0].values[step] = 0.9 - 0.1 * static_cast<double>(step);
      setup.schedule.series[1].values[step] = 0.02 * static_cast<double>(step);
    }
    const Result whole = train(setup);
    TrainConfig part = setup;
    part.steps = 3;
    Collector seen;
    const std::atomic<bool> never{false};
    Trainer before(part, data()), after(setup, data());
    before.run(&seen, {}, never);
    after.resume(before.checkpoint());
    after.run(&seen, {}, never);
    expect_same_weights(after.weights(0), whole.weights);
    setup.schedule.series[0].values.assign(6, 0.9);
    EXPECT_NE(train(setup).weights.at("fc1.weight").data, whole.weights.at("fc1.weight").data);
  }
}

TEST(ScheduledOptions, MustBeThoseOfTheTraining) {
  const auto refused = [](const char* optimizer, const char* array, const std::string& what) {
    TrainConfig setup = one_step(optimizer);
    setup.groups = {parse_parameter_group("fc1.*:lr=0.25")};
    setup.schedule = unchanged(0.5, 1, {{array, 0.5}});
    try {
      train(setup);
      ADD_FAILURE() << "trained with " << array;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_EQ(error.what(),
                "schedule: 'a.npz' has an array '" + std::string(array) + "', but " + what);
    }
  };
  refused("sgd", "beta1", "the optimizer has no option 'beta1'");
  refused("adam", "fc1.*:momentum", "the optimizer has no option 'momentum'");
  refused("sgd", "fc2.*:lr", "no parameter group has the glob 'fc2.*'");
}

// The first momentum is g, so the first step goes 1 + momentum times as far; torch.optim.SGD.
TEST(Nesterov, LooksAhead) {
  const Result start = train(one_step("sgd:lr=0")), plain = train(one_step("sgd:lr=0.125"));
  const Result ahead = train(one_step("sgd:lr=0.125,momentum=0.5,nesterov=true"));
  for (const char* path : {"fc1.weight", "fc2.weight"}) {
    expect_each(ahead, start, plain, path,
                [](double w, double moved) { return w + 1.5 * (moved - w); });
  }
}

// In bf16, 1 + momentum is rounded like all else: 1.5 g has at most one bit more than g.
TEST(Nesterov, RoundedUpdatesLookAhead) {
  TrainConfig setup = config(kMlp, "float32", "none");
  setup.steps = 1;
  setup.optimizer = parse_optimizer("sgd:lr=0.125,momentum=0.5,nesterov=true");
  const Result exact = train(setup);
  setup.optimizer = parse_optimizer("sgd:lr=0");
  const Result start = train(setup);
  setup.optimizer = parse_optimizer("sgd:lr=0.125,momentum=0.5,nesterov=true");
  setup.lanes[0].plan.update_compute = kBf16;
  const Result rounded = train(setup);
  const std::vector<float>& w = start.weights.at("fc1.weight").data;
  double error = 0.0, length = 0.0;
  for (size_t i = 0; i < w.size(); ++i) {
    const float a = rounded.weights.at("fc1.weight").data[i];
    const float b = exact.weights.at("fc1.weight").data[i];
    error += std::pow(static_cast<double>(a - b), 2.0);
    length += std::pow(static_cast<double>(b - w[i]), 2.0);
  }
  EXPECT_GT(length, 0.0);
  EXPECT_LT(error, 1e-4 * length)
      << "bf16 is off by up to 2^-9 a step; without momentum by a third";
}

class RateFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("halfscope-rates-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  Schedule written(const NamedDoubleTensors& arrays) {
    const fs::path file = folder_ / "rates.npz";
    write_npz_double(file, arrays);
    Schedule schedule = parse_schedule("file:" + file.string());
    EXPECT_EQ(schedule_text(schedule), "file:" + file.string());
    read_rates(schedule);
    return schedule;
  }

  fs::path folder_;
};

TEST_F(RateFiles, AreWhatTheStepsRunWith) {
  TrainConfig setup = config(kMlp, "float32", "none");
  setup.steps = 3;
  setup.optimizer.learning_rate = 0.25;
  setup.groups = {parse_parameter_group("fc2.*:lr=0.5")};
  setup.schedule = written({{"lr", {{4}, {0.125, 0.5, 0.0, 7.0}}}});
  const Result seen = train(setup);
  ASSERT_EQ(seen.seen.rows.size(), 3u);
  EXPECT_EQ(seen.seen.rows[0].learning_rate, 0.125);
  EXPECT_EQ(seen.seen.rows[1].learning_rate, 0.5);
  EXPECT_EQ(seen.seen.rows[2].learning_rate, 0.0);
  // The same by another schedule: 1/8 and 1/4, times 1 and 4.
  TrainConfig steps = setup;
  steps.steps = 2;
  steps.optimizer.learning_rate = 0.125;
  steps.groups = {parse_parameter_group("fc2.*:lr=0.25")};
  steps.schedule = parse_schedule("step:every=1,gamma=4");
  expect_same_weights(seen.weights, train(steps).weights);
}

TEST_F(RateFiles, ARateIsRoundedToTheFormatOfThePlan) {
  const Schedule schedule = written({{"lr", {{2}, {0.3, 1e-9}}}});
  EXPECT_EQ(learning_rate(schedule, 1.0, 0, 2, kFp16), round_to_format(0.3, kFp16).value);
  EXPECT_EQ(learning_rate(schedule, 1.0, 1, 2, kFp16), 0.0);
  EXPECT_EQ(learning_rate(schedule, 2.0, 0, 2, kFp32, 1.0), 0.6);
}

TEST_F(RateFiles, HaveArraysOfOptionsAndGroups) {
  const Schedule schedule = written({{"lr", {{2}, {0.5, 0.25}}},
                                     {"beta1", {{2}, {0.0, 0.5}}},
                                     {"a:0:momentum", {{2}, {0.75, 0.5}}},
                                     {"*.bias:lr", {{2}, {0.0, 2.0}}}});
  EXPECT_EQ(schedule.rates, std::vector<double>({0.5, 0.25}));
  ASSERT_EQ(schedule.series.size(), 3u);  // in the order of their names
  EXPECT_EQ(schedule.series[0], (OptionSeries{{"lr", "*.bias"}, {0.0, 2.0}}));
  EXPECT_EQ(schedule.series[1], (OptionSeries{{"momentum", "a:0"}, {0.75, 0.5}}));
  EXPECT_EQ(schedule.series[2], (OptionSeries{{"beta1"}, {0.0, 0.5}}));
  EXPECT_EQ(series_rate(schedule, 0, 1, kFp32), 2.0);
  EXPECT_EQ(series_rate(written({{"lr", {{1}, {1.0}}}, {"a:lr", {{1}, {0.3}}}}), 0, 0, kFp16),
            round_to_format(0.3, kFp16).value);
}

TEST_F(RateFiles, WhatTheyMustContain) {
  const auto refused = [&](const NamedDoubleTensors& arrays, const char* what) {
    try {
      written(arrays);
      ADD_FAILURE() << "accepted: " << what;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
  };
  refused({{"a", {{1}, {1.0}}}, {"lr", {{1}, {1.0}}}}, "has an array 'a', which is no option");
  refused({{":lr", {{1}, {1.0}}}, {"lr", {{1}, {1.0}}}}, "has an array ':lr', which is no option");
  refused({{"momentum", {{1}, {0.5}}}}, "has no array 'lr'");
  refused({{"beta1", {{1}, {1.0}}}, {"lr", {{1}, {1.0}}}}, "has the beta1 1 in step 0");
  refused({{"lr", {{2}, {1.0, 1.0}}}, {"momentum", {{2}, {0.5, 0.0}}}},
          "has the momentum 0 in step 1");
  refused({{"a:lr", {{1}, {1.0}}}, {"lr", {{2}, {1.0, 1.0}}}},
          "has 2 learning rates, but 'a:lr' has 1 values");
  refused({{"a", {{1, 2}, {1.0, 2.0}}}}, "has an array of shape [1, 2]");
  refused({{"a", {{2}, {1.0, NAN}}}}, "has the learning rate nan in step 1");
  refused({{"a", {{1}, {-1.0}}}}, "has the learning rate -1 in step 0");
  EXPECT_THROW(parse_schedule("file"), Error);
  EXPECT_THROW(parse_schedule("file:"), Error);
  Schedule missing = parse_schedule("file:" + (folder_ / "none.npy").string());
  EXPECT_THROW(read_rates(missing), Error);

  TrainConfig setup = config(kMlp, "float32", "none");
  setup.steps = 3;
  setup.schedule = written({{"lr", {{2}, {1.0, 1.0}}}});
  try {
    train(setup);
    ADD_FAILURE() << "trained more steps than there are rates";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("2 learning rates, too few for 3 steps"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace halfscope
