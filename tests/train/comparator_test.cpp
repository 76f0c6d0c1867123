// SPDX-License-Identifier: MIT
// Errors between lanes: distances against a count along the sorted values of a format, local and
// inherited errors against sums worked out here in double, and when the trainer sends them.
#include "core/observe/comparator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "core/error.h"
#include "core/models/models.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/statistics/ulp.h"
#include "core/policy/policy.h"
#include "tests/train/faulty_backend.h"
#include "tests/train/small_training.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: helpers of these tests

/// Returns all finite values of e5m2, ascending, zero once.
std::vector<float> values_of_e5m2() {
  std::vector<float> values;
  for (uint32_t code = 0; code < 128; ++code) {
    const int exponent = static_cast<int>(code >> 2), mantissa = static_cast<int>(code & 3);
    if (exponent == 31) continue;
    const float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -16)
                                      : std::ldexp(static_cast<float>(4 + mantissa), exponent - 17);
    values.push_back(value);
    if (value != 0.0f) values.push_back(-value);
  }
  std::sort(values.begin(), values.end());
  return values;
}

TEST(CompareValues, DistancesAreCountedAlongTheValues) {
  const std::vector<float> values = values_of_e5m2();
  ASSERT_EQ(values.size(), 247u);
  for (size_t i = 0; i < values.size(); ++i) {
    const std::vector<float> x(values.size(), values[i]);
    const SiteError error = compare_values(x, values, 1.0, kE5m2);
    std::array<int64_t, SiteError::kBins> expected{};
    int64_t flips = 0;
    double difference = 0.0, size = 0.0;
    for (size_t j = 0; j < values.size(); ++j) {
      const uint64_t steps = i > j ? i - j : j - i;
      ++expected[steps == 0 ? 0 : static_cast<size_t>(std::bit_width(steps))];
      flips += (values[i] > 0.0f) != (values[j] > 0.0f);
      difference += std::pow(static_cast<double>(values[i]) - static_cast<double>(values[j]), 2);
      size += std::pow(static_cast<double>(values[j]), 2);
    }
    EXPECT_EQ(error.ulps, expected) << values[i];
    EXPECT_EQ(error.differing, 246);
    EXPECT_EQ(error.sign_flips, flips);
    EXPECT_EQ(error.max_ulps, static_cast<double>(std::max(i, values.size() - 1 - i)));
    EXPECT_NEAR(error.total, std::sqrt(difference / size), 1e-12);
  }
}

// Any number against values of the format: the distance is that of core/numeric/statistics/ulp.h,
// whose own test counts along the values of several formats.
TEST(CompareValues, AnyNumberIsRoundedToTheFormatFirst) {
  for (const FloatFormat& format :
       {kFp16, kBf16, kE4m3fn, kE5m2, kTf32, kFp32, *parse_format("e3m2")}) {
    for (uint64_t i = 0; i < 20000; ++i) {
      const uint64_t random = splitmix64(i);
      // Near the range of the format, where subnormals, overflow and other signs meet.
      const auto draw = [&](uint64_t bits) {
        const int exponent =
            format.min_exponent() - 4 +
            static_cast<int>(bits % 61) * (format.max_exponent() - format.min_exponent() + 8) / 60;
        const float mantissa = 1.0f + static_cast<float>((bits >> 8) & 0x7fffff) * 0x1p-23f;
        return std::ldexp((bits >> 40 & 1) != 0 ? -mantissa : mantissa, exponent);
      };
      const float x = round_to_format(draw(random), format).value;
      const float other = (random >> 50) % 3 == 0
                              ? draw(splitmix64(random))
                              : x * (1.0f + static_cast<float>((random >> 44) % 64) * 0x1p-9f);
      if (!std::isfinite(x)) continue;
      const int64_t expected = ulp_distance(x, other, format);
      const SiteError error =
          compare_values(std::vector<float>{x}, std::vector<float>{other}, 1.0, format);
      const size_t bin = !std::isfinite(other) && expected != 0
                             ? SiteError::kBins - 1
                             : std::min<size_t>(std::bit_width(static_cast<uint64_t>(expected)),
                                                SiteError::kBins - 1);
      ASSERT_EQ(error.ulps[bin], 1)
          << format_name(format) << " " << x << " " << other << " " << expected;
      ASSERT_EQ(error.differing, expected != 0);
    }
  }
}

