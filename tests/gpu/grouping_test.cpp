// SPDX-License-Identifier: MIT
// Nodes that run in one launch: which ones may, and how many launches that saves.
#include "gpu/engine/grouping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "core/lower/optimizer.h"
#include "core/policy/policy.h"
#include "tests/gpu/lockstep.h"
#include "tests/gpu/small_network.h"

namespace halfscope {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

/// Sums of vectors in one entry.
class Sums {
 public:
  ValueId variable(int64_t size = 4) {
    return graph_.add_variable("v" + std::to_string(graph_.variables().size()), {size}, {});
  }
  /// Adds total = sum + value; returns the node.
  NodeId add(ValueId sum, ValueId value) {
    const NodeId id = graph_.value(graph_.add1("GradientSum", "sum", {sum, value, keep_})).producer;
    executable_.entries[static_cast<size_t>(Entry::grad)].push_back(id);
    return id;
  }
  ValueId result(NodeId id) const { return graph_.node(id).outputs[0]; }
  /// Makes the node's result the next value of the variable, in the same memory.
  void replace(ValueId value, NodeId by) {
    for (Variable& each : graph_.variables()) {
      if (each.value == value) each.next = result(by);
    }
  }
  std::map<NodeId, std::vector<NodeId>> groups(const std::function<std::string(NodeId)>& kind_of =
                                                   [](NodeId) { return "sum"; }) const {
    return gpu::find_groups(executable_, Entry::grad, gpu::Layout(executable_), kind_of);
  }

