// SPDX-License-Identifier: MIT
// Lost updates of PyTorch recordings, where an update of 0 counts as lost if its gradient is not 0:
// of layers with several tensors, of steps without a learning rate, and of Rprop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "analysis/rules/rules.h"
#include "core/numeric/formats/float_format.h"
#include "tests/report/capture.h"

namespace halfscope::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int64_t kSteps = 10;
constexpr int kWeights = 512, kBiases = 16;

/// Returns what was recorded of a lane in bf16 in PyTorch: fc1 and fc2 have a weight and a bias.
RunInfo info_with_biases(const std::string& optimizer) {
  RunSpec spec = healthy_spec();
  spec.lanes[1] = {.name = "bfloat16", .format = kBf16, .storage = kBf16, .dynamic = false};
  RunInfo info = captured(spec).info();
  info.optimizer = optimizer;
  LaneInfo& lane = info.lanes[0];
  for (SiteInfo& site : lane.sites) {
    if (site.role == Role::update) site.shape = {kWeights};
  }
  for (const char* path : {"fc1", "fc2"}) {
    SiteInfo bias{.path = path,
                  .tensor = "bias_update",
                  .role = Role::update,
                  .phase = Phase::update,
                  .op = "Gemm",
                  .format = kBf16,
                  .shape = {kBiases}};
    bias.order = static_cast<int>(lane.sites.size());
    lane.sites.push_back(bias);
  }
  return info;
}

/// The share of a tensor's updates that are lost in each step.
using Shares = std::vector<std::pair<std::string, double>>;

struct Recorded {
  Shares shares;
  std::string optimizer = "sgd:lr=0.01";
  int64_t idle = 0;     ///< first steps, in which every update is lost
  double rate = 0.01;   ///< of these steps
  double moving = 0.0;  ///< share of fc2.bias that moves in these steps
};

std::vector<Finding> lost_updates_of(const Recorded& recorded) {
  RunView run(info_with_biases(recorded.optimizer), RunStatus::complete);
  for (int64_t step = 0; step < kSteps; ++step) {
    const bool idle = step < recorded.idle;
    run.add_step(0, {.step = step, .loss = 1.0, .learning_rate = idle ? recorded.rate : 0.01});
    for (const auto& [name, share] : recorded.shares) {
      const int site = run.find_site(0, name).value();
      const int64_t n = run.lane(0).sites[static_cast<size_t>(site)].shape[0];
      const double moving = name == "fc2.bias_update" ? recorded.moving : 0.0;
      const double lost = idle ? 1.0 - moving : share;
      const auto count = static_cast<int64_t>(lost * static_cast<double>(n));
      run.add_window(
          0, site,
          {.step = step, .stats = {.n = n, .lost = count, .max_abs = count == n ? 0.0f : 0.01f}});
    }
  }
  std::vector<Finding> findings = run_rules(run);
  std::erase_if(findings, [](const Finding& each) { return each.rule != "lost_updates"; });
  return findings;
}

TEST(LostUpdates, OfALayerAreThoseOfMostOfItsNumbers) {
  EXPECT_THAT(lost_updates_of({.shares = {{"fc1.weight_update", 0.25}, {"fc1.bias_update", 1.0}}}),
              IsEmpty());
  const std::vector<Finding> both = lost_updates_of({.shares = {{"fc1.weight_update", 0.75},
                                                                {"fc1.bias_update", 1.0},
                                                                {"fc2.weight_update", 0.25},
                                                                {"fc2.bias_update", 1.0}}});
  ASSERT_THAT(both, SizeIs(1));
  EXPECT_EQ(both[0].severity, Severity::warning);
  EXPECT_THAT(both[0].action.layers, ElementsAre("fc1"));
  EXPECT_THAT(both[0].mechanism, HasSubstr("fc1 loses updates: 75.8% of the non-zero ones"))
      << "400 of 528";
  EXPECT_EQ(both[0].site, "fc1.weight_update");
}

TEST(LostUpdates, OfOneTensorNameIt) {
  const std::vector<Finding> found = lost_updates_of({.shares = {{"fc1.weight_update", 0.75},
                                                                 {"fc1.bias_update", 0.25},
                                                                 {"fc2.weight_update", 1.0},
                                                                 {"fc2.bias_update", 1.0}}});
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0].text, HasSubstr("fc1.weight and fc2 lose updates in bf16"));
  EXPECT_THAT(found[0].text, HasSubstr("The worst is fc2 with 100%."));
  EXPECT_THAT(found[0].action.layers, ElementsAre("fc1", "fc2"));
  const std::vector<Finding> alone =
      lost_updates_of({.shares = {{"fc1.weight_update", 0.75}, {"fc1.bias_update", 0.25}}});
  ASSERT_THAT(alone, SizeIs(1));
  EXPECT_THAT(alone[0].mechanism, HasSubstr("fc1.weight loses updates: 75% of the non-zero ones"));
}

// The recorded rate belongs to the first parameter group: other groups may move.
TEST(LostUpdates, OfStepsWithoutALearningRateAreNone) {
  Recorded frozen{.shares = {{"fc1.weight_update", 0.0},
                             {"fc1.bias_update", 0.0},
                             {"fc2.weight_update", 0.0},
                             {"fc2.bias_update", 0.0}},
                  .idle = 6};
  ASSERT_THAT(lost_updates_of(frozen), SizeIs(1));
  frozen.rate = 0.0;
  EXPECT_THAT(lost_updates_of(frozen), IsEmpty());
  frozen.moving = 0.25;
  EXPECT_THAT(lost_updates_of(frozen), SizeIs(1));
  frozen.moving = 0.0;
  frozen.shares[0].second = 0.75;
  const std::vector<Finding> later = lost_updates_of(frozen);
  ASSERT_THAT(later, SizeIs(1));
  EXPECT_EQ(later[0].step, 6);
  EXPECT_THAT(later[0].mechanism, HasSubstr("fc1.weight loses updates: 75% of the non-zero ones"));
}

TEST(LostUpdates, OfRpropAreRemarks) {
  Recorded recorded{.shares = {{"fc1.weight_update", 0.75}}};
  for (const char* optimizer : {"sgd:lr=0.01", "lion:lr=0.01"}) {
    recorded.optimizer = optimizer;
    ASSERT_THAT(lost_updates_of(recorded), SizeIs(1));
    EXPECT_EQ(lost_updates_of(recorded)[0].severity, Severity::warning) << optimizer;
  }
  recorded.optimizer = "rprop:lr=0.01";
  const std::vector<Finding> found = lost_updates_of(recorded);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].severity, Severity::info);
  EXPECT_TRUE(found[0].action.layers.empty());
  EXPECT_THAT(found[0].text, HasSubstr("Rprop leaves a weight unchanged on purpose"));
}

}  // namespace
}  // namespace halfscope::test