TEST(CompareValues, TheOtherIsBroughtToScaleAndRounded) {
  // 1.1 * 4 = 4.4 is between 4 and 5 of e5m2 and rounds to 4, so the distance is 0 steps.
  const SiteError error =
      compare_values(std::vector<float>{4.0f}, std::vector<float>{1.1f}, 4.0, kE5m2);
  EXPECT_EQ(error.differing, 0);
  EXPECT_EQ(error.ulps[0], 1);
  EXPECT_NEAR(error.total, 0.4 / 4.4, 1e-6) << "the norm sees the unrounded value";
}

TEST(CompareValues, WhatIsFiniteInOneLaneOnlyGoesToTheLastBin) {
  const float nan = std::nanf(""), inf = INFINITY;
  const std::vector<float> x{inf, nan, nan, inf, 1.0f}, y{1.0f, 1.0f, nan, inf, 1.0f};
  const SiteError error = compare_values(x, y, 1.0, kFp16);
  EXPECT_EQ(error.ulps[SiteError::kBins - 1], 2);
  EXPECT_EQ(error.ulps[0], 3);
  EXPECT_EQ(error.differing, 2);
  EXPECT_EQ(error.total, 0.0) << "over elements finite in both";
}

/// A lane of the small MLP after `grad`, driven by hand.
struct Driven {
  Executable exe;
  std::unique_ptr<Program> program;
  double scale;

  Driven(const char* plan, double loss_scale)
      : exe(lower(build_mlp({256, 40, 24, 10}, 16, {1, 16, 16}), preset_plan(plan).value(), {})),
        scale(loss_scale) {
    program = emulation_backend().compile(exe);
    const NamedTensors weights = initial_weights(exe.graph, 1);
    for (const Variable& variable : exe.graph.variables()) {
      program->write(variable.value, weights.at(variable.path).data);
    }
    std::vector<float> pixels;
    for (size_t i = 0; i < 16 * 256; ++i)
      pixels.push_back(static_cast<float>(data().train.pixels[i]) / 255.0f);
    program->write(exe.input, pixels);
    program->write(exe.labels, std::vector<int32_t>(data().train.labels.begin(),
                                                    data().train.labels.begin() + 16));
    program->write_scalar(exe.loss_scale, loss_scale);
    program->run(Entry::grad, {});
  }
  ComparedLane compared() const { return {exe, *program, scale}; }
};

std::map<std::string, SiteError> by_name(const Driven& lane, const Driven& other) {
  std::map<std::string, SiteError> errors;
  for (const SiteError& error :
       Comparator(lane.exe, other.exe, 0).compare(3, lane.compared(), other.compared())) {
    EXPECT_EQ(error.step, 3);
    errors[lane.exe.taps[static_cast<size_t>(error.site)].site.name()] = error;
  }
  return errors;
}

TEST(Comparator, EqualLanesHaveNoErrors) {
  const Driven a("float32", 1.0), b("float32", 1.0);
  const auto errors = by_name(a, b);
  EXPECT_TRUE(errors.contains("fc1.activation") && errors.contains("fc2.weight_grad"));
  for (const auto& [name, error] : errors) {
    EXPECT_EQ(error.differing, 0) << name;
    EXPECT_EQ(error.total, 0.0) << name;
    EXPECT_EQ(error.ulps[0], error.n) << name;
    if (std::isnan(error.local_fp32)) continue;  // inputs and variables
    EXPECT_EQ(error.local_fp32, 0.0) << name << ": fp32 once more is the same bits";
    EXPECT_LT(error.local_fp64, 1e-6) << name;
  }
}

