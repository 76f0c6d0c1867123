// SPDX-License-Identifier: MIT
// The training loop on a small synthetic data set: reproducible to the bit for any number of
// threads, any instruction set, recorded or not; skipped steps, batches, initial weights,
// evaluation and the calls a sink gets.
#include "core/train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <array>
#include <bit>
#include <cmath>
#include <set>

#include "core/error.h"
#include "core/models/models.h"
#include "core/numeric/formats/rng.h"
#include "core/policy/policy.h"
#include "core/train/lane_setup.h"
#include "emulation/backends.h"
#include "emulation/isa.h"
#include "tests/train/small_training.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: helpers of these tests

/// Leaves threads and instruction set as they were.
class MachineSettings {
 public:
  MachineSettings() : threads_(omp_get_max_threads()), isa_(active_isa()) {}
  ~MachineSettings() {
    omp_set_num_threads(threads_);
    set_active_isa(isa_);
  }

 private:
  int threads_;
  Isa isa_;
};

void check_reproducible(const std::string& model) {
  const MachineSettings restore;
  for (const char* plan : {"float32", "mixed_float16", "mixed_bfloat16", "float16"}) {
    for (Accumulation accumulation :
         {Accumulation::fp32, Accumulation::fp64, Accumulation::format}) {
      SCOPED_TRACE(model + " " + plan + " " + std::string(accumulation_name(accumulation)));
      TrainConfig base =
          config(model, plan, std::string(plan).ends_with("float16") ? "static:1024" : "none");
      base.optimizer = parse_optimizer("sgd:momentum=0.9,weight_decay=0.001");
      accumulate_in(base.lanes[0].plan, accumulation);
      const auto run = [&](Isa isa, int threads, int every) {
        TrainConfig variant = base;
        variant.every = every;
        set_active_isa(isa);
        omp_set_num_threads(threads);
        return train(variant);
      };
      const Result reference = run(Isa::baseline, 1, 1);
      EXPECT_FALSE(reference.seen.rows.back().skipped);
      EXPECT_NE(reference.seen.rows[0].loss, reference.seen.rows[2].loss);
      const auto compare = [&](const Result& other, const std::string& what) {
        SCOPED_TRACE(what);
        expect_same_steps(reference.seen, other.seen);
        expect_same_weights(reference.weights, other.weights);
      };
      int threads = 2;
      for (Isa isa : supported_isas()) {
        compare(run(isa, threads, 1),
                std::string(isa_name(isa)) + ", threads " + std::to_string(threads));
        threads = threads == 2 ? 3 : threads == 3 ? 1 : 2;
      }
      compare(run(supported_isas().back(), 3, 1), "3 threads");
      compare(run(supported_isas().back(), 2, 0), "not recorded");
    }
  }
}

TEST(Reproducible, Mlp) { check_reproducible(kMlp); }
TEST(Reproducible, Lenet) { check_reproducible("lenet"); }

// Wide enough for a matrix library to cut its sums, which it may do by the number of threads.
TEST(Reproducible, Float64Lane) {
  const MachineSettings restore;
  for (const char* model : {"mlp:256-1500-10", "lenet"}) {
    SCOPED_TRACE(model);
    const TrainConfig base = config(model, "float64", "none");
    omp_set_num_threads(1);
    const Result one = train(base);
    for (const int threads : {2, 3}) {
      omp_set_num_threads(threads);
      const Result other = train(base);
      expect_same_steps(one.seen, other.seen);
      expect_same_weights(one.weights, other.weights);
    }
  }
}

TEST(Reproducible, AdamAndDynamicScale) {
  const MachineSettings restore;
  TrainConfig base = config(kMlp, "mixed_float16", "dynamic");
  base.optimizer = parse_optimizer("adam");
  omp_set_num_threads(1);
  const Result one = train(base);
  omp_set_num_threads(3);
  const Result three = train(base);
  expect_same_steps(one.seen, three.seen);
  expect_same_weights(one.weights, three.weights);
}

TEST(Reproducible, SeedMatters) {
  TrainConfig base = config(kMlp, "float32", "none");
  const double first = train(base).seen.rows[0].loss;
  base.seed = 2;
  EXPECT_NE(train(base).seen.rows[0].loss, first);
}

