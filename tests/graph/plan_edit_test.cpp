// SPDX-License-Identifier: MIT
#include "core/plan/plan_edit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/policy/policy.h"

namespace halfscope {
namespace {

using testing::ElementsAre;

PlanEdit all_parts() {
  PlanEdit edit = PlanEdit::in_fp32({"b/conv*", "a"});
  edit.set(FixKind::weights_fp32, true);
  edit.set(FixKind::buffers_on_step, true);
  edit.set_loss_scale(1024.0);
  edit.add(PlanEdit::with_reduction(FixKind::reduce_order, parse_reduction("tree")));
  return edit;
}
const PlanEdit kAll = all_parts();

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
              ElementsAre("b/conv*", "a", "variables.storage", "reduce_order tree", "loss_scale"));
  EXPECT_EQ(rest, PlanEdit::of(FixKind::buffers_on_step));
  EXPECT_TRUE(rest.members().empty());
  EXPECT_FALSE(rest.empty());
}

TEST(PlanEdit, AddsWhatAnotherChanges) {
  PlanEdit edit = PlanEdit::in_fp32({"a"});
  edit.set_loss_scale(2.0);
  PlanEdit other = PlanEdit::in_fp32({"b", "a"});
  other.set_loss_scale(4.0);
  edit.add(other);
  edit.add(PlanEdit::of(FixKind::weights_fp32));
  EXPECT_THAT(edit.fp32_layers(), ElementsAre("a", "b"));
  EXPECT_TRUE(edit.has(FixKind::weights_fp32));
  EXPECT_EQ(edit.loss_scale(), 2.0);
  EXPECT_EQ(edit.changes.size(), 4u);
  EXPECT_TRUE(edit.changes_plan());
  EXPECT_FALSE(PlanEdit::with_loss_scale(2.0).changes_plan());
  EXPECT_FALSE(PlanEdit::with_loss_scale(2.0).empty());
  EXPECT_TRUE(PlanEdit{}.empty());
}

Change at(FixKind kind, const char* path) { return {.kind = kind, .path = path}; }

TEST(PlanEdit, ChangesOfOneNodeLeaveTheOthers) {
  Plan plan = preset_plan("float16").value();
  plan.defaults.accumulation = Accumulation::format;
  PlanEdit edit;
  edit.add(at(FixKind::store_fp32, "a"));
  edit.add(at(FixKind::accumulate_fp32, "b"));
  edit.add(at(FixKind::constant, "c"));
  const Plan edited = edit.apply(plan);
  EXPECT_EQ(resolve(edited, "a", "Gemm").read, kFp16);
  EXPECT_EQ(resolve(edited, "a", "Gemm").write, kFp32);
  EXPECT_EQ(resolve(edited, "b", "Gemm").accumulation, Accumulation::fp32);
  EXPECT_EQ(resolve(edited, "b", "Gemm").write, kFp16);
  EXPECT_EQ(resolve(edited, "a", "Gemm").accumulation, Accumulation::format);
  EXPECT_TRUE(resolve(edited, "c", "Add").constants_in_range);
  EXPECT_FALSE(resolve(edited, "a", "Add").constants_in_range);
}

TEST(PlanEdit, ChangesOfTheLaneSetItsFormats) {
  Plan plan = preset_plan("bfloat16").value();
  plan.update_compute = plan.clip = kBf16;
  plan.clip_stagewise = true;
  plan.average = plan.average_compute = kBf16;
  plan.state = plan.gradient_sum = kBf16;
  PlanEdit edit;
  for (const FixKind kind : {FixKind::state_fp32, FixKind::update_fp32, FixKind::average_fp32,
                             FixKind::gradient_sum_fp32, FixKind::clip_fp32}) {
    edit.set(kind, true);
  }
  const Plan edited = edit.apply(plan);
  EXPECT_EQ(edited.state, kFp32);
  EXPECT_EQ(edited.gradient_sum, kFp32);
  EXPECT_EQ(edited.update_compute, kFp32);
  EXPECT_EQ(edited.average, kFp32);
  EXPECT_EQ(edited.average_compute, kFp32);
  EXPECT_EQ(edited.clip, kFp32);
  EXPECT_FALSE(edited.clip_stagewise);
  EXPECT_EQ(edited.storage, kBf16) << "weights are another matter";
}

TEST(PlanEdit, AnotherFormatTakesThePlaceOfNarrowOnes) {
  const Plan plan = preset_plan("float16").value();
  const Plan edited = PlanEdit{.changes = {{.kind = FixKind::format, .text = "bf16"}}}.apply(plan);
  EXPECT_EQ(resolve(edited, "a", "Gemm").read, kBf16);
  EXPECT_EQ(edited.storage, kBf16);
  const Plan mixed = PlanEdit{.changes = {{.kind = FixKind::format, .text = "bf16"}}}.apply(
      preset_plan("mixed_float16").value());
  EXPECT_EQ(mixed.storage, kFp32) << "what is fp32 stays";
  EXPECT_EQ(resolve(mixed, "a", "Softmax").write, kFp32);
}