// fc1 in mixed_float16: its operands are the pixels and the fp32 weights, which both lanes share,
// so all of its error is its own: operands rounded to fp16, summed in fp32, the result rounded to
// fp16.
TEST(Comparator, TheFirstLayersErrorIsLocal) {
  const Driven reference("float32", 1.0), mixed("mixed_float16", 1024.0);
  const SiteError error = by_name(mixed, reference).at("fc1.activation");
  const NamedTensors weights = initial_weights(mixed.exe.graph, 1);
  const std::vector<float>& w = weights.at("fc1.weight").data;
  const std::vector<float>& bias = weights.at("fc1.bias").data;
  const auto half = [](float x) { return static_cast<double>(round_to_format(x, kFp16).value); };
  double difference = 0.0, size = 0.0;
  for (size_t sample = 0; sample < 16; ++sample) {
    for (size_t out = 0; out < 40; ++out) {
      double exact = static_cast<double>(bias[out]), narrowed = half(bias[out]);
      for (size_t k = 0; k < 256; ++k) {
        const float pixel = static_cast<float>(data().train.pixels[sample * 256 + k]) / 255.0f;
        exact += static_cast<double>(pixel) * static_cast<double>(w[out * 256 + k]);
        narrowed += half(pixel) * half(w[out * 256 + k]);
      }
      const double result = half(static_cast<float>(narrowed));
      difference += (result - exact) * (result - exact);
      size += exact * exact;
    }
  }
  const double expected = std::sqrt(difference / size);
  // Sums in fp32 instead of double move a few results to the neighbouring fp16 value.
  EXPECT_NEAR(error.local_fp64, expected, 0.05 * expected);
  EXPECT_NEAR(error.local_fp32, expected, 0.05 * expected);
  EXPECT_LT(error.inherited, 1e-6) << "nothing but the order of summation";
  EXPECT_NEAR(error.total, error.local_fp64, 0.01 * expected);
}

TEST(Comparator, LaterLayersInheritAndGradientsAreUnscaled) {
  const Driven reference("float32", 1.0), mixed("mixed_float16", 1024.0);
  const auto errors = by_name(mixed, reference);
  const SiteError& second = errors.at("fc2.activation");
  EXPECT_GT(second.inherited, 1e-5);
  EXPECT_GT(second.local_fp64, 1e-5);
  EXPECT_LE(second.total, 1.01 * (second.local_fp64 + second.inherited))
      << "the triangle's third side";
  for (const char* name : {"fc1.weight_grad", "fc3.activation_grad", "relu1.activation_grad"}) {
    EXPECT_LT(errors.at(name).total, 0.01) << name << ": the loss scale is no error";
    EXPECT_GT(errors.at(name).total, 1e-6) << name;
  }
  EXPECT_FALSE(errors.contains("loss.loss_scale"));
  EXPECT_FALSE(errors.contains("fc1.weight_update"));
}

TEST(Comparator, RerunningChangesNothing) {
  const Driven reference("float32", 1.0);
  Driven mixed("mixed_float16", 1024.0);
  const auto read_all = [&] {
    std::vector<std::vector<float>> all;
    for (const Tap& tap : mixed.exe.taps) {
      if (tap.site.phase != Phase::update) all.push_back(mixed.program->read(tap.value).data);
    }
    return all;
  };
  const auto before = read_all();
  by_name(mixed, reference);
  EXPECT_EQ(read_all(), before);
}

TEST(TrainerErrors, AreSentAtSampledStepsForTheWantedPairs) {
  TrainConfig setup = config(kMlp, "float32", "none");
  setup.lanes.push_back(lane(preset_plan("mixed_float16").value(), "dynamic"));
  setup.lanes.push_back(lane(preset_plan("mixed_bfloat16").value(), "none"));
  setup.steps = 9;
  setup.errors.enabled = true;
  const auto seen = [&](const TrainConfig& each) {
    std::map<std::pair<int, int>, std::vector<int64_t>> steps;  // by lane and other lane
    for (const auto& [lane, error] : train(each).seen.errors) {
      std::vector<int64_t>& list = steps[{lane, error.other_lane}];
      if (list.empty() || list.back() != error.step) list.push_back(error.step);
    }
    return steps;
  };
  using Steps = std::vector<int64_t>;
  auto steps = seen(setup);
  EXPECT_EQ(steps.size(), 2u);
  EXPECT_EQ((steps[{1, 0}]), (Steps{0, 4, 8}));
  EXPECT_EQ((steps[{2, 0}]), (Steps{0, 4, 8}));
  setup.errors.every = 5;
  setup.errors.pairs = {{"mixed_float16", "mixed_bfloat16"}};
  steps = seen(setup);
  EXPECT_EQ(steps.size(), 1u);
  EXPECT_EQ((steps[{1, 2}]), (Steps{0, 5}));
  setup.errors.pairs = {{"mixed_float16", "mixed_bfloat61"}};
  EXPECT_THROW(train(setup), Error);
  setup.errors.enabled = false;
  setup.errors.pairs.clear();
  EXPECT_TRUE(seen(setup).empty());
}

