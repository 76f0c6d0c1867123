// SPDX-License-Identifier: MIT
// A lane whose backend fails in the middle of a training: it stops, the others continue as if it
// had not been there, and the run file keeps everything that it had recorded.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "analysis/recorder.h"
#include "analysis/run_view.h"
#include "core/error.h"
#include "core/policy/policy.h"
#include "tests/train/failing_backend.h"
#include "tests/train/queueing_backend.h"
#include "tests/train/small_training.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: trainings of these tests
using testing::HasSubstr;

class ALostLane : public testing::Test {
 protected:
  /// Three lanes, the middle one on the backend that fails.
  static TrainConfig three_lanes(const Backend& failing) {
    TrainConfig result = config(kMlp, "float32", "none");
    result.steps = 5;
    result.evaluate = true;
    result.lanes.push_back(lane(preset_plan("mixed_float16").value(), "static:64"));
    result.lanes.push_back(lane(preset_plan("bfloat16").value(), "none"));
    result.lanes[1].backend = &failing;
    return result;
  }
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("halfscope-lost-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path file() const { return folder_ / "run.hscope"; }

  /// Trains and records; the trainer.
  std::unique_ptr<Trainer> record(const TrainConfig& config) {
    auto trainer = std::make_unique<Trainer>(config, data());
    Recorder recorder(file(), {.force = true});
    recorder.begin(trainer->describe());
    const std::atomic<bool> stop{false};
    trainer->run(
        &recorder, [&](const std::vector<StepRow>& rows) { progress_.push_back(rows); }, stop);
    return trainer;
  }

  /// Expects the lanes next to the middle one to do the same as without it.
  static void expect_others_as_without(const Trainer& trainer, const TrainConfig& config) {
    TrainConfig alone = config;
    alone.lanes.erase(alone.lanes.begin() + 1);
    Trainer reference(alone, data());
    const std::atomic<bool> stop{false};
    reference.run(nullptr, {}, stop);
    expect_same_weights(trainer.weights(0), reference.weights(0));
    expect_same_weights(trainer.weights(2), reference.weights(1));
  }

  std::vector<std::vector<StepRow>> progress_;

 private:
  std::filesystem::path folder_;
};

TEST_F(ALostLane, EndsAloneAndWhatItRecordedStays) {
  const FailingBackend failing(Entry::update, 3);
  const TrainConfig config = three_lanes(failing);
  const auto trainer = record(config);
  ASSERT_EQ(trainer->lost_lanes().size(), 1u);
  EXPECT_EQ(trainer->lost_lanes()[0].name, "mixed_float16");
  EXPECT_EQ(trainer->lost_lanes()[0].step, 2);
  EXPECT_EQ(trainer->lost_lanes()[0].why, "CUDA launch: unspecified launch failure");
  EXPECT_EQ(trainer->lost_lanes()[0].hint, "look at the device");
  EXPECT_FALSE(trainer->has_lane(1));
  EXPECT_THROW(trainer->weights(1), Error);

  const RunView run = RunView::open(file());
  EXPECT_EQ(run.status(), RunStatus::complete);
  EXPECT_EQ(run.steps(0).size(), 5u);
  EXPECT_EQ(run.steps(1).size(), 2u);
  EXPECT_EQ(run.steps(2).size(), 5u);
  EXPECT_FALSE(run.lost(0) || run.lost(2));
  ASSERT_TRUE(run.lost(1));
  EXPECT_EQ(run.lost(1)->step, 2);
  EXPECT_EQ(run.lost(1)->why, "CUDA launch: unspecified launch failure");
  EXPECT_GT(run.total(1, 1).n, 0) << "its first two steps";
  EXPECT_EQ(run.total(0, 1).n, 5 * run.total(1, 1).n / 2);
  ASSERT_EQ(progress_.size(), 5u);
  EXPECT_TRUE(std::isnan(progress_[4][1].loss));
  EXPECT_EQ(progress_[4][1].step, 4);

  expect_others_as_without(*trainer, config);
}

TEST_F(ALostLane, MayBeTheFirstOrTheLast) {
  const FailingBackend failing(Entry::grad, 2, true);
  for (const size_t which : {size_t{0}, size_t{2}}) {
    TrainConfig config = three_lanes(emulation_backend());
    config.lanes[which].backend = &failing;
    const auto trainer = record(config);
    ASSERT_EQ(trainer->lost_lanes().size(), 1u);
    EXPECT_EQ(trainer->lost_lanes()[0].why, "out of memory");
    const RunView run = RunView::open(file());
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(run.steps(static_cast<int>(i)).size(), i == which ? 1u : 5u);
    }
  }
}

