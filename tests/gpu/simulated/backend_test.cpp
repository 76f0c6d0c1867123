// SPDX-License-Identifier: MIT
// Everything the backend cuda does besides computing: steps become graphs, and all
// resources are released.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/policy/policy.h"
#include "core/train/trainer.h"
#include "gpu/engine/pinned_staging.cuh"
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

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

/// Captures fail like this as long as it lives.
struct Refused {
  explicit Refused(simulated::InCapture what) { simulated::refuse(what); }
  Refused(const Refused&) = delete;
  Refused& operator=(const Refused&) = delete;
  ~Refused() { simulated::refuse(simulated::InCapture::nothing); }
};

TEST(OnSimulatedDevice, AProgramSaysWhatBecameAGraph) {
  const Executable exe = small_training();
  const std::unique_ptr<Program> program = cuda_backend().compile(exe);
  program->keep_values(false);
  EXPECT_THAT(program->launches_of(Entry::grad), ElementsAre()) << "it has not run";
  step(exe, *program, false);
  EXPECT_THAT(program->launches_of(Entry::grad),
              ElementsAre("launched one by one: not run twice yet"));
  step(exe, *program, false);
  for (const Entry entry : {Entry::grad, Entry::update}) {
    EXPECT_THAT(program->launches_of(entry),
                ElementsAre(testing::MatchesRegex("CUDA graph of [1-9][0-9]* nodes")));
  }
  for (int i = 0; i < 2; ++i) step(exe, *program, true);
  EXPECT_THAT(program->launches_of(Entry::grad),
              ElementsAre(StartsWith("CUDA graph of "),
                          testing::MatchesRegex("CUDA graph of .* nodes .with statistics.")));
  EXPECT_THAT(program->launches_of(Entry::accumulate), ElementsAre()) << "it has no nodes";

  const std::unique_ptr<Program> emulated = emulation_backend().compile(exe);
  step(exe, *emulated, false);
  EXPECT_THAT(emulated->launches_of(Entry::grad), ElementsAre()) << "no device";
}

TEST(OnSimulatedDevice, AProgramSaysWhyACaptureFailed) {
  struct Failure {
    simulated::InCapture what;
    const char* why;
  };
  const Executable exe = small_training();
  for (const Failure& failure :
       {Failure{simulated::InCapture::launch, "operation not permitted when stream is capturing"},
        Failure{simulated::InCapture::end,
                "cudaStreamEndCapture: cudaErrorStreamCaptureInvalidated ("},
        Failure{simulated::InCapture::instantiate,
                "cudaGraphInstantiate: cudaErrorMemoryAllocation (out of memory)"}}) {
    SCOPED_TRACE(failure.why);
    const std::unique_ptr<Program> whole = cuda_backend(GpuProducts::own).compile(exe);
    for (int i = 0; i < 4; ++i) step(exe, *whole, false);
    const simulated::InUse before = simulated::in_use();
    const Refused refused(failure.what);
    {
      const std::unique_ptr<Program> program = cuda_backend(GpuProducts::own).compile(exe);
      for (int i = 0; i < 4; ++i) step(exe, *program, false);
      EXPECT_THAT(program->launches_of(Entry::grad), ElementsAre(StartsWith("not captured: ")));
      EXPECT_THAT(program->launches_of(Entry::grad), Contains(HasSubstr(failure.why)));
      EXPECT_EQ(program->read_scalar(exe.loss), whole->read_scalar(exe.loss)) << "the same bits";
    }
    EXPECT_THAT(whole->launches_of(Entry::grad), ElementsAre(StartsWith("CUDA graph of ")));
    EXPECT_EQ(simulated::in_use(), before);
  }
}

TEST(OnSimulatedDevice, AProgramSaysWhyNothingIsCaptured) {
  Plan plan = preset_plan("bfloat16").value();
  accumulate_in(plan, parse_accumulation("format:rounding=stochastic").value());
  const Executable exe =
      lower(test::small_network(2), plan, TrainingSpec{parse_optimizer("sgd"), 1});
  const std::unique_ptr<Program> program = cuda_backend().compile(exe);
  for (int i = 0; i < 2; ++i) step(exe, *program, false);
  EXPECT_THAT(program->launches_of(Entry::grad),
              ElementsAre(testing::MatchesRegex("launched one by one: .* draws random words")));

  Executable picks;
  const ValueId x = picks.graph.add_variable("x", {3, 2}, {});
  const ValueId at = picks.graph.add1("ArgMax", "most", {x}, {{"axis", int64_t{0}}});
  picks.graph.add("Gather", "pick", {x, at});
  picks.entries[static_cast<size_t>(Entry::grad)] = {0, 1};
  const std::unique_ptr<Program> picking = cuda_backend().compile(picks);
  for (int i = 0; i < 2; ++i) picking->run(Entry::grad, {});
  EXPECT_THAT(
      picking->launches_of(Entry::grad),
      ElementsAre("launched one by one: pick (Gather): its indices are checked on the way"));
}

