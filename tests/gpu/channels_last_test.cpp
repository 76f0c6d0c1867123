// SPDX-License-Identifier: MIT
// Plain steps keep channels last between convolutions and run normalizations together with what
// follows them. Both must give the bits of recorded steps, which do neither.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "core/policy/policy.h"
#include "gpu/engine/channel_order.h"
#include "gpu/engine/fusion.h"
#include "tests/gpu/distinct_presets.h"
#include "tests/gpu/interpreted_library.h"
#include "tests/gpu/small_network.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: networks and libraries of these tests

Executable lowered(const Model& model, const std::string& preset) {
  return lower(model, preset_plan(preset).value(), {parse_optimizer("sgd"), 1});
}

std::set<NodeId> convolutions_of(const Executable& exe) {
  std::set<NodeId> found;
  for (NodeId id = 0; id < static_cast<NodeId>(exe.graph.nodes().size()); ++id) {
    const OpDef* const def = lookup_op(exe.graph.node(id).op);
    const ProductKind product = def == nullptr ? ProductKind::none : def->product;
    if (product != ProductKind::none && product != ProductKind::matrix) found.insert(id);
  }
  return found;
}

/// The nodes of an entry that make values with channels last, as "path (operator)".
std::set<std::string> turned(const Executable& exe, const gpu::ChannelOrder& order, Entry entry) {
  std::set<std::string> names;
  for (ValueId value : order.made_by(entry)) {
    const Node& node = exe.graph.node(exe.graph.value(value).producer);
    names.insert(node.op);
  }
  return names;
}

std::string operators(const Executable& exe, const gpu::Chain& chain) {
  std::string names;
  for (NodeId id : chain.nodes) names += (names.empty() ? "" : " ") + exe.graph.node(id).op;
  return names;
}

TEST(ChannelOrder, ActivationsOfConvolutionsHaveTheirChannelsLast) {
  const Executable exe = lowered(residual_network(4), "mixed_float16");
  const gpu::ChannelOrder order(exe, convolutions_of(exe));
  EXPECT_THAT(turned(exe, order, Entry::grad),
              testing::IsSupersetOf({"Conv", "BatchNormalization", "Relu", "MaxPool", "Add",
                                     "Sigmoid", "ConvGradInput", "BatchNormalizationGrad",
                                     "ReluGrad", "MaxPoolGrad", "ReduceMeanGrad"}));
  for (const Variable& variable : exe.graph.variables()) {
    EXPECT_FALSE(order.last(variable.value)) << variable.path;
  }
  for (NodeId id : convolutions_of(exe)) {
    const Node& node = exe.graph.node(id);
    if (node.op == "ConvGradWeight") {
      EXPECT_FALSE(order.last(node.outputs[0])) << node.path;
    }
  }
}

TEST(ChannelOrder, IsThatOfOnnxWhereANodeNeedsPlanes) {
  // Flatten reads the pooled activations as lines.
  const Executable exe = lowered(small_network(4), "mixed_float16");
  const gpu::ChannelOrder order(exe, convolutions_of(exe));
  EXPECT_THAT(turned(exe, order, Entry::grad), testing::Not(testing::Contains("MaxPool")));
  // No library, no reason.
  const gpu::ChannelOrder none(exe, {});
  EXPECT_TRUE(turned(exe, none, Entry::grad).empty());
}

TEST(Fusion, ANormalizationIsFollowedByAnAdditionAndAReLU) {
  const Executable exe = lowered(residual_network(4), "mixed_float16");
  const std::vector<gpu::Chain> chains = gpu::find_chains(exe, Entry::grad);
  ASSERT_EQ(chains.size(), 3u);
  EXPECT_EQ(operators(exe, chains[0]), "BatchNormalization Relu");
  EXPECT_EQ(operators(exe, chains[2]), "BatchNormalization Add Relu");
  for (const gpu::Chain& chain : chains) EXPECT_TRUE(chain.kept.empty());
}

TEST(Fusion, AScaleAndAMaskGoWithSoftmax) {
  const Executable exe = lowered(attention_network(4), "mixed_float16");
  std::vector<std::string> found;
  for (const gpu::Chain& chain : gpu::find_chains(exe, Entry::grad)) {
    found.push_back(operators(exe, chain));
    // SoftmaxGrad reads the softmax in fp32, products read it in fp16.
    EXPECT_EQ(chain.kept.size(), exe.graph.node(chain.last()).op == "Cast" ? 1u : 0u);
  }
  EXPECT_THAT(found, testing::UnorderedElementsAre("Mul Where Softmax Cast", "Div Add Softmax Cast",
                                                   "SoftmaxGrad Where Mul", "SoftmaxGrad Div"));
}

TEST(Fusion, ANormalizationRoundsForTheCastAfterIt) {
  const Executable exe = lowered(smooth_network(4), "mixed_float16");
  std::vector<std::string> found;
  for (const gpu::Chain& chain : gpu::find_chains(exe, Entry::grad)) {
    found.push_back(operators(exe, chain));
  }
  EXPECT_THAT(found, testing::Contains("LayerNormalization Cast"));
}