TEST(Trainer, AcceptsALaneAmongOthersWithoutChangingIt) {
  TrainConfig both = config(kMlp, "float32", "none");
  both.lanes.push_back(lane(preset_plan("mixed_float16").value(), "static:64"));
  both.lanes.push_back(lane(preset_plan("float64").value(), "none"));
  Collector seen;
  Trainer trainer(both, data());
  trainer.run(&seen, {}, std::atomic<bool>{false});
  ASSERT_EQ(seen.rows.size(), 9u) << "three lanes in turn, three steps";
  EXPECT_TRUE(seen.stats[2].empty()) << "the double-precision lane has no sites";
  EXPECT_NEAR(seen.rows[6].loss, seen.rows[8].loss, 1e-5);
  const Result alone = train(config(kMlp, "mixed_float16", "static:64"));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(seen.rows[3 * i + 1].loss, alone.seen.rows[i].loss);
  expect_same_weights(trainer.weights(1), alone.weights);
}

/// The same batch in every step.
TrainConfig one_batch(const std::string& scale, int64_t steps) {
  TrainConfig result = config(kMlp, "mixed_float16", scale);
  result.batch = 80;
  result.shuffle = false;
  result.steps = steps;
  result.optimizer = parse_optimizer("adam");
  return result;
}

TEST(Trainer, ASkippedStepChangesNothing) {
  const Result skipped = train(one_batch("static:1e9", 2));
  for (const StepRow& row : skipped.seen.rows) {
    EXPECT_TRUE(row.skipped);
    EXPECT_FALSE(std::isfinite(row.grad_norm));
    EXPECT_TRUE(std::isfinite(row.loss));
    EXPECT_GE(row.first_bad, 0);
  }
  expect_same_weights(skipped.weights, train(one_batch("none", 0)).weights);
  // Updates were not measured.
  EXPECT_EQ(skipped.seen.stats[0].back().n, 0);
}

TEST(Trainer, ASkippedStepDoesNotCountForAdam) {
  // The scale halves until the gradients are finite; that step must be Adam's first.
  const Result late = train(one_batch("dynamic:1073741824", 30));
  size_t first = 0;
  while (first < late.seen.rows.size() && late.seen.rows[first].skipped) ++first;
  ASSERT_GT(first, 2u);
  ASSERT_LT(first, 29u);
  const Result cut = train(one_batch("dynamic:1073741824", static_cast<int64_t>(first) + 1));
  const double scale = cut.seen.rows.back().loss_scale;
  EXPECT_EQ(scale, std::ldexp(1073741824.0, -static_cast<int>(first)));
  const Result fresh = train(one_batch("static:" + std::to_string(static_cast<int64_t>(scale)), 1));
  EXPECT_FALSE(fresh.seen.rows[0].skipped);
  expect_same_weights(cut.weights, fresh.weights);
}

