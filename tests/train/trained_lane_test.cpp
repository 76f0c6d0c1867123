// SPDX-License-Identifier: MIT
// Trainings beside a reference that was trained before are those beside one that trains, bit by
// bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "tests/train/small_training.h"

namespace halfscope {
namespace {

/// Stops the training after this many steps.
class StoppedCollector final : public TapSink {
 public:
  explicit StoppedCollector(int64_t last) : last_(last) {}
  void begin(const RunInfo&) override {}
  void step(int lane, const StepRow& row, std::span<const TensorStats>) override {
    rows[static_cast<size_t>(lane)].push_back(row);
    if (lane == 1 && row.step + 1 == last_) stop = true;
  }
  void eval(int lane, const EvalRow& row) override { evals.emplace_back(lane, row); }
  void error(int, const SiteError&) override { ADD_FAILURE() << "no tensors are compared"; }
  void sums(int, const SiteSums&) override {}
  void deviation(int lane, const Deviation& seen) override { deviations.emplace_back(lane, seen); }
  void end(RunEnd) override {}

  std::vector<StepRow> rows[2];
  std::vector<std::pair<int, EvalRow>> evals;
  std::vector<std::pair<int, Deviation>> deviations;
  std::atomic<bool> stop{false};

 private:
  int64_t last_;
};

struct Training {
  explicit Training(int64_t last) : seen(last) {}

  StoppedCollector seen;
  std::shared_ptr<const TrainedLane> reference;
};

/// A network with running statistics and averages, in float16 beside float32.
TrainConfig beside_float32(std::shared_ptr<const TrainedLane> reference) {
  TrainConfig config = test::config("resnet20", "mixed_float16", "dynamic");
  config.steps = 3;
  config.batch = 4;
  config.every = 0;
  config.evaluate = true;
  config.average = WeightAverage{};
  config.errors.enabled = true;
  config.errors.extent = ErrorSampling::Extent::batches;
  LaneConfig first = test::lane(preset_plan("float32").value(), "none");
  first.trained = std::move(reference);
  config.lanes.insert(config.lanes.begin(), first);
  return config;
}

std::unique_ptr<Training> train_lane(const TrainConfig& config, int64_t last) {
  auto result = std::make_unique<Training>(last);
  Trainer trainer(config, test::small_images());
  trainer.run(&result->seen, {}, result->seen.stop);
  result->reference =
      std::make_shared<const TrainedLane>(TrainedLane{result->seen.rows[0], trainer.variables(0)});
  return result;
}

const Training& whole() {
  static const std::unique_ptr<Training> training = train_lane(beside_float32(nullptr), 100);
  return *training;
}

uint64_t bits(double x) { return std::isnan(x) ? ~uint64_t{0} : std::bit_cast<uint64_t>(x); }

void expect_same(const StoppedCollector& a, const StoppedCollector& b) {
  for (const size_t lane : {0, 1}) {
    ASSERT_EQ(a.rows[lane].size(), b.rows[lane].size());
    for (size_t i = 0; i < a.rows[lane].size(); ++i) {
      const StepRow &one = a.rows[lane][i], &other = b.rows[lane][i];
      EXPECT_EQ(one.step, other.step);
      EXPECT_EQ(bits(one.loss), bits(other.loss)) << "lane " << lane << " step " << i;
      EXPECT_EQ(bits(one.grad_norm), bits(other.grad_norm)) << "lane " << lane << " step " << i;
      EXPECT_EQ(one.loss_scale, other.loss_scale);
    }
  }
  ASSERT_EQ(a.evals.size(), b.evals.size());
  for (size_t i = 0; i < a.evals.size(); ++i) {
    EXPECT_EQ(a.evals[i].first, b.evals[i].first);
    EXPECT_EQ(bits(a.evals[i].second.loss), bits(b.evals[i].second.loss));
  }
  ASSERT_EQ(a.deviations.size(), b.deviations.size());
  for (size_t i = 0; i < a.deviations.size(); ++i) {
    const Deviation &one = a.deviations[i].second, &other = b.deviations[i].second;
    EXPECT_EQ(one.name, other.name);
    EXPECT_EQ(one.of, other.of);
    EXPECT_EQ(one.step, other.step);
    EXPECT_EQ(bits(one.error), bits(other.error)) << one.name << " step " << one.step;
    EXPECT_EQ(bits(one.ratio), bits(other.ratio)) << one.name << " step " << one.step;
    EXPECT_EQ(bits(one.spread), bits(other.spread)) << one.name << " step " << one.step;
  }
}

TEST(TrainedLane, GivesTheBitsOfATraining) {
  ASSERT_EQ(whole().seen.rows[0].size(), 3u);
  ASSERT_EQ(whole().seen.evals.size(), 2u);
  const auto has = [&](Deviation::Of of) {
    return std::any_of(whole().seen.deviations.begin(), whole().seen.deviations.end(),
                       [&](const auto& each) { return each.second.of == of; });
  };
  for (const auto of : {Deviation::Of::gradient, Deviation::Of::weight, Deviation::Of::average,
                        Deviation::Of::buffer}) {
    EXPECT_TRUE(has(of)) << deviation_name(of);
  }
  expect_same(whole().seen, train_lane(beside_float32(whole().reference), 100)->seen);
}

// Only the variables after the last step are stored, so an earlier end needs the training itself.
TEST(TrainedLane, GivesTheBitsOfATrainingThatEndsEarly) {
  expect_same(train_lane(beside_float32(nullptr), 2)->seen,
              train_lane(beside_float32(whole().reference), 2)->seen);
}

TEST(TrainedLane, DoesNotTrainAgain) {
  TrainedLane other = *whole().reference;
  for (StepRow& row : other.rows) row.loss += 40.0;
  const std::string path = other.variables.begin()->first;
  for (double& value : other.variables.at(path).data) value = 7.0;
  const auto seen = train_lane(beside_float32(std::make_shared<const TrainedLane>(other)), 100);
  EXPECT_EQ(seen->seen.rows[0].back().loss, other.rows.back().loss);
  EXPECT_EQ(seen->reference->variables.at(path).data, other.variables.at(path).data);
}

TEST(TrainedLane, FitsOneTrainingOnly) {
  TrainConfig longer = beside_float32(whole().reference);
  longer.steps = 4;
  EXPECT_THROW(Trainer(longer, test::small_images()), Error);
  TrainConfig recorded = beside_float32(whole().reference);
  recorded.every = 1;
  EXPECT_THROW(Trainer(recorded, test::small_images()), Error);
}

}  // namespace
}  // namespace halfscope