TEST(Fusion, StepsOfAttentionAreTheEmulators) {
  for (const auto& [preset, plan] : distinct_presets(attention_network(kBatch))) {
    SCOPED_TRACE(preset);
    const int64_t left_out = run_lockstep(plan, "sgd:momentum=0.9", shuffled_executor_backend(),
                                          attention_network(kBatch));
    if (testing::Test::HasFatalFailure()) return;
    if (preset.find("stagewise") == std::string::npos) {
      EXPECT_GT(left_out, 0);
    }
  }
}

/// Products by a library and by our own kernels. Values that nothing outside a fused launch reads
/// are left out.
void compare_steps(const Model& model, const std::map<std::string, Plan>& presets) {
  for (const auto& [preset, plan] : presets) {
    SCOPED_TRACE(preset);
    const bool stagewise = preset.find("stagewise") != std::string::npos;
    for (const bool library : {true, false}) {
      SCOPED_TRACE(library ? "library" : "own kernels");
      const int64_t left_out =
          library ? run_lockstep(plan, "sgd:momentum=0.9", LibraryBackend({}), model)
                  : run_lockstep(plan, "sgd:momentum=0.9", shuffled_executor_backend(), model);
      if (testing::Test::HasFatalFailure()) return;
      if (!stagewise) {
        EXPECT_GT(left_out, 0);
      }
    }
  }
}

TEST(ChannelsLast, StepsAreTheEmulators) {
  const Model model = residual_network(kBatch);
  compare_steps(model, few_presets(model));
}
TEST(EveryPreset, StepsWithChannelsLastAreTheEmulators) {
  const Model model = residual_network(kBatch);
  compare_steps(model, distinct_presets(model));
}

TEST(ChannelsLast, APoolToOnePixelReadsThem) {
  const Executable exe = lowered(residual_network(kBatch, true), "mixed_float16");
  const gpu::ChannelOrder order(exe, convolutions_of(exe));
  EXPECT_THAT(turned(exe, order, Entry::grad), testing::Contains("Sigmoid"))
      << "the pool's operand";
  for (const char* preset : {"float32", "mixed_float16"}) {
    SCOPED_TRACE(preset);
    run_lockstep(preset_plan(preset).value(), "sgd", LibraryBackend({}),
                 residual_network(kBatch, true));
    if (testing::Test::HasFatalFailure()) return;
  }
}

// An operand of fewer dimensions has the elements of a batch of one, but not their order.
TEST(ChannelsLast, ABatchOfOneIsAddedToATensorOfThreeDimensions) {
  Executable exe;
  Graph& graph = exe.graph;
  exe.input = graph.add_input("input", {1, 8, 5, 5});
  exe.inputs = {{"input", exe.input}};
  const ValueId w = graph.add_variable("w", {16, 8, 3, 3}, {});
  const ValueId more = graph.add_variable("more", {16, 3, 3}, {});
  const ValueId conv = graph.add1("Conv", "conv", {exe.input, w});
  const ValueId sum = graph.add1("Add", "add", {conv, more});
  const ValueId relu = graph.add1("Relu", "relu", {sum});
  exe.outputs = {{"relu", relu}};
  exe.forward = Entry::eval;
  // cuDNN reads 16 bits with channels last only.
  for (size_t value = 0; value < graph.values().size(); ++value) {
    graph.value(static_cast<ValueId>(value)).format = kFp16;
  }
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    graph.node(id).plan.read = graph.node(id).plan.write = kFp16;
    exe.entries[static_cast<size_t>(Entry::eval)].push_back(id);
  }
  Lockstep lanes(exe, LibraryBackend({}));
  lanes.write(exe.input, std::span<const float>(noise(200, 1)));
  lanes.write(w, std::span<const float>(noise(16 * 72, 2)));
  lanes.write(more, std::span<const float>(noise(144, 3)));
  for (int i = 0; i < 3; ++i) lanes.run(Entry::eval, true);
}

// A chain ends where a result is not rounded to nearest.
TEST(Fusion, ASoftmaxThatRoundsOtherwiseRunsAlone) {
  for (const RoundingMode mode : {RoundingMode::stochastic, RoundingMode::down}) {
    Plan plan = preset_plan("float16").value();
    PlanRule rule{.path = "", .op = "Softmax"};
    rule.rounding = RoundingChoice{.mode = mode};
    plan.rules.push_back(rule);
    run_lockstep(plan, "sgd", shuffled_executor_backend(), attention_network(kBatch));
    if (testing::Test::HasFatalFailure()) return;
  }
}

// A library that writes 16 bits: into the activation itself where channels are last.
TEST(ChannelsLast, FastStepsHaveTheBitsOfRecordedOnes) {
  for (const char* preset : {"float32", "mixed_float16", "mixed_bfloat16", "float16"}) {
    SCOPED_TRACE(preset);
    run_lockstep(preset_plan(preset).value(), "sgd:momentum=0.9", LibraryBackend({.fast = true}),
                 residual_network(kBatch), {.decay = 0.9}, false);
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace halfscope
