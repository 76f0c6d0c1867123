// SPDX-License-Identifier: MIT
// What the backend cuda asks of a device beside results: steps that become graphs, and that all is
// given back.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "core/train/trainer.h"
#include "tests/gpu/simulated/device.h"
#include "tests/gpu/small_network.h"
#include "tests/train/small_training.h"

namespace halfscope {
namespace {

constexpr GpuProducts kAll[] = {GpuProducts::own, GpuProducts::library, GpuProducts::fast};

Executable small_training() {
  return lower(test::small_network(2), preset_plan("mixed_float16").value(),
               TrainingSpec{parse_optimizer("sgd:momentum=0.9"), 1});
}

/// One training step, with statistics or without.
void step(const Executable& exe, Program& program, bool measured) {
  std::vector<TensorStats> stats(measured ? exe.taps.size() : 0);
  program.write(exe.labels, std::vector<int32_t>{1, 7});
  program.write_scalar(exe.loss_scale, 512.0);
  program.write_scalar(exe.inverse_scale, 1.0 / 512.0);
  program.write_scalar(exe.learning_rate, 0.01);
  for (const Entry entry : {Entry::begin, Entry::grad, Entry::update}) program.run(entry, stats);
}

TEST(OnSimulatedDevice, StepsBecomeGraphs) {
  const Executable exe = small_training();
  for (const GpuProducts products : kAll) {
    SCOPED_TRACE(gpu_backend_name(products));
    const std::unique_ptr<Program> program = cuda_backend(products).compile(exe);
    for (int i = 0; i < 3; ++i) step(exe, *program, false);
    const simulated::Launches before = simulated::launches();
    step(exe, *program, false);
    const simulated::Launches after = simulated::launches();
    EXPECT_GE(after.graphs - before.graphs, 2) << "of each entry at least one";
    EXPECT_LT(after.single - before.single, 10) << "all else is in them";
  }
}

// While one step runs the next is launched, whether it is recorded or not.
TEST(OnSimulatedDevice, AStepIsWaitedForOnceAndTellsAllInOneCopy) {
  for (const int every : {0, 1}) {
    TrainConfig config = test::config(test::kMlp, "mixed_float16", "dynamic");
    config.steps = 8;
    config.every = every;
    config.optimizer = parse_optimizer("adam");
    config.clip_norm = 1.0;
    config.lanes[0].backend = &cuda_backend();
    Trainer trainer(config, test::data());
    std::vector<simulated::Transfers> seen;
    trainer.run(
        nullptr, [&](const std::vector<StepRow>&) { seen.push_back(simulated::transfers()); },
        std::atomic<bool>{false});
    ASSERT_EQ(seen.size(), 8u);
    for (size_t step = 3; step < 8; ++step) {  // kernels are loaded and graphs made before
      EXPECT_EQ(seen[step].to_host - seen[step - 1].to_host, step < 7 ? 1 : 0);
      EXPECT_EQ(seen[step].waits - seen[step - 1].waits, 1) << "the host goes on meanwhile";
    }
  }
}

/// Milliseconds of the steps of such a training; a kernel takes one.
std::vector<double> step_times(const TrainConfig& config) {
  Trainer trainer(config, test::data());
  test::Collector seen;
  trainer.run(&seen, {}, std::atomic<bool>{false});
  std::vector<double> times;
  for (const StepRow& row : seen.rows) times.push_back(row.ms);
  return times;
}

// What comparisons run on the device between gradients and update is no part of a step.
TEST(OnSimulatedDevice, StepsTakeAsLongWhereTheyAreCompared) {
  TrainConfig config = test::config(test::kMlp, "mixed_float16", "static:64");
  config.steps = 5;
  config.every = 0;
  config.lanes[0].backend = &cuda_backend(GpuProducts::own);
  const std::vector<double> alone = step_times(config);
  config.errors = {.enabled = true, .every = 2, .emulator = &emulation_backend()};
  const std::vector<double> checked = step_times(config);
  ASSERT_EQ(alone.size(), 5u);
  EXPECT_GT(alone[4], 10.0);
  EXPECT_EQ(alone, checked);
}

// Counters of micro-batches are added up where they are.
TEST(OnSimulatedDevice, MicroBatchesTakeNoMoreRoom) {
  const auto bytes = [](int64_t micro_batches) {
    const Executable exe = lower(test::small_network(2), preset_plan("mixed_float16").value(),
                                 TrainingSpec{parse_optimizer("sgd"), micro_batches});
    const std::unique_ptr<Program> program = cuda_backend().compile(exe);
    const int64_t before = program->device_bytes();
    const std::unique_ptr<StepQueue> steps = program->step_queue({}, micro_batches, true);
    return program->device_bytes() - before;
  };
  EXPECT_GT(bytes(2), 0);
  EXPECT_LT(bytes(64) - bytes(2), 64 * 1024);
}

TEST(OnSimulatedDevice, ProgramsGiveBackWhatTheyTook) {
  const Executable exe = small_training();
  const simulated::InUse before = simulated::in_use();
  for (const GpuProducts products : kAll) {
    SCOPED_TRACE(gpu_backend_name(products));
    {
      const std::unique_ptr<Program> program = cuda_backend(products).compile(exe);
      for (int i = 0; i < 3; ++i) step(exe, *program, true);
      EXPECT_GT(simulated::in_use().memory, before.memory);
    }
    EXPECT_EQ(simulated::in_use(), before);
  }
}

}  // namespace
}  // namespace halfscope