TEST_F(ALostLane, IsFoundInEvaluationsAndComparisons) {
  TrainConfig config = three_lanes(emulation_backend());
  const FailingBackend in_evaluation(Entry::eval, 1);
  config.lanes[1].backend = &in_evaluation;
  config.evaluate_every = 2;
  EXPECT_EQ(record(config)->lost_lanes().at(0).step, 2);

  // The lane that is compared, and the one that it is compared with.
  const FailingBackend in_comparison(Entry::begin, 1000);
  for (const size_t which : {size_t{0}, size_t{1}}) {
    TrainConfig compared = three_lanes(emulation_backend());
    compared.lanes[which].backend = &in_comparison;
    compared.errors.enabled = true;
    const auto trainer = record(compared);
    if (which == 0) {
      EXPECT_TRUE(trainer->lost_lanes().empty()) << "fp32 is not run again";
      continue;
    }
    ASSERT_EQ(trainer->lost_lanes().size(), 1u);
    EXPECT_EQ(trainer->lost_lanes()[0].name, "mixed_float16");
    const RunView run = RunView::open(file());
    EXPECT_EQ(run.steps(1).size(), 0u);
    EXPECT_EQ(run.steps(2).size(), 5u);
    EXPECT_FALSE(run.errors(2).empty());
  }
}

TEST_F(ALostLane, TheLastOneEndsTheTrainingWithItsError) {
  const FailingBackend failing(Entry::update, 2);
  TrainConfig config = three_lanes(failing);
  config.lanes = {config.lanes[1]};
  try {
    record(config);
    FAIL() << "no Error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("lane mixed_float16 failed at step 1: CUDA launch"));
    EXPECT_EQ(error.hint(), "look at the device");
  }
  const RunView run = RunView::open(file());
  EXPECT_EQ(run.status(), RunStatus::interrupted);
  EXPECT_EQ(run.steps(0).size(), 1u);
}

// Steps of a device are told late: those before the one that fails are, whichever way it fails.
TEST_F(ALostLane, TellsTheStepsThatWereOnTheirWay) {
  const QueueingBackend whole, no_launch(3), no_collect(QueueingBackend::kNever, 3);
  TrainConfig config = three_lanes(whole);
  const auto reference = record(config);
  EXPECT_TRUE(reference->lost_lanes().empty());
  EXPECT_EQ(whole.most_in_flight(), 2);
  ASSERT_EQ(progress_.size(), 5u);
  const std::vector<std::vector<StepRow>> expected = progress_;
  for (const QueueingBackend* failing : {&no_launch, &no_collect}) {
    SCOPED_TRACE(failing == &no_launch ? "launch" : "collect");
    progress_.clear();
    config.lanes[1].backend = failing;
    const auto trainer = record(config);
    ASSERT_EQ(trainer->lost_lanes().size(), 1u);
    EXPECT_EQ(trainer->lost_lanes()[0].step, 3);
    EXPECT_EQ(trainer->lost_lanes()[0].why,
              failing == &no_launch ? "cannot launch" : "cannot collect");
    const RunView run = RunView::open(file());
    EXPECT_EQ(run.steps(1).size(), 3u);
    EXPECT_EQ(run.lost(1).value().step, 3);
    ASSERT_EQ(progress_.size(), 5u);
    for (size_t step = 0; step < 5; ++step) {
      for (size_t lane = 0; lane < 3; ++lane) {
        EXPECT_EQ(progress_[step][lane].step, static_cast<int64_t>(step));
        if (lane == 1 && step >= 3) {
          EXPECT_TRUE(std::isnan(progress_[step][lane].loss));
        } else {
          EXPECT_EQ(progress_[step][lane].loss, expected[step][lane].loss);
        }
      }
    }
    expect_same_weights(trainer->weights(0), reference->weights(0));
    expect_same_weights(trainer->weights(2), reference->weights(2));
  }
}

TEST_F(ALostLane, TellsThemWhenItIsTheLastOne) {
  for (const bool launch : {true, false}) {
    progress_.clear();
    const QueueingBackend failing(launch ? 3 : QueueingBackend::kNever,
                                  launch ? QueueingBackend::kNever : 3);
    TrainConfig config = three_lanes(failing);
    config.lanes = {config.lanes[1]};
    EXPECT_THROW(record(config), Error);
    EXPECT_EQ(progress_.size(), 3u);
    EXPECT_EQ(RunView::open(file()).steps(0).size(), 3u);
  }
}

void no_room() { throw DeviceError("CUDA allocation of 3 MiB: out of memory", "lower --batch"); }
void no_host_memory() { throw std::bad_alloc(); }
using SetUp = FailingBackend::SetUp;