// Tensors in double have no sites in the run and no format to count distances in.
TEST(TrainerErrors, LeaveOutLanesInDouble) {
  TrainConfig setup = config(kMlp, "float64", "none");
  setup.lanes.push_back(lane(Plan{}, "none"));
  setup.lanes.push_back(lane(preset_plan("mixed_float16").value(), "dynamic"));
  setup.errors.enabled = true;
  const Result result = train(setup);
  EXPECT_FALSE(result.seen.errors.empty());
  for (const auto& [lane, error] : result.seen.errors) {
    EXPECT_EQ(lane, 2);
    EXPECT_EQ(error.other_lane, 1);
  }
  for (const auto& pair : {std::pair{"float64", "float32"}, std::pair{"float32", "float64"}}) {
    setup.errors.pairs = {pair};
    EXPECT_THROW(Trainer(setup, data()), Error);
  }
}

// Two lanes of equal bits: wherever an operator could be run again, it gives the same once more.
// Running statistics have moved on in place by then, so they are not run again.
TEST(TrainerErrors, OfEqualLanesAreZeroWithBatchNormalization) {
  for (const bool stagewise : {false, true}) {
    TrainConfig setup = config("resnet20", "float32", "none");
    setup.lanes.push_back(setup.lanes[0]);
    setup.lanes[1].plan.name = "again";
    for (LaneConfig& each : setup.lanes) each.plan.defaults.stagewise = stagewise;
    setup.steps = 2;
    setup.errors.enabled = true;
    setup.errors.every = 1;
    setup.errors.pairs = {{"again", "float32"}};
    Trainer trainer(setup, small_images());
    const RunInfo info = trainer.describe();
    Collector seen;
    const std::atomic<bool> never{false};
    trainer.run(&seen, {}, never);
    EXPECT_FALSE(seen.errors.empty());
    for (const auto& [lane, error] : seen.errors) {
      const std::string name = info.lanes[1].sites[static_cast<size_t>(error.site)].name();
      EXPECT_EQ(error.differing, 0) << name;
      if (std::isnan(error.local_fp64)) continue;
      EXPECT_LT(error.local_fp64, 1e-3) << name;
      EXPECT_LT(error.inherited, 1e-3) << name;
    }
  }
}

// A result that is not finite although the operator's is, and fits the format, is an unlimited
// local error; an intermediate fp16 sum may overflow.
TEST(TrainerErrors, AreInfiniteWhereAKernelFails) {
  const FaultyBackend faulty("conv1");
  for (const bool narrow_sums : {false, true}) {
    TrainConfig setup = config("lenet", "mixed_float16", "none");
    if (narrow_sums) accumulate_in(setup.lanes[0].plan, Accumulation::format);
    setup.lanes.push_back(setup.lanes[0]);
    setup.lanes[1].backend = &faulty;
    setup.lanes[1].plan.name = "faulty";
    setup.steps = 1;
    setup.errors.enabled = true;
    setup.errors.every = 1;
    setup.errors.pairs = {{setup.lanes[1].name(), setup.lanes[0].name()}};
    Trainer trainer(setup, data());
    const RunInfo info = trainer.describe();
    Collector seen;
    const std::atomic<bool> never{false};
    trainer.run(&seen, {}, never);
    ASSERT_FALSE(seen.errors.empty());
    int64_t infinite = 0;
    for (const auto& [lane, error] : seen.errors) {
      const std::string name = info.lanes[1].sites[static_cast<size_t>(error.site)].name();
      const bool fails = name == "conv1.activation" && !narrow_sums;
      EXPECT_EQ(std::isinf(error.local_fp64), fails) << name;
      EXPECT_EQ(std::isinf(error.local_fp32), fails) << name;
      infinite += fails ? 1 : 0;
    }
    EXPECT_EQ(infinite, narrow_sums ? 0 : 1);
  }
}

// Comparing runs the lanes' gradients before any update; that must not change a bit.
TEST(TrainerErrors, ChangeNoResult) {
  TrainConfig setup = config("resnet20", "float32", "none");
  setup.lanes.push_back(lane(preset_plan("mixed_float16").value(), "dynamic"));
  const Result plain = train(setup, small_images());
  setup.errors.enabled = true;
  setup.errors.every = 1;
  const Result compared = train(setup, small_images());
  EXPECT_FALSE(compared.seen.errors.empty());
  expect_same_steps(plain.seen, compared.seen);
  expect_same_weights(plain.weights, compared.weights);
}

}  // namespace
}  // namespace halfscope
