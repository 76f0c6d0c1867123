// SPDX-License-Identifier: MIT
// The reference of each lane, and the references that are added to the requested lanes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/train/lane_setup.h"
#include "core/train/probe.h"
#include "tests/train/small_training.h"

namespace halfscope {
namespace {

using testing::ElementsAre;

std::vector<LaneConfig> lanes_of(const std::vector<std::string>& plans) {
  std::vector<LaneConfig> lanes;
  for (const std::string& plan : plans) {
    lanes.push_back(test::lane(preset_plan(plan).value(), "none"));
  }
  return lanes;
}

std::vector<std::string> names(const std::vector<LaneConfig>& lanes) {
  std::vector<std::string> result;
  for (const LaneConfig& lane : lanes) result.push_back(lane.name());
  return result;
}

/// "-1, 0, 0": the reference of each.
std::vector<int> references(const std::vector<LaneConfig>& lanes) {
  std::vector<int> result;
  for (size_t i = 0; i < lanes.size(); ++i) result.push_back(reference_for(lanes, i));
  return result;
}

Plan stagewise_float32() {
  Plan plan;
  plan.name = "float32_stagewise";
  plan.defaults.stagewise = true;
  return plan;
}

TEST(ReferenceFor, IsTheFirstLaneInFp32) {
  EXPECT_THAT(references(lanes_of({"float32", "mixed_float16", "bfloat16"})),
              ElementsAre(-1, 0, 0));
  EXPECT_THAT(references(lanes_of({"mixed_float16", "float32"})), ElementsAre(1, -1));
  EXPECT_THAT(references(lanes_of({"mixed_float16", "bfloat16"})), ElementsAre(-1, -1));
}

TEST(ReferenceFor, DoubleServesWhereThereIsNoFp32) {
  EXPECT_THAT(references(lanes_of({"float64", "mixed_float16"})), ElementsAre(-1, 0));
  EXPECT_THAT(references(lanes_of({"float64", "float32", "mixed_float16"})),
              ElementsAre(-1, -1, 1));
}

TEST(ReferenceFor, TakesCompositesApartInTheSameWay) {
  std::vector<LaneConfig> lanes = lanes_of({"float32", "float16_stagewise", "float16"});
  EXPECT_THAT(references(lanes), ElementsAre(-1, 0, 0)) << "better than none";
  lanes.push_back(test::lane(stagewise_float32(), "none"));
  EXPECT_THAT(references(lanes), ElementsAre(-1, 3, 0, -1));
}

// For example, the same plan on a device.
TEST(ReferenceFor, AnotherLaneInFp32IsJudged) {
  std::vector<LaneConfig> lanes = lanes_of({"float32", "float32"});
  lanes[1].own_name = "other";
  EXPECT_THAT(references(lanes), ElementsAre(-1, 0));
}

// A lane that rounds below fp32 anywhere cannot be the truth.
TEST(ReferenceFor, WhatRoundsIsNoReference) {
  for (void (*change)(Plan&) :
       {+[](Plan& plan) { plan.storage = kFp16; }, +[](Plan& plan) { plan.average = kBf16; },
        +[](Plan& plan) { plan.average_compute = kFp16; },
        +[](Plan& plan) { plan.update_compute = kBf16; }, +[](Plan& plan) { plan.clip = kFp16; },
        +[](Plan& plan) { plan.defaults.accumulation = Accumulation::format; },
        +[](Plan& plan) {
          PlanRule rule;
          rule.op = "Softmax";
          rule.write = kFp16;
          plan.rules.push_back(rule);
        }}) {
    std::vector<LaneConfig> lanes = lanes_of({"float32", "mixed_float16"});
    change(lanes[0].plan);
    EXPECT_THAT(references(lanes), ElementsAre(-1, -1));
  }
}

TEST(ReferenceOf, KeepsTheLoweringAndNothingElse) {
  Plan plan = preset_plan("bfloat16_stagewise").value();
  plan.update_compute = kFp16;
  plan.clip = kBf16;
  PlanRule fused;
  fused.path = "norm*";
  fused.stagewise = false;
  fused.write = kFp32;
  plan.rules.push_back(fused);
  const Plan reference = reference_of(plan);
  EXPECT_TRUE(is_full_precision(reference));
  EXPECT_EQ(reference.update_compute, kFp32);
  EXPECT_TRUE(resolve(reference, "softmax", "Softmax").stagewise);
  EXPECT_FALSE(resolve(reference, "norm1", "LayerNormalization").stagewise);
  EXPECT_EQ(resolve(reference, "norm1", "LayerNormalization").write, kFp32);
}

TEST(WithReferences, PlainFloat32IsLoweredAsTheLanesBesideIt) {
  const std::vector<LaneConfig> lanes =
      with_references(lanes_of({"float32", "float16_stagewise", "bfloat16_stagewise"}));
  ASSERT_THAT(names(lanes), ElementsAre("float32", "float16_stagewise", "bfloat16_stagewise"));
  EXPECT_TRUE(lanes[0].plan.defaults.stagewise);
  EXPECT_TRUE(is_full_precision(lanes[0].plan));
  EXPECT_THAT(references(lanes), ElementsAre(-1, 0, 0));
  EXPECT_FALSE(with_references(lanes_of({"float32", "float16"}))[0].plan.defaults.stagewise);
}

TEST(WithReferences, EveryLoweringHasItsOwn) {
  const std::vector<LaneConfig> lanes = with_references(
      lanes_of({"float32", "mixed_float16", "float16_stagewise", "bfloat16_stagewise"}));
  ASSERT_THAT(names(lanes), ElementsAre("float32", "float32~float16_stagewise", "mixed_float16",
                                        "float16_stagewise", "bfloat16_stagewise"));
  EXPECT_FALSE(lanes[0].plan.defaults.stagewise);
  EXPECT_TRUE(lanes[1].plan.defaults.stagewise);
  EXPECT_TRUE(is_full_precision(lanes[1].plan));
  EXPECT_EQ(lanes[1].backend, lanes[0].backend);
  EXPECT_THAT(references(lanes), ElementsAre(-1, -1, 0, 1, 1));
}

TEST(WithReferences, AReferenceThatIsThereServes) {
  std::vector<LaneConfig> lanes = lanes_of({"float32", "mixed_float16", "float16_stagewise"});
  lanes.insert(lanes.begin() + 1, test::lane(stagewise_float32(), "none"));
  EXPECT_THAT(names(with_references(lanes)),
              ElementsAre("float32", "float32_stagewise", "mixed_float16", "float16_stagewise"));
}

// A user's own fp32 plan stays what it is.
TEST(WithReferences, APlanThatIsNotPlainIsNotChanged) {
  std::vector<LaneConfig> lanes = lanes_of({"float16_stagewise"});
  Plan own;
  own.name = "own";
  own.buffers = BufferCommit::always;
  lanes.insert(lanes.begin(), test::lane(own, "none"));
  const std::vector<LaneConfig> all = with_references(lanes);
  ASSERT_THAT(names(all), ElementsAre("own", "float32~float16_stagewise", "float16_stagewise"));
  EXPECT_FALSE(all[0].plan.defaults.stagewise);
}

TEST(WithReferences, RulesCountAsWell) {
  std::vector<LaneConfig> lanes = lanes_of({"float32", "mixed_float16", "mixed_float16"});
  PlanRule rule;
  rule.op = "Softmax";
  rule.stagewise = true;
  lanes[2].plan.rules.push_back(rule);
  lanes[2].plan.name = "parts";
  const std::vector<LaneConfig> all = with_references(lanes);
  ASSERT_THAT(names(all), ElementsAre("float32", "float32~parts", "mixed_float16", "parts"));
  EXPECT_TRUE(resolve(all[1].plan, "head/softmax", "Softmax").stagewise);
  EXPECT_FALSE(resolve(all[1].plan, "norm", "LayerNormalization").stagewise);
  EXPECT_FALSE(resolve(all[0].plan, "head/softmax", "Softmax").stagewise);
}

TEST(WithReferences, WithoutALaneInFp32NothingIsAdded) {
  for (const std::vector<std::string>& plans :
       {std::vector<std::string>{"float16_stagewise", "mixed_float16"},
        std::vector<std::string>{"float64", "float16_stagewise"}, std::vector<std::string>{}}) {
    EXPECT_EQ(names(with_references(lanes_of(plans))), plans);
  }
}

TEST(WithReferences, TheOthersKeepTheirOrderAndTheirSettings) {
  std::vector<LaneConfig> lanes = lanes_of({"float16_stagewise", "float32", "mixed_float16"});
  lanes[2].scaler = parse_loss_scale("dynamic:4096");
  const std::vector<LaneConfig> all = with_references(lanes);
  ASSERT_THAT(names(all), ElementsAre("float16_stagewise", "float32", "float32~float16_stagewise",
                                      "mixed_float16"));
  EXPECT_EQ(all[3].scaler.kind, LossScalerConfig::Kind::dynamic);
  EXPECT_EQ(all[2].scaler.kind, LossScalerConfig::Kind::none);
  EXPECT_THAT(references(all), ElementsAre(2, -1, -1, 1));
}

}  // namespace
}  // namespace halfscope