 private:
  Executable executable_;
  Graph& graph_ = executable_.graph;
  ValueId keep_ = graph_.add_variable("keep", {}, {});
};

TEST(Groups, HaveIndependentNodes) {
  Sums sums;
  const ValueId a = sums.variable(), b = sums.variable(), c = sums.variable();
  const NodeId first = sums.add(a, b), second = sums.add(b, c), third = sums.add(c, a);
  EXPECT_THAT(sums.groups(), ElementsAre(Pair(first, ElementsAre(second, third))));
}

TEST(Groups, ReadNothingThatTheirNodesWrite) {
  Sums sums;
  const ValueId a = sums.variable(), b = sums.variable(), c = sums.variable();
  const NodeId first = sums.add(a, b);
  const NodeId reader = sums.add(sums.result(first), c);
  const NodeId free = sums.add(b, c);
  EXPECT_THAT(sums.groups(), ElementsAre(Pair(reader, ElementsAre(free))));
}

// The result of a node replaces a variable that an earlier node reads.
TEST(Groups, KeepWhatEarlierNodesRead) {
  Sums sums;
  const ValueId a = sums.variable(), b = sums.variable();
  sums.add(a, b);
  sums.replace(a, sums.add(b, b));
  EXPECT_THAT(sums.groups(), IsEmpty());
}

TEST(Groups, PassOtherNodesThatTheyDoNotDependOn) {
  Sums sums;
  const ValueId a = sums.variable(), b = sums.variable(), c = sums.variable();
  const NodeId first = sums.add(a, b), other = sums.add(sums.result(first), c);
  const NodeId second = sums.add(b, c), third = sums.add(sums.result(other), b);
  const auto kind_of = [&](NodeId id) { return id == other ? "" : "sum"; };
  EXPECT_THAT(sums.groups(kind_of), ElementsAre(Pair(first, ElementsAre(second))));
  const auto alone = [&](NodeId id) { return id == third ? "" : "sum"; };
  EXPECT_THAT(sums.groups(alone), ElementsAre(Pair(other, ElementsAre(second))));
}

TEST(Groups, AreOfOneKind) {
  Sums sums;
  const ValueId a = sums.variable(), b = sums.variable();
  const NodeId first = sums.add(a, b), second = sums.add(b, a), third = sums.add(a, a);
  const auto kind_of = [&](NodeId id) { return id == second ? "y" : "x"; };
  EXPECT_THAT(sums.groups(kind_of), ElementsAre(Pair(first, ElementsAre(third))));
}

/// A chain of fully connected layers.
Model layers(int64_t count) {
  Model model;
  Graph& graph = model.graph;
  model.input = graph.add_input("input", {2, 8});
  model.labels = graph.add_input("labels", {2}, ElementType::index);
  ValueId x = model.input;
  for (int64_t i = 0; i < count; ++i) {
    const std::string path = "fc" + std::to_string(i);
    x = graph.add1("Gemm", path,
                   {x, graph.add_variable(path + ".weight", {8, 8}, {.bound = 0.5}),
                    graph.add_variable(path + ".bias", {8}, {.bound = 0.5})});
  }
  model.logits = x;
  model.loss = graph.add1("SoftmaxCrossEntropyLoss", "loss", {x, model.labels});
  return model;
}

/// Launches of an entry without statistics.
int64_t launches(const Executable& exe, Entry entry) {
  const std::unique_ptr<Program> program = host_executor_backend().compile(exe);
  program->keep_values(false);
  program->run(entry, {});
  const std::vector<std::string> ways = program->launches_of(entry);
  if (ways.size() != 1 || ways[0].rfind("repeats ", 0) != 0) {
    ADD_FAILURE() << "unknown text about launches";
    return -1;
  }
  return std::atoll(ways[0].c_str() + 8);
}

TEST(Groups, NormsTakeAsManyLaunchesForAnyNumberOfGradients) {
  const Plan plan = preset_plan("float32").value();
  const auto count = [&](int64_t n) {
    return launches(lower(layers(n), plan, TrainingSpec{parse_optimizer("sgd"), 1}), Entry::norm);
  };
  EXPECT_GT(count(1), 0);
  EXPECT_EQ(count(9), count(2));
}

// The optimizers' launches: one per operator, for all variables.
TEST(Groups, UpdatesTakeAsManyLaunchesForAnyNumberOfVariables) {
  struct Case {
    const char *optimizer, *plan;
    int64_t launches;
  };
  for (const Case& each : {Case{"sgd", "float32", 1}, Case{"sgd:momentum=0.9", "mixed_float16", 2},
                           Case{"adamw", "mixed_bfloat16", 2}, Case{"rmsprop", "float32", 2},
                           Case{"rmsprop:momentum=0.5", "float32", 3}}) {
    SCOPED_TRACE(std::string(each.optimizer) + " " + each.plan);
    const Plan plan = preset_plan(each.plan).value();
    for (const int64_t n : {2, 9}) {
      const TrainingSpec spec{parse_optimizer(each.optimizer), 1};
      EXPECT_EQ(launches(lower(layers(n), plan, spec), Entry::update), each.launches) << n;
    }
  }
}

TEST(Groups, SumsOfMicroBatchesTakeOneLaunch) {
  const TrainingSpec spec{parse_optimizer("sgd"), 2};
  const Executable exe = lower(layers(5), preset_plan("mixed_float16").value(), spec);
  EXPECT_EQ(launches(exe, Entry::accumulate), 1);
}

// The network has two buffers.
TEST(Groups, CopiesOfBuffersTakeOneLaunch) {
  const TrainingSpec spec{parse_optimizer("sgd"), 1};
  const Executable exe = lower(test::small_network(2), preset_plan("float32").value(), spec);
  ASSERT_EQ(exe.entry(Entry::begin).size(), 2u);
  EXPECT_EQ(launches(exe, Entry::begin), 1);
  EXPECT_EQ(launches(exe, Entry::update), 2);
}

// Weights are narrowed together, ahead of the layers that read them.
TEST(Groups, CastsOfWeightsTakeOneLaunch) {
  const auto count = [&](int64_t n, const char* plan) {
    const TrainingSpec spec{parse_optimizer("sgd"), 1};
    return launches(lower(layers(n), preset_plan(plan).value(), spec), Entry::grad);
  };
  const int64_t more_layers = count(9, "float32") - count(3, "float32");
  EXPECT_EQ(count(9, "mixed_float16") - count(3, "mixed_float16"), more_layers);
}

// Stochastic rounding draws words by the variable, in every step anew.
TEST(Groups, DoNotDraw) {
  Plan plan = preset_plan("bfloat16").value();
  plan.storage_rounding.mode = RoundingMode::stochastic;
  for (const Backend* backend : {&host_executor_backend(), &shuffled_executor_backend()}) {
    test::run_lockstep(plan, "sgd:momentum=0.9", *backend);
  }
}

}  // namespace
}  // namespace halfscope
