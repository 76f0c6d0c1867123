// SPDX-License-Identifier: MIT
// The weights that layers read, and their cost in fp32, compared with sizes computed by hand.
#include "analysis/proof/cost.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/lower/lower.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

SiteInfo tensor(const char* path, const char* name, Role role, Shape shape,
                const FloatFormat& format = kFp16) {
  return {.path = path,
          .tensor = name,
          .role = role,
          .phase = Phase::forward,
          .op = "",
          .format = format,
          .shape = std::move(shape)};
}

LayerInfo layer(const char* path, const char* op, std::vector<std::string> inputs,
                int64_t parameters) {
  LayerInfo info;
  info.path = path;
  info.op = op;
  info.inputs = std::move(inputs);
  info.read = info.write = kFp16;
  info.parameters = parameters;
  return info;
}

/// `fc` multiplies by a frozen weight of 160 x 160: a constant, 51.2 kB in fp16.
LaneInfo frozen() {
  LaneInfo lane;
  lane.layers = {layer("fc", "MatMul", {"input"}, 25600)};
  lane.sites = {tensor("fc", "constant", Role::input, {160, 160}),
                tensor("fc", "constant_2", Role::input, {}),
                tensor("fc", "activation", Role::activation, {8, 160})};
  return lane;
}

TEST(Cost, ConstantsThatStandForWeightsCount) {
  const LaneInfo lane = frozen();
  EXPECT_EQ(weights_in(lane.sites[0]), 25600);
  EXPECT_EQ(weights_in(lane.sites[1]), 0) << "one number is a setting";
  EXPECT_EQ(weights_in(lane.sites[2]), 0);
  const Cost cost = cost_of_fp32(lane, {"fc"});
  EXPECT_EQ(cost.weight_bytes, 25600 * 2);
  EXPECT_DOUBLE_EQ(cost.weight_share, 1.0);
  EXPECT_DOUBLE_EQ(cost.multiply_share.value(), 1.0);
}

TEST(Cost, ALayerReadsItsConstantTensorAsParameters) {
  Model model;
  model.input = model.graph.add_input("x", {2, 3});
  const ValueId weight = model.graph.add_constant(Tensor{{3, 4}, std::vector<float>(12, 0.5f)});
  const ValueId product = model.graph.add1("MatMul", "fc", {model.input, weight});
  model.logits = model.graph.add1("Mul", "half", {product, model.graph.add_constant(0.5f)});
  model.outputs = {{"y", model.logits}};
  const Executable exe = lower_inference(model, preset_plan("mixed_float16").value());
  ASSERT_EQ(exe.layers.size(), 2u);
  EXPECT_EQ(exe.layers[0].parameters, 12);
  EXPECT_EQ(exe.layers[1].parameters, 0) << "one number is a setting";
}

/// `pos` is a weight that the node `add` reads; `proj` has a weight that another node makes for it.
TEST(Cost, AWeightCountsWhereItIsReadWhateverItIsCalled) {
  LaneInfo lane;
  lane.layers = {layer("add", "Add", {"input"}, 4096), layer("make", "Mul", {}, 512),
                 layer("proj", "MatMul", {"add", "make"}, 0)};
  lane.sites = {tensor("pos", "weight", Role::weight, {64, 64}),
                tensor("add", "activation", Role::activation, {8, 64}),
                tensor("make", "activation", Role::activation, {512}, kFp32),
                tensor("proj", "weight", Role::weight, {512}, kFp32),
                tensor("proj", "activation", Role::activation, {8, 8})};
  EXPECT_EQ(parameters_of(0, 4096), 4096);
  const Cost add = cost_of_fp32(lane, {"add"});
  EXPECT_EQ(add.weight_bytes, 4096 * 2);
  EXPECT_DOUBLE_EQ(add.weight_share, 4096.0 / 4608.0);
  const Cost proj = cost_of_fp32(lane, {"proj"});
  EXPECT_EQ(proj.weight_bytes, 512 * 2);
  EXPECT_DOUBLE_EQ(proj.weight_share, 512.0 / 4608.0);
}