TEST(PlanEdit, BlocksRoundTheirScalesUp) {
  Plan plan = preset_plan("mxfp8").value();
  for (PlanRule& rule : plan.rules) {
    if (rule.scale) rule.scale = parse_scale("mx").value();
  }
  const Plan edited = PlanEdit::of(FixKind::scale_round_up).apply(plan);
  EXPECT_EQ(scale_name(resolve(edited, "a", "Gemm").scale), "mx:up");
}

TEST(PlanEdit, RangesOfOneNode) {
  PlanEdit edit;
  edit.add(at(FixKind::clamp, "a"));
  edit.add({.kind = FixKind::prescale, .path = "b", .value = 0.0625});
  const Plan edited = edit.apply(preset_plan("mixed_float16").value());
  EXPECT_TRUE(resolve(edited, "a", "Gemm").clamps);
  EXPECT_EQ(resolve(edited, "a", "Gemm").prescale, 0);
  EXPECT_EQ(resolve(edited, "b", "Gemm").prescale, -4);
  EXPECT_FALSE(resolve(edited, "b", "Gemm").clamps);
  EXPECT_EQ(plan_to_json(plan_from_json(plan_to_json(edited))), plan_to_json(edited));
  EXPECT_EQ(edit.members()[1].member_name(), "prescale b 0.0625");
  edit.add({.kind = FixKind::format, .text = "bf16"});
  EXPECT_EQ(resolve(edit.apply(preset_plan("mixed_float16").value()), "b", "Gemm").prescale, -4)
      << "rules of nodes come last";
  for (const double power : {0.0, 0.3, -2.0, 0x1p-101}) {
    const Change change{.kind = FixKind::prescale, .path = "b", .value = power};
    EXPECT_FALSE(change.can_be_tried()) << power;
  }
}

TEST(PlanEdit, IntegersAreOneChange) {
  const Change integers{.kind = FixKind::keep_integer, .path = "c", .nodes = {"a", "b*"}};
  const PlanEdit edit{.changes = {integers}};
  EXPECT_EQ(edit.members().size(), 1u);
  EXPECT_EQ(edit.member_name(), "keep_integer c");
  const Plan edited = edit.apply(preset_plan("float16").value());
  for (const char* path : {"a", "b*", "c"}) {
    EXPECT_EQ(resolve(edited, path, "Mul").read, kFp32) << path;
    EXPECT_EQ(resolve(edited, path, "Mul").write, kFp32) << path;
  }
  EXPECT_EQ(resolve(edited, "b2", "Mul").read, kFp16) << "names are no globs";
  EXPECT_EQ(edit_from_json(edit_to_json(edit)), edit);
  EXPECT_FALSE(edit_from_json(R"([{"kind": "keep_integer", "path": "c", "nodes": "a"}])"));
}

TEST(PlanEdit, ScalesAndSchedulesOfTheLane) {
  Plan plan = preset_plan("fp8_current").value();
  plan.schedule = kFp16;
  PlanRule rule{.path = "bare", .op = ""};
  rule.scale = parse_scale("current:unguarded").value();
  plan.rules.push_back(rule);
  const Plan edited =
      PlanEdit{.changes = {{.kind = FixKind::amax_floor}, {.kind = FixKind::schedule_fp32}}}.apply(
          plan);
  EXPECT_EQ(scale_name(resolve(edited, "bare", "Gemm").scale),
            "current:unguarded,amax-floor=1e-12");
  EXPECT_EQ(scale_name(resolve(edited, "a", "Gemm").scale), "current") << "it has its guard";
  EXPECT_EQ(edited.schedule, kFp32);
  EXPECT_FALSE(is_full_precision([] {
    Plan only;
    only.schedule = kFp16;
    return only;
  }()));
}

TEST(PlanEdit, JsonKeepsEveryChange) {
  PlanEdit edit = kAll;
  edit.add(at(FixKind::constant, "c"));
  edit.add({.kind = FixKind::format, .text = "bf16"});
  const std::optional<PlanEdit> again = edit_from_json(edit_to_json(edit));
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, edit);
  EXPECT_FALSE(edit_from_json("{}"));
  EXPECT_FALSE(edit_from_json(R"([{"kind": "magic"}])"));
}

TEST(Causes, HaveNamesThatReadBack) {
  for (const Mechanism each : all_mechanisms())
    EXPECT_EQ(parse_mechanism(mechanism_name(each)), each);
  for (const FixKind each : all_fixes()) EXPECT_EQ(parse_fix(fix_name(each)), each);
  EXPECT_FALSE(parse_mechanism("operator_fp32"));
  EXPECT_FALSE(parse_fix(""));
}

TEST(PlanEdit, KeepsALayerOnce) {
  PlanEdit edit;
  edit.keep("a", true);
  edit.keep("a", true);
  EXPECT_THAT(edit.fp32_layers(), ElementsAre("a"));
  EXPECT_TRUE(edit.keeps("a"));
  edit.keep("a", false);
  edit.keep("b", false);
  EXPECT_TRUE(edit.empty());
}

}  // namespace
}  // namespace halfscope
