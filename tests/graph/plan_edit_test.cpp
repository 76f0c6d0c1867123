// SPDX-License-Identifier: MIT
#include "core/plan/plan_edit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/policy/policy.h"

namespace halfscope {
namespace {

using testing::ElementsAre;

const PlanEdit kAll{.fp32_layers = {"b/conv*", "a"},
                    .fp32_storage = true,
                    .buffers_on_step = true,
                    .loss_scale = 1024.0,
                    .reduction = Reduction{.algorithm = Reduction::Algorithm::tree}};

TEST(PlanEdit, AppliesAfterAllRules) {
  Plan plan = preset_plan("float16").value();
  plan.buffers = BufferCommit::always;
  plan.rules.push_back({.path = "*", .op = "", .read = kE4m3fn, .write = kE4m3fn});
  const Plan edited = kAll.apply(plan);
  EXPECT_EQ(resolve(edited, "a", "Gemm").read, kFp32);
  EXPECT_EQ(resolve(edited, "a", "Gemm").write, kFp32);
  EXPECT_EQ(resolve(edited, "b/conv*", "Conv").write, kFp32);
  EXPECT_EQ(resolve(edited, "b/conv1", "Conv").write, kE4m3fn) << "a path is no glob";
  EXPECT_EQ(edited.storage, kFp32);
  EXPECT_EQ(edited.buffers, BufferCommit::on_step);
  EXPECT_EQ(reduction_text(edited.reduction.value()), "tree");
  EXPECT_EQ(edited.name, plan.name);
  EXPECT_EQ(plan_to_json(PlanEdit{}.apply(plan)), plan_to_json(plan));
}

TEST(PlanEdit, MembersArePartsThatCanBeTakenAway) {
  std::vector<std::string> names;
  PlanEdit rest = kAll;
  for (const PlanEdit& member : kAll.members()) {
    names.push_back(member.member_name());
    EXPECT_THAT(member.members(), ElementsAre(member));
    EXPECT_EQ(kAll.without(member).members().size(), 4u) << names.back();
    rest = rest.without(member);
  }
  EXPECT_THAT(names,
              ElementsAre("b/conv*", "a", "variables.storage", "variables.reduce", "loss_scale"));
  EXPECT_EQ(rest, PlanEdit{.buffers_on_step = true});
  EXPECT_TRUE(rest.members().empty());
  EXPECT_FALSE(rest.empty());
}

TEST(PlanEdit, AddsWhatAnotherChanges) {
  PlanEdit edit{.fp32_layers = {"a"}, .loss_scale = 2.0};
  edit.add({.fp32_layers = {"b", "a"}, .loss_scale = 4.0});
  edit.add({.fp32_storage = true});
  EXPECT_EQ(edit, (PlanEdit{.fp32_layers = {"a", "b"}, .fp32_storage = true, .loss_scale = 2.0}));
  EXPECT_TRUE(edit.changes_plan());
  EXPECT_FALSE(PlanEdit{.loss_scale = 2.0}.changes_plan());
  EXPECT_FALSE(PlanEdit{.loss_scale = 2.0}.empty());
  EXPECT_TRUE(PlanEdit{}.empty());
}

TEST(PlanEdit, KeepsALayerOnce) {
  PlanEdit edit;
  edit.keep("a", true);
  edit.keep("a", true);
  EXPECT_THAT(edit.fp32_layers, ElementsAre("a"));
  EXPECT_TRUE(edit.keeps("a"));
  edit.keep("a", false);
  edit.keep("b", false);
  EXPECT_TRUE(edit.empty());
}

}  // namespace
}  // namespace halfscope
