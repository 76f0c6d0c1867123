// SPDX-License-Identifier: MIT
// Chains of element-wise operators that round once: values by hand, in fp16.
#include "core/lower/fused_chains.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/graph/unrounded.h"
#include "core/lower/lower.h"
#include "core/models/models.h"
#include "core/policy/policy.h"
#include "emulation/backends.h"

namespace halfscope {
namespace {

/// (x + 1) * 3 - 2 over two elements, its nodes "add", "mul" and "sub".
Model chain() {
  Model model;
  model.name = "chain";
  Graph& graph = model.graph;
  model.input = graph.add_input("x", {2});
  const ValueId one = graph.add1("Add", "add", {model.input, graph.add_constant(1.0f)});
  const ValueId three = graph.add1("Mul", "mul", {one, graph.add_constant(3.0f)});
  const ValueId two = graph.add1("Sub", "sub", {three, graph.add_constant(2.0f)});
  model.outputs = {{"y", two}};
  return model;
}

Plan fused(const std::string& preset) {
  Plan plan = preset_plan(preset).value();
  plan.fuses = true;
  return plan;
}

std::vector<float> result_of(const Model& model, const Plan& plan, std::vector<float> x) {
  const Executable executable = lower_inference(model, plan);
  const std::unique_ptr<Program> program = emulation_backend().compile(executable);
  program->write(executable.input, x);
  std::vector<TensorStats> none;
  program->run(Entry::eval, none);
  return program->read(executable.outputs[0].value).data;
}

TEST(FusedChains, RoundOnceAtTheirEnd) {
  // 2^-11 + 1 is 1 in fp16, so the unfused chain gives 1; the exact result is 1 + 3 * 2^-11, whose
  // neighbours in fp16 are 1 + 2^-10 and 1 + 2^-9: a tie, to the even one.
  const std::vector<float> x{0x1p-11f, 0x1p-13f};
  EXPECT_EQ(result_of(chain(), preset_plan("float16").value(), x), (std::vector<float>{1, 1}));
  EXPECT_EQ(result_of(chain(), fused("float16"), x),
            (std::vector<float>{1.0f + 0x1p-9f, 1.0f}));  // the second: 1 + 3 * 2^-13 rounds to 1
  EXPECT_EQ(result_of(chain(), fused("float16_stagewise"), x), (std::vector<float>{1, 1}));
}

TEST(FusedChains, AnInnerResultMayExceedTheRange) {
  Model model;
  model.name = "range";
  model.input = model.graph.add_input("x", {1});
  const ValueId large =
      model.graph.add1("Mul", "mul", {model.input, model.graph.add_constant(1024.0f)});
  model.outputs = {
      {"y", model.graph.add1("Mul", "back", {large, model.graph.add_constant(0x1p-10f)})}};
  EXPECT_TRUE(std::isinf(result_of(model, preset_plan("float16").value(), {100.0f})[0]));
  EXPECT_EQ(result_of(model, fused("float16"), {100.0f})[0], 100.0f);
}

/// The paths of nodes whose results are unrounded.
std::vector<std::string> unrounded_in(const Executable& executable, Phase phase) {
  std::vector<std::string> paths;
  for (const NodeId id : executable.entry(executable.forward)) {
    const Node& node = executable.graph.node(id);
    if (node.phase == phase && is_unrounded(executable.graph, node.outputs[0]))
      paths.push_back(node.path);
  }
  return paths;
}

TEST(FusedChains, EndWhereOthersRead) {
  using Paths = std::vector<std::string>;
  EXPECT_EQ(unrounded_in(lower_inference(chain(), fused("float16")), Phase::forward),
            (Paths{"add", "mul"}));
  Model read_twice = chain();
  read_twice.outputs.push_back({"also", read_twice.graph.node(1).outputs[0]});
  EXPECT_EQ(unrounded_in(lower_inference(read_twice, fused("float16")), Phase::forward),
            (Paths{"add"}));
  Model reduces = chain();
  reduces.outputs = {
      {"sum", reduces.graph.add1("ReduceSum", "sum", {reduces.outputs[0].value}, {})}};
  EXPECT_EQ(unrounded_in(lower_inference(reduces, fused("float16")), Phase::forward),
            (Paths{"add", "mul"}));  // sub is read by a sum
}

TEST(FusedChains, OfResNetsAreTheirShortcuts) {
  const Model model = build_model("resnet20", 2, {3, 8, 8}, 10);
  const Executable executable = lower(model, fused("mixed_float16"), {});
  const std::vector<std::string> forward = unrounded_in(executable, Phase::forward);
  ASSERT_EQ(forward.size(), 9u);  // one in each block; ReLU reads it
  EXPECT_EQ(forward[0], "layer1/0/add");
  EXPECT_EQ(
      unrounded_in(lower(model, preset_plan("mixed_float16").value(), {}), Phase::forward).size(),
      0u);
}

TEST(FusedChains, ArePartOfAPlansJson) {
  const Plan plan = fused("mixed_float16");
  const std::string text = plan_to_json(plan);
  EXPECT_NE(text.find("\"fuse\": \"elementwise\""), std::string::npos);
  EXPECT_TRUE(plan_from_json(text).fuses);
  EXPECT_FALSE(plan_from_json(plan_to_json(preset_plan("mixed_float16").value())).fuses);
  std::string wrong = text;
  wrong.replace(wrong.find("elementwise"), 11, "everything");
  EXPECT_THROW(plan_from_json(wrong), Error);
}

}  // namespace
}  // namespace halfscope