// All programs copy through the same pinned memory.
TEST(OnSimulatedDevice, ProgramsPinMemoryOnce) {
  const Executable exe = small_training();
  const auto pinned = [] { return simulated::transfers().pinned; };
  const int64_t before = pinned();
  for (int i = 0; i < 100; ++i) {
    const std::unique_ptr<Program> program = cuda_backend(GpuProducts::own).compile(exe);
    const std::unique_ptr<Program> other = cuda_backend(GpuProducts::own).compile(exe);
    program->write(exe.labels, std::vector<int32_t>{1, 7});
    other->write(exe.labels, std::vector<int32_t>{2, 3});
  }
  EXPECT_LE(pinned() - before, 1);
}

/// A stream that copies through the pinned memory of all, and reads back what arrived.
class Copies {
 public:
  explicit Copies(size_t count) : count_(count) {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    for (cudaEvent_t& event : events_) EXPECT_EQ(cudaEventCreate(&event), cudaSuccess);
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, count * sizeof(uint32_t)), cudaSuccess);
    memory_ = static_cast<uint32_t*>(memory);
  }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;
  ~Copies() {
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    staging().forget(events_);
    for (cudaEvent_t event : events_) EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
    EXPECT_EQ(cudaFree(memory_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  }
  void upload(uint32_t first) {
    const std::vector<uint32_t> data = numbers(first);
    staging().upload(memory_, data.data(), data.size() * sizeof(uint32_t), stream_, events_);
  }
  bool arrived(uint32_t first) {
    std::vector<uint32_t> data(count_);
    EXPECT_EQ(cudaMemcpyAsync(data.data(), memory_, count_ * sizeof(uint32_t),
                              cudaMemcpyDeviceToHost, stream_),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    return data == numbers(first);
  }

 private:
  static gpu::PinnedStaging& staging() { return gpu::PinnedStaging::of_device(0); }
  std::vector<uint32_t> numbers(uint32_t first) const {
    std::vector<uint32_t> data(count_);
    for (uint32_t& each : data) each = first++;
    return data;
  }

  size_t count_;
  cudaStream_t stream_ = nullptr;
  gpu::PinnedStaging::Events events_{};
  uint32_t* memory_ = nullptr;
};

// Nothing runs on the simulated device until someone waits, so pinned memory that is reused too
// early would arrive twice.
TEST(PinnedMemory, StreamsShareIt) {
  constexpr size_t kMany = (gpu::PinnedStaging::kHalfBytes + (size_t{3} << 20)) / sizeof(uint32_t);
  constexpr size_t kSome = (size_t{5} << 20) / sizeof(uint32_t);
  for (const size_t count : {kSome, kMany}) {
    Copies a(count), b(count);
    for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
      one->upload(7);
      for (uint32_t round = 1; round < 12; ++round) other->upload(round << 24);
      EXPECT_TRUE(one->arrived(7));
      EXPECT_TRUE(other->arrived(11u << 24));
    }
  }
  // A stream that is gone is not waited for.
  Copies stays(kSome);
  for (uint32_t round = 1; round < 12; ++round) {
    Copies goes(kSome);
    goes.upload(round);
    stays.upload(round);
  }
  EXPECT_TRUE(stays.arrived(11));
}

TEST(PinnedMemory, ThreadsShareIt) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (uint32_t thread = 1; thread < 5; ++thread) {
    threads.emplace_back([thread, &wrong] {
      Copies copies((size_t{3} << 20) / sizeof(uint32_t));
      for (uint32_t round = 0; round < 6; ++round) {
        copies.upload((thread << 28) + round);
        if (round % 2 == 1 && !copies.arrived((thread << 28) + round)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
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

/// Transfers of a training of so many steps whose learning rate changes in every step.
simulated::Transfers transfers_of(int64_t steps) {
  TrainConfig config = test::config(test::kMlp, "mixed_float16", "dynamic");
  config.steps = steps;
  config.every = 0;
  config.schedule = parse_schedule("linear");
  config.lanes[0].backend = &cuda_backend();
  const simulated::Transfers before = simulated::transfers();
  Trainer trainer(config, test::data());
  trainer.run(nullptr, {}, std::atomic<bool>{false});
  const simulated::Transfers after = simulated::transfers();
  return {.to_host = after.to_host - before.to_host,
          .to_device = after.to_device - before.to_device,
          .waits = after.waits - before.waits,
          .pinned = after.pinned - before.pinned};
}

// A copy between the launches of a step would make the device wait; scalars are arguments of
// launches.
TEST(OnSimulatedDevice, StepsPinNothingAndCopyOnlyTheirInputs) {
  static_cast<void>(transfers_of(1));  // pins the memory that all programs share
  const simulated::Transfers few = transfers_of(4), many = transfers_of(12);
  EXPECT_EQ(many.to_device - few.to_device, 8 * 2) << "images and labels";
  EXPECT_EQ(many.pinned, few.pinned);
  EXPECT_LE(many.pinned, 2) << "one for each step in flight";
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

// Work that comparisons run on the device between gradients and update does not count as part of a
// step. All steps are recorded, because compared ones run like these.
TEST(OnSimulatedDevice, StepsTakeAsLongWhereTheyAreCompared) {
  TrainConfig config = test::config(test::kMlp, "mixed_float16", "static:64");
  config.steps = 5;
  config.every = 1;
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
  step(exe, *cuda_backend().compile(exe), true);  // memory that all programs share is kept
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