TEST_F(ALostLane, MayBeLostBeforeItsFirstStep) {
  for (const auto where : {SetUp::compile, SetUp::write}) {
    const FailingBackend failing(where, no_room);
    const TrainConfig config = three_lanes(failing);
    const auto trainer = record(config);
    ASSERT_EQ(trainer->lost_lanes().size(), 1u);
    EXPECT_EQ(trainer->lost_lanes()[0].name, "mixed_float16");
    EXPECT_EQ(trainer->lost_lanes()[0].step, 0);
    EXPECT_EQ(trainer->lost_lanes()[0].why, "CUDA allocation of 3 MiB: out of memory");
    EXPECT_EQ(trainer->lost_lanes()[0].hint, "lower --batch");
    EXPECT_FALSE(trainer->has_lane(1));
    EXPECT_EQ(trainer->device_bytes(1), 0);
    EXPECT_TRUE(trainer->product_kernels().empty());
    EXPECT_THROW(trainer->weights(1), Error);
    EXPECT_THROW(trainer->averages(1), Error);
    EXPECT_THROW(trainer->checkpoint(), Error);

    const RunView run = RunView::open(file());
    EXPECT_EQ(run.status(), RunStatus::complete);
    EXPECT_EQ(run.steps(0).size(), 5u);
    EXPECT_TRUE(run.steps(1).empty());
    EXPECT_EQ(run.steps(2).size(), 5u);
    ASSERT_TRUE(run.lost(1));
    EXPECT_EQ(run.lost(1)->step, 0);
    EXPECT_EQ(run.lost(1)->why, "CUDA allocation of 3 MiB: out of memory");
    EXPECT_EQ(run.total(1, 1).n, 0);
    EXPECT_GT(run.total(2, 1).n, 0);

    expect_others_as_without(*trainer, config);
  }
}

// The reference, which the others are compared with, and lanes beside it.
TEST_F(ALostLane, BeforeItsFirstStepIsComparedWithNothing) {
  const FailingBackend failing(SetUp::compile, no_host_memory);
  for (const size_t which : {size_t{0}, size_t{2}}) {
    TrainConfig config = three_lanes(emulation_backend());
    config.lanes[which].backend = &failing;
    config.errors.enabled = true;
    config.evaluate_every = 2;
    const auto trainer = record(config);
    ASSERT_EQ(trainer->lost_lanes().size(), 1u);
    EXPECT_EQ(trainer->lost_lanes()[0].why, "out of memory");
    const RunView run = RunView::open(file());
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(run.steps(static_cast<int>(i)).size(), i == which ? 0u : 5u);
      EXPECT_EQ(run.evals(static_cast<int>(i)).size(), i == which ? 0u : 3u);
    }
    EXPECT_EQ(run.errors(1).empty(), which == 0);
    EXPECT_TRUE(run.errors(2).empty());
  }
}

TEST_F(ALostLane, MayBeLostOverACheckpoint) {
  TrainConfig config = three_lanes(emulation_backend());
  config.steps = 2;
  Trainer first(config, data());
  const std::atomic<bool> stop{false};
  first.run(nullptr, {}, stop);
  const Checkpoint checkpoint = first.checkpoint();

  const FailingBackend in_compile(SetUp::compile, no_room), in_resume(SetUp::write_exact, no_room);
  config.steps = 5;
  for (const FailingBackend* failing : {&in_compile, &in_resume}) {
    config.lanes[1].backend = failing;
    Trainer trainer(config, data());
    trainer.resume(checkpoint);
    Recorder recorder(file(), {.force = true});
    recorder.begin(trainer.describe());
    trainer.run(&recorder, {}, stop);
    ASSERT_EQ(trainer.lost_lanes().size(), 1u);
    EXPECT_EQ(trainer.lost_lanes()[0].step, 2);
    const RunView run = RunView::open(file());
    ASSERT_TRUE(run.lost(1));
    EXPECT_EQ(run.lost(1)->step, 2);
    EXPECT_EQ(run.steps(0).size(), 3u);
  }
  config.lanes = {config.lanes[1]};
  Trainer alone(config, data());
  EXPECT_THROW(alone.resume(checkpoint), Error);
}

TEST_F(ALostLane, WithoutAnyNothingBegins) {
  const FailingBackend failing(SetUp::compile, no_room), other(SetUp::write, no_host_memory);
  TrainConfig config = three_lanes(failing);
  config.lanes[0].backend = config.lanes[2].backend = &other;
  try {
    Trainer trainer(config, data());
    FAIL() << "no Error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "lane float32: out of memory; lane mixed_float16: CUDA allocation of 3 MiB: out "
                 "of memory; lane bfloat16: out of memory");
    EXPECT_EQ(error.kind(), ErrorKind::runtime);
    EXPECT_THAT(error.hint(), HasSubstr("lower --batch"));
  }
}

// A failure that is not the device's ends all lanes.
TEST_F(ALostLane, IsNotWhatAWrongPlanMakes) {
  const FailingBackend failing(SetUp::compile, [] { throw usage_error("fc1: no such operator"); });
  try {
    Trainer trainer(three_lanes(failing), data());
    FAIL() << "no Error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "lane mixed_float16: fc1: no such operator");
    EXPECT_EQ(error.kind(), ErrorKind::usage);
  }
}

}  // namespace
}  // namespace halfscope
