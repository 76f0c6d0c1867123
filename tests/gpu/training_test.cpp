// SPDX-License-Identifier: MIT
// Whole training steps on the bodies of the GPU kernels: every value, statistic and rerun of
// lowered networks beside the emulator's, for every optimizer, scale of operands and storage; and
// trainings of some steps, which end with the same weights.
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/lower/lower.h"
#include "core/models/models.h"
#include "core/policy/policy.h"
#include "core/train/runner.h"
#include "tests/gpu/distinct_presets.h"
#include "tests/gpu/lockstep.h"
#include "tests/gpu/small_network.h"
#include "tests/train/small_training.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: trainings of these tests

class Training : public OnCandidate {};

TEST_P(Training, StepsOfEveryOptimizerAreTheEmulators) {
  for (const char* optimizer :
       {"sgd:lr=0.1", "sgd:momentum=0.9,weight_decay=0.01", "sgd:momentum=0.9,nesterov=true",
        "sgd:momentum=0.9,dampening=0.5", "sgd:weight_decay=0.01,maximize=true", "adam",
        "adam:amsgrad=true,maximize=true", "adamw:weight_decay=0.1", "rmsprop",
        "rmsprop:momentum=0.5", "rmsprop:momentum=0.5,centered=true"}) {
    for (const char* preset : {"float32", "mixed_float16", "float16"}) {
      SCOPED_TRACE(std::string(optimizer) + " " + preset);
      run_lockstep(preset_plan(preset).value(), optimizer, candidate());
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(Training, StepsOfEveryPresetAreTheEmulators) {
  for (const auto& [preset, plan] : distinct_presets(small_network(kBatch))) {
    SCOPED_TRACE(preset);
    run_lockstep(plan, "sgd:momentum=0.9", candidate());
    if (HasFatalFailure()) return;
  }
}

TEST_P(Training, StepsOfEveryScaleAreTheEmulators) {
  for (const char* scale :
       {"static:0.5", "current", "current:power-of-two", "delayed:history=3,margin=1",
        "delayed:history=2,amax=recent", "mx", "mx:up", "block:7", "block:16,weights=square",
        "block:16,scales=fp32", "block:7,scales=fp32,unguarded", "current:unguarded,amax-floor=2",
        "divide:0.3", "channel"}) {
    SCOPED_TRACE(scale);
    Plan plan = preset_plan("fp8_current").value();
    for (PlanRule& rule : plan.rules) {
      if (rule.scale) rule.scale = parse_scale(scale).value();
    }
    run_lockstep(plan, "sgd", candidate());
    if (HasFatalFailure()) return;
  }
}

// Stagewise composites, stochastic rounding of results and weights, sums in the format.
TEST_P(Training, StepsOfUnusualPlansAreTheEmulators) {
  Plan stagewise = preset_plan("mixed_float16").value();
  stagewise.defaults.stagewise = true;
  for (PlanRule& rule : stagewise.rules) rule.stagewise = true;
  Plan stochastic = preset_plan("bfloat16").value();
  stochastic.defaults.rounding.mode = stochastic.storage_rounding.mode = RoundingMode::stochastic;
  Plan narrow_sums = preset_plan("float16").value();
  accumulate_in(narrow_sums, Accumulation::format);
  Plan promoted = preset_plan("mixed_float16").value();
  accumulate_in(promoted, parse_accumulation("pairwise:promote=64,split-k=2").value());
  Plan stochastic_sums = preset_plan("float16").value();
  accumulate_in(stochastic_sums, parse_accumulation("format:rounding=stochastic").value());
  Plan cores = preset_plan("mixed_float16").value();
  accumulate_in(cores, parse_accumulation("tensor-core:h100").value());
  Plan cut_cores = preset_plan("mixed_bfloat16").value();
  accumulate_in(cut_cores, parse_accumulation("tensor-core:a100,promote=64,split-k=2").value());
  Plan fp8_cores = preset_plan("fp8_current").value();
  accumulate_in(fp8_cores, parse_accumulation("tensor-core:h100-wgmma,promote=128").value());
  Plan ranges = preset_plan("float16").value();
  PlanRule range{.path = "", .op = "Conv"};
  range.clamps = true;
  range.prescale = 9;  // up to 127, which is soon too little
  ranges.rules.push_back(range);
  range.op = "Relu";
  range.prescale = -3;
  ranges.rules.push_back(range);
  for (const Plan& plan : {stagewise, stochastic, narrow_sums, promoted, stochastic_sums, cores,
                           cut_cores, fp8_cores, ranges}) {
    SCOPED_TRACE(plan_to_json(plan));
    run_lockstep(plan, "adam", candidate());
    if (HasFatalFailure()) return;
  }
}

// Optimizers, clipping and averages in separate formats.
TEST_P(Training, StepsThatRoundAreTheEmulators) {
  Plan bf16 = preset_plan("mixed_float16").value();
  bf16.update_compute = bf16.average_compute = kBf16;
  bf16.average = kFp16;
  Plan clipped = preset_plan("bfloat16").value();
  clipped.clip = clipped.update_compute = kFp16;
  clipped.storage_rounding.mode = RoundingMode::stochastic;
  Plan stagewise = preset_plan("float16").value();
  stagewise.clip = stagewise.average_compute = kFp16;
  stagewise.clip_stagewise = true;
  for (const char* optimizer :
       {"sgd:momentum=0.9,weight_decay=0.01", "adamw:weight_decay=0.1", "rmsprop:momentum=0.5"}) {
    for (const Plan& plan : {bf16, clipped, stagewise}) {
      SCOPED_TRACE(std::string(optimizer) + " " + plan_to_json(plan));
      const bool lerp = optimizer[0] != 's';
      run_lockstep(
          plan, optimizer, candidate(), small_network(kBatch),
          {.decay = 0.99, .form = lerp ? WeightAverage::Form::lerp : WeightAverage::Form::average});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(Training, StepsOfSmoothNetworksAreTheEmulators) {
  Plan stagewise = preset_plan("mixed_float16").value();
  stagewise.defaults.stagewise = true;
  Plan stochastic_sums = preset_plan("float16").value();
  accumulate_in(stochastic_sums, parse_accumulation("format:rounding=stochastic").value());
  Plan cores = preset_plan("mixed_bfloat16").value();
  accumulate_in(cores, parse_accumulation("tensor-core:a100,promote=64,split-k=2").value());
  for (const Plan& plan : {preset_plan("float32").value(), preset_plan("mixed_float16").value(),
                           preset_plan("fp8_current").value(), stagewise, stochastic_sums, cores}) {
    SCOPED_TRACE(plan_to_json(plan));
    run_lockstep(plan, "adam", candidate(), smooth_network(kBatch));
    if (HasFatalFailure()) return;
  }
}

// A gradient that is not finite, a loss that is not, and a norm beyond fp32.
TEST_P(Training, OverflowIsTheEmulators) {
  TrainConfig base = config(kMlp, "mixed_float16", "dynamic:1e30");
  base.steps = 4;
  TrainConfig other = base;
  other.lanes[0].backend = &candidate();
  const Result a = train(base), b = train(other);
  EXPECT_TRUE(a.seen.rows[0].skipped);
  EXPECT_TRUE(b.seen.rows[0].skipped);
  expect_same_steps(a.seen, b.seen);
}

TEST_P(Training, TrainingsEndWithTheSameWeights) {
  struct Run {
    const char* model;
    const char* optimizer;
    const char* group;
    const Dataset& data;
  };
  const char* momenta = "*.bias:momentum=0.5,dampening=0.5,maximize=true";
  for (const Run& each :
       {Run{kMlp, "adam", "*.bias:lr=0.05,beta1=0.5,beta2=0.9,eps=0.001", data()},
        Run{"lenet", "sgd:momentum=0.9", "*.bias:lr=0.05,weight_decay=0.1", data()},
        Run{"resnet20", "sgd:momentum=0.9", momenta, small_images()}}) {
    for (const char* plan : {"float32", "mixed_float16", "fp8_current"}) {
      // Whole steps were shuffled above.
      if (GetParam() == Candidate::shuffled && each.model != std::string(kMlp)) continue;
      SCOPED_TRACE(std::string(each.model) + " " + plan);
      TrainConfig base = config(each.model, plan, "static:1024");
      base.batch = 8;
      base.steps = 3;
      base.optimizer = parse_optimizer(each.optimizer);
      base.groups = {parse_parameter_group(each.group)};
      base.evaluate = true;
      TrainConfig other = base;
      other.lanes[0].backend = &candidate();
      const Result a = train(base, each.data), b = train(other, each.data);
      ASSERT_EQ(a.seen.evals.size(), 1u);
      expect_same_steps(a.seen, b.seen);
      expect_same_weights(a.weights, b.weights);
      EXPECT_EQ(a.seen.evals[0].loss, b.seen.evals[0].loss);
      EXPECT_EQ(a.seen.evals[0].accuracy, b.seen.evals[0].accuracy);
      EXPECT_EQ(a.seen.evals[0].auc, b.seen.evals[0].auc);
    }
  }
}

TEST_P(Training, InferenceIsTheEmulators) {
  const Dataset& images = small_images();
  for (const char* plan : {"float32", "mixed_float16", "fp8_delayed"}) {
    SCOPED_TRACE(plan);
    const Model network = build_network("resnet20", 16, images.sample_shape, 10);
    const auto infer = [&](const Backend& backend, Collector& seen) {
      RunnerConfig run{.lanes = {lane(preset_plan(plan).value(), "none")}};
      run.lanes[0].backend = &backend;
      Runner runner(network, run, images);
      runner.run(&seen, {}, std::atomic<bool>{false});
      return runner.result(0).outputs.at("logits");
    };
    Collector ours, theirs;
    const Tensor a = infer(emulation_backend(), ours), b = infer(candidate(), theirs);
    ASSERT_EQ(a.shape, (Shape{48, 10}));
    EXPECT_EQ(a.data, b.data);
    ASSERT_EQ(ours.stats.size(), 3u);
    EXPECT_EQ(ours.stats, theirs.stats);
    for (const TensorStats& stats : theirs.stats[0]) EXPECT_GT(stats.n, 0);
  }
}

// Two programs on one device, turn by turn, and twice the same bits.
TEST_P(Training, LanesDoNotDisturbEachOther) {
  TrainConfig one = config(kMlp, "mixed_float16", "static:1024");
  one.lanes[0].backend = &candidate();
  TrainConfig two = one;
  two.lanes.push_back(one.lanes[0]);
  two.lanes[1].plan = preset_plan("bfloat16").value();
  const Result alone = train(one), again = train(one), beside = train(two);
  expect_same_weights(alone.weights, again.weights);
  expect_same_weights(alone.weights, beside.weights);
}

TEST_P(Training, LabelsBeyondTheClassesAreAnError) {
  const Executable exe = lower(small_network(2), Plan{}, {});
  const std::unique_ptr<Program> program = candidate().compile(exe);
  program->write(exe.labels, std::vector<int32_t>{0, 10});
  try {
    program->run(Entry::grad, {});
    FAIL() << "no Error";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "loss (SoftmaxCrossEntropyLoss): label 10 is out of range: there are 10 classes");
  }
  program->write(exe.labels, std::vector<int32_t>{0, 9});
  program->run(Entry::grad, {});
}

TEST_P(Training, SizesAndUnusedValuesAreErrors) {
  const Executable exe = lower(small_network(2), Plan{}, {});
  const std::unique_ptr<Program> program = candidate().compile(exe);
  EXPECT_THROW(program->write(exe.input, std::vector<float>(3)), Error);
  EXPECT_THROW(program->write(exe.labels, std::vector<int32_t>(3)), Error);
  EXPECT_THROW(program->write_exact(exe.graph.variables()[0].value, std::vector<double>(1)), Error);
  const std::vector<int32_t> labels{3, 1};  // indices come as numbers
  program->write(exe.labels, std::span<const int32_t>(labels));
  EXPECT_EQ(program->read(exe.labels).data, (std::vector<float>{3.0f, 1.0f}));
  program->write_scalar(exe.keep_sum, 1.0);  // only micro-batches need it: no memory, no error
}

TEST_P(Training, VariablesComeBackBitForBit) {
  const Executable exe = lower(small_network(2), preset_plan("mixed_float16").value(), {});
  const std::unique_ptr<Program> program = candidate().compile(exe);
  const ValueId weight = exe.graph.variables()[0].value;
  std::vector<double> values(32 * 2 * 9, 0.1);
  values[1] = -0.0;
  values[2] = static_cast<double>(0x1p-149f);
  for (double& each : values) each = static_cast<double>(static_cast<float>(each));
  program->write_exact(weight, values);
  EXPECT_EQ(program->read_exact(weight), values);
  EXPECT_TRUE(std::signbit(program->read_exact(weight)[1]));
}

INSTANTIATE_TEST_SUITE_P(Gpu, Training,
                         testing::Values(Candidate::host, Candidate::shuffled, Candidate::cuda),
                         candidate_name);

TEST(CudaBackend, SaysWhatIsMissing) {
  if (cuda_is_ready()) {
    EXPECT_STREQ(cuda_backend().name(), "cuda");
    return;
  }
  try {
    cuda_backend();
    FAIL() << "no Error";
  } catch (const Error& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("cannot use backend 'cuda': "))
        << error.what();
    EXPECT_FALSE(error.hint().empty());
    EXPECT_EQ(error.kind(), ErrorKind::usage);
  }
}

// A request for more memory than any device has: the error says how much was requested and what to
// lower, and other programs on the device continue.
TEST(CudaBackend, SaysHowMuchMemoryIsMissing) {
  if (!cuda_is_ready()) GTEST_SKIP() << "no GPU here: no allocation failed";
  const Executable small = lower(small_network(2), Plan{}, {});
  const std::unique_ptr<Program> other = cuda_backend().compile(small);
  Executable large;
  large.forward = Entry::eval;
  const ValueId x = large.graph.add_input("x", {1 << 20, 1 << 20});
  const ValueId y = large.graph.add1("Relu", "relu", {x});
  large.inputs = {{"x", x}};
  large.outputs = {{"y", y}};
  large.entries[static_cast<size_t>(Entry::eval)] = {0};
  try {
    static_cast<void>(cuda_backend().compile(large));
    FAIL() << "no Error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("allocation of 8388608.0 MiB"), std::string::npos)
        << error.what();
    EXPECT_NE(error.hint().find("lower --batch"), std::string::npos) << error.hint();
  }
  other->write(small.labels, std::vector<int32_t>{0, 9});
  other->run(Entry::grad, {});
  EXPECT_TRUE(std::isfinite(other->read_scalar(small.loss)));
}

/// Runs after all tests of the program: every operator of the table was compared.
class Coverage : public testing::Environment {
 public:
  void TearDown() override {
    // A subset of the tests, chosen by a filter, covers a part of the table; all tests cover all of
    // it.
    const std::string filter = testing::GTEST_FLAG(filter);
    if (filter != "*" && !filter.starts_with('-')) return;
    for (const OpDef& def : op_table()) {
      if (def.always_expands) continue;  // reaches no backend
      EXPECT_TRUE(compared_operators().contains(def.name))
          << def.name << " was compared by no test";
    }
  }
};
[[maybe_unused]] const testing::Environment* const kCoverage =
    testing::AddGlobalTestEnvironment(new Coverage);

}  // namespace
}  // namespace halfscope