TEST(Trainer, BatchesInFileOrderStartAgainAfterTheLastWholeOne) {
  const BatchOrder order(10, 4, 1, false);
  EXPECT_EQ(order.batch(0), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(order.batch(1), (std::vector<int64_t>{4, 5, 6, 7}));
  EXPECT_EQ(order.batch(2), order.batch(0));
  EXPECT_EQ(order.batch(7), order.batch(1));
}

TEST(Trainer, ShuffledEpochsArePermutations) {
  const BatchOrder order(12, 4, 7, true);
  std::vector<std::vector<int64_t>> epochs;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> all;
    for (int64_t step = 0; step < 3; ++step) {
      for (int64_t index : order.batch(epoch * 3 + step)) all.push_back(index);
    }
    const std::set<int64_t> distinct(all.begin(), all.end());
    EXPECT_EQ(distinct.size(), 12u);
    EXPECT_EQ(*distinct.rbegin(), 11);
    epochs.push_back(all);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  EXPECT_EQ(BatchOrder(12, 4, 7, true).batch(4), order.batch(4)) << "any step may be asked first";
  EXPECT_NE(BatchOrder(12, 4, 8, true).batch(0), order.batch(0));
}

TEST(Trainer, ShuffleIsFair) {
  std::array<int, 5> first{};  // how often each sample comes first, over 5000 epochs
  const BatchOrder order(5, 5, 3, true);
  for (int64_t epoch = 0; epoch < 5000; ++epoch)
    ++first[static_cast<size_t>(order.batch(epoch)[0])];
  for (int count : first) EXPECT_NEAR(count, 1000, 120);  // four standard deviations
}

TEST(Trainer, InitialWeightsReplaceOnlyTheirOwn) {
  TrainConfig with = config(kMlp, "float32", "none");
  with.steps = 0;
  const NamedTensors before = train(with).weights;
  with.init["fc2.bias"] = Tensor{{24}, std::vector<float>(24, 0.25f)};
  const NamedTensors after = train(with).weights;
  EXPECT_EQ(after.at("fc2.bias").data, with.init["fc2.bias"].data);
  EXPECT_EQ(after.at("fc2.weight").data, before.at("fc2.weight").data);
  EXPECT_EQ(after.size(), 6u);
}

std::string refusal(const TrainConfig& wrong) {
  try {
    Trainer trainer(wrong, data());
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "accepted";
}

TEST(Trainer, WhatDoesNotFitIsAUsageError) {
  TrainConfig wrong = config(kMlp, "float32", "none");
  wrong.init["fc9.weight"] = Tensor{{1}, {0.0f}};
  EXPECT_EQ(refusal(wrong), "initial weights: the model has no variable 'fc9.weight'");
  wrong.init = {{"fc1.weight", Tensor{{256, 40}, std::vector<float>(10240)}}};
  EXPECT_EQ(refusal(wrong),
            "initial weights: 'fc1.weight' has shape [256, 40], but the model needs [40, 256]");
  wrong.init.clear();
  wrong.batch = 81;
  EXPECT_EQ(refusal(wrong), "batch size 81 does not fit the data");
  wrong.batch = 0;
  EXPECT_EQ(refusal(wrong), "batch size 0 does not fit the data");
  wrong.batch = 16;
  wrong.model = "mlp:255-10";
  EXPECT_EQ(refusal(wrong), "model 'mlp:255-10' does not fit the data");
  wrong.model = "mlp:256-x-10";
  EXPECT_EQ(refusal(wrong), "model 'mlp:256-x-10': 'x' is not a layer width");
  wrong.model = "alexnet";
  EXPECT_EQ(refusal(wrong), "unknown model 'alexnet'");
  for (const char* const name : {"gpt:2x32", "gpt:2x32x0", "gpt:", "gpt:2x32x4x1"}) {
    wrong.model = name;
    EXPECT_EQ(refusal(wrong), "model '" + std::string(name) + "' is not gpt:LAYERSxWIDTHxHEADS");
  }
  for (const char* const option : {"r", "", "rope:rope", "dropout"}) {
    wrong.model = std::string("gpt:2x32x4:") + option;
    EXPECT_THAT(refusal(wrong), testing::HasSubstr("has no option")) << option;
  }
  for (const char* const share : {"0", "1", "-0.1", "x", "0.1x", "nan"}) {
    wrong.model = std::string("gpt:2x32x4:dropout=") + share;
    EXPECT_THAT(refusal(wrong), testing::HasSubstr("the dropout is not above 0")) << share;
  }
  wrong.model = "gpt:2x30x4";
  EXPECT_EQ(refusal(wrong),
            "model 'gpt:2x30x4': the width is not a multiple of 4, the number of heads");
  wrong.model = "gpt:2x36x4:rope";
  EXPECT_EQ(refusal(wrong),
            "model 'gpt:2x36x4:rope': the width is not a multiple of 8, twice the number of heads");
  wrong.model = "gpt:2x32x4";
  EXPECT_EQ(refusal(wrong), "model 'gpt:2x32x4' needs sequences of tokens");
}

TEST(Trainer, InitialWeightsOfPyTorchMayCountTheirBatches) {
  const Model model = build_model("resnet20", 2, {3, 8, 8}, 10);
  NamedTensors init{{"layer1.0.bn1.running_mean", Tensor{{16}, std::vector<float>(16, 0.5f)}},
                    {"layer1.0.bn1.num_batches_tracked", Tensor{{}, {3.0f}}}};
  EXPECT_EQ(starting_weights(model, 1, init).at("layer1/0/bn1.running_mean").data[0], 0.5f);
  init["layer1.0.num_batches_tracked"] = Tensor{{}, {3.0f}};  // beside nothing that counts
  EXPECT_THROW(starting_weights(model, 1, init), Error);
}

TEST(Trainer, RecordsEverySoManySteps) {
  TrainConfig every = config(kMlp, "mixed_float16", "static:64");
  every.steps = 7;
  every.every = 3;
  const Result result = train(every);
  for (size_t step = 0; step < 7; ++step)
    EXPECT_EQ(result.seen.stats[step].empty(), step % 3 != 0) << step;
  every.every = 0;
  for (const auto& stats : train(every).seen.stats) EXPECT_TRUE(stats.empty());
}

TEST(Trainer, StopsAfterTheCurrentStepAndSaysSo) {
  TrainConfig long_run = config(kMlp, "float32", "none");
  long_run.steps = 100;
  long_run.evaluate = true;
  std::atomic<bool> stop{false};
  Collector seen;
  Trainer trainer(long_run, data());
  trainer.run(
      &seen, [&](const std::vector<StepRow>& rows) { stop = rows[0].step == 2; }, stop);
  EXPECT_EQ(seen.rows.size(), 3u);
  EXPECT_EQ(seen.ends, std::vector<RunEnd>{RunEnd::interrupted});
  EXPECT_TRUE(seen.evals.empty());
}

TEST(Trainer, EvaluationDoesNotDependOnTheBatch) {
  for (const char* plan : {"float64", "float32", "mixed_float16"}) {
    TrainConfig whole = config(kMlp, plan, "none");
    whole.steps = 0;
    whole.evaluate = true;
    const Result sixteen = train(whole);  // 50 = 3 * 16 + 2
    whole.batch = 1;
    const Result single = train(whole);
    ASSERT_EQ(sixteen.seen.evals.size(), 1u);
    ASSERT_EQ(single.seen.evals.size(), 1u);
    const bool exact = std::string(plan) == "float64";
    EXPECT_NEAR(sixteen.seen.evals[0].loss, single.seen.evals[0].loss, exact ? 1e-12 : 1e-6)
        << plan;
    EXPECT_NEAR(sixteen.seen.evals[0].accuracy, single.seen.evals[0].accuracy, 1e-7) << plan;
    EXPECT_EQ(sixteen.seen.ends, std::vector<RunEnd>{RunEnd::complete});
  }
}

TEST(Trainer, LearnsTheData) {
  TrainConfig longer = config(kMlp, "mixed_float16", "dynamic");
  longer.steps = 200;
  longer.evaluate = true;
  const Result result = train(longer);
  EXPECT_LT(result.seen.rows.back().loss, 0.5 * result.seen.rows.front().loss);
  EXPECT_GT(result.seen.evals.at(0).accuracy, 0.9);
}

// A scalar that a kernel makes in double must not outlive the run that made it.
TEST(Program, GradientNormOfZeroGradientsIsZero) {
  const Executable exe = lower(build_mlp({4, 3}, 2, {4}), Plan{}, {});
  const std::unique_ptr<Program> program = emulation_backend().compile(exe);
  program->write(exe.input, std::vector<float>(8, 1.0f));
  program->write(exe.labels, std::vector<int32_t>{0, 1});
  program->write_scalar(exe.loss_scale, 1.0);
  program->run(Entry::grad, {});
  program->run(Entry::norm, {});
  EXPECT_GT(program->read_scalar(exe.gradient_norm), 0.0);
  program->write_scalar(exe.loss_scale, 0.0);
  program->run(Entry::grad, {});
  program->run(Entry::norm, {});
  EXPECT_EQ(program->read_scalar(exe.gradient_norm), 0.0);
}

// Wherever an element is, and with every instruction set.
TEST(Program, GradientNormOfRanksIsFiniteExactlyIfEveryElementIs) {
  const MachineSettings restore;
  constexpr int64_t kSize = 16384 + 77;
  Executable exe;
  const ValueId large = exe.graph.add_variable("large", {kSize}, {}),
                small = exe.graph.add_variable("small", {3}, {});
  const ValueId norm =
      exe.graph.add1("GradientNorm", "norm", {large, small}, {{"finite_only", int64_t{1}}});
  exe.entries[static_cast<size_t>(Entry::norm)] = {0};
  for (const Isa isa : supported_isas()) {
    set_active_isa(isa);
    for (const Backend* backend : {&emulation_backend(), &float64_backend()}) {
      const std::unique_ptr<Program> program = backend->compile(exe);
      const auto is_finite = [&] {
        program->run(Entry::norm, {});
        return std::isfinite(program->read_scalar(norm));
      };
      const float most = std::numeric_limits<float>::max(), inf = INFINITY;
      std::vector<float> values(static_cast<size_t>(kSize), most);
      values[1] = -most;
      values[2] = std::numeric_limits<float>::denorm_min();
      program->write(large, values);
      program->write(small, std::vector<float>{0.0f, -0.0f, 1.0f});
      EXPECT_TRUE(is_finite());
      for (const size_t at : {size_t{0}, size_t{13}, size_t{16383}, values.size() - 1}) {
        for (const float bad : {inf, -inf, std::nanf("")}) {
          std::vector<float> changed = values;
          changed[at] = bad;
          program->write(large, changed);
          EXPECT_FALSE(is_finite()) << at << " " << bad;
        }
      }
      program->write(large, values);
      EXPECT_TRUE(is_finite());
      program->write(small, std::vector<float>{0.0f, 0.0f, std::nanf("")});
      EXPECT_FALSE(is_finite());
    }
  }
}

}  // namespace
}  // namespace halfscope