/// A weight of [32, 784] divided by its norm, as torch's weight_norm does, beside one of [10, 32].
/// `scores` multiplies two activations, which are no weights.
TEST(Cost, AWeightThatOtherLayersComputeCountsInItsProduct) {
  LaneInfo lane;
  lane.layers = {layer("w/square", "Mul", {"w", "w"}, 25088),
                 layer("w/sum", "ReduceSum", {"w/square"}, 0),
                 layer("w/root", "Sqrt", {"w/sum"}, 0),
                 layer("w:div", "Div", {"w", "w/root"}, 25088),
                 layer("1:gemm", "Gemm", {"input", "w:div", "1"}, 32),
                 layer("3", "Gemm", {"1:gemm"}, 330),
                 layer("scores", "MatMul", {"3", "3"}, 0)};
  lane.sites = {tensor("input", "input", Role::input, {16, 784}),
                tensor("w", "original", Role::weight, {32, 784}),
                tensor("1", "bias", Role::weight, {32}),
                tensor("3", "weight", Role::weight, {10, 32})};
  const std::pair<const char*, Shape> outputs[] = {
      {"w/square", {32, 784}}, {"w/sum", {32, 1}}, {"w/root", {32, 1}}, {"w:div", {32, 784}},
      {"1:gemm", {16, 32}},    {"3", {16, 10}},    {"scores", {10, 10}}};
  for (const auto& [path, shape] : outputs)
    lane.sites.push_back(tensor(path, "activation", Role::activation, shape));
  const double first = 16.0 * 32 * 784, second = 16.0 * 10 * 32;
  EXPECT_DOUBLE_EQ(cost_of_fp32(lane, {"3"}).multiply_share.value(), second / (first + second));
  EXPECT_DOUBLE_EQ(cost_of_fp32(lane, {"1:gemm"}).multiply_share.value(), first / (first + second));
}

/// Two products of [8, 160] by [160, 160]: 204800 multiply-adds each.
LaneInfo two_products() {
  LaneInfo lane;
  lane.layers = {layer("a", "MatMul", {"input"}, 25600), layer("b/steps", "MatMul", {"a"}, 25600)};
  for (const char* path : {"a", "b/steps"}) {
    lane.sites.push_back(tensor(path, "weight", Role::weight, {160, 160}));
    lane.sites.push_back(tensor(path, "activation", Role::activation, {8, 160}));
    lane.sites.push_back(tensor(path, "update", Role::update, {160, 160}));
    lane.sites.push_back(tensor(path, "m", Role::state, {160, 160}));
  }
  return lane;
}

TEST(Cost, AWideResultMovesNoMultiplyAdds) {
  const LaneInfo lane = two_products();
  const Cost store = cost_of(lane, PlanEdit::of(FixKind::store_fp32, "a"));
  EXPECT_EQ(store.weight_bytes, 0);
  EXPECT_EQ(store.activation_bytes, 8 * 160 * 2);
  EXPECT_DOUBLE_EQ(store.multiply_share.value(), 0.0);
  const Cost whole = cost_of(lane, PlanEdit::of(FixKind::operator_fp32, "a"));
  EXPECT_EQ(whole.weight_bytes, 25600 * 2);
  EXPECT_DOUBLE_EQ(whole.multiply_share.value(), 0.5);
  EXPECT_TRUE(is_cheaper(store, whole));
  EXPECT_FALSE(is_cheaper(whole, store));
  EXPECT_EQ(cost_words(whole), "50% of the multiply-adds in fp32, 53.8 kB more memory");
  EXPECT_EQ(cost_words(cost_of(lane, PlanEdit::of(FixKind::accumulate_fp32, "a"))), "");
}

TEST(Cost, AChangeOfACompositeHoldsForItsSteps) {
  const Cost cost = cost_of(two_products(), PlanEdit::of(FixKind::operator_fp32, "b"));
  EXPECT_DOUBLE_EQ(cost.multiply_share.value(), 0.5);
}

TEST(Cost, StateAndVariablesAreStoredOnce) {
  const LaneInfo lane = two_products();
  EXPECT_EQ(cost_of(lane, PlanEdit::of(FixKind::state_fp32)).weight_bytes, 2 * 25600 * 2);
  PlanEdit both = PlanEdit::of(FixKind::weights_fp32);
  both.set(FixKind::state_fp32, true);
  EXPECT_EQ(cost_of(lane, both).weight_bytes, 4 * 25600 * 2);
}

}  // namespace
}  // namespace halfscope
