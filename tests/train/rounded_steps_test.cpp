// SPDX-License-Identifier: MIT
// Steps after the gradients in separate formats: optimizers, clipping and moving averages, compared
// bit by bit with PyTorch's operations (tests/oracle/update_formats.py).
#include "core/lower/rounded_steps.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "core/lower/lower.h"
#include "emulation/backends.h"

namespace halfscope {
namespace {

using Json = nlohmann::json;

const Json& vectors() {
  static const Json all = [] {
    std::ifstream file(std::string(HALFSCOPE_SOURCE_DIR) +
                       "/tests/oracle/vectors/update_formats.json");
    return Json::parse(file);
  }();
  return all;
}

std::vector<float> floats(const Json& bits) {
  std::vector<float> values;
  for (const Json& each : bits) values.push_back(std::bit_cast<float>(each.get<uint32_t>()));
  return values;
}

void expect_same(const std::vector<float>& ours, const std::vector<float>& theirs,
                 const std::string& what) {
  ASSERT_EQ(ours.size(), theirs.size()) << what;
  for (size_t i = 0; i < ours.size(); ++i) {
    // Compared as numbers: a zero may have either sign, a NaN any payload.
    EXPECT_TRUE(ours[i] == theirs[i] || (std::isnan(ours[i]) && std::isnan(theirs[i])))
        << what << " " << i << ": " << ours[i] << ", PyTorch " << theirs[i];
  }
}

/// A graph whose nodes are all of the update.
class Steps {
 public:
  Executable executable;
  Graph& graph() { return executable.graph; }
  Program& program() {
    if (!program_) {
      for (NodeId id = 0; id < static_cast<NodeId>(graph().nodes().size()); ++id) {
        executable.entries[static_cast<size_t>(Entry::update)].push_back(id);
      }
      program_ = emulation_backend().compile(executable);
    }
    return *program_;
  }

 private:
  std::unique_ptr<Program> program_;
};

Shape vector_of(const Json& bits) { return {static_cast<int64_t>(bits.size())}; }

TEST(RoundedSteps, OptimizersRoundEveryOperation) {
  std::map<std::string, int> seen;
  for (const Json& each : vectors()["optimizers"]) {
    const std::string text = each["optimizer"];
    const FloatFormat storage = parse_format(each["storage"].get<std::string>()).value(),
                      compute = parse_format(each["compute"].get<std::string>()).value();
    SCOPED_TRACE(text + " stored in " + format_name(storage) + ", in " + format_name(compute));
    const Optimizer optimizer = parse_optimizer(text);
    Steps steps;
    Graph& graph = steps.graph();
    const Shape shape = vector_of(each["weight"]);
    const ValueId weight = graph.add_variable("p.w", shape, {});
    graph.value(weight).format = storage;
    const ValueId gradient = graph.add_input("gradient", shape);
    const auto scalar = [&](const char* name) { return graph.add_input(name, {}); };
    const UpdateScalars scalars{
        scalar("inverse_scale"), scalar("clip"),
        scalar("learning_rate"), scalar("correction_1"),
        scalar("correction_2"),  optimizer.dampening != 0.0 ? scalar("share") : kNone};
    const Update update =
        add_rounded_update(graph, 0, gradient, optimizer, scalars, storage, compute, false, true);
    std::map<std::string, ValueId> states;
    for (const auto& [value, name] : update.states) states[name] = value;
    Program& program = steps.program();
    program.write(weight, floats(each["weight"]));
    for (size_t step = 0; step < each["gradients"].size(); ++step) {
      SCOPED_TRACE(step);
      const double t = static_cast<double>(step + 1);
      program.write(gradient, floats(each["gradients"][step]));
      program.write_scalar(scalars.inverse_scale, 1.0 / 512.0);
      program.write_scalar(scalars.clip, 0.75);
      program.write_scalar(scalars.learning_rate, optimizer.learning_rate);
      program.write_scalar(scalars.correction_1, 1.0 - std::pow(optimizer.beta1, t));
      program.write_scalar(scalars.correction_2, 1.0 - std::pow(optimizer.beta2, t));
      if (scalars.share != kNone) {
        program.write_scalar(scalars.share, step == 0 ? 1.0 : 1.0 - optimizer.dampening);
      }
      program.run(Entry::update, {});
      expect_same(program.read(weight).data, floats(each["weights"][step]), "weight");
      for (const auto& [name, key] : {std::pair("momentum", "first"), std::pair("adam_m", "first"),
                                      std::pair("grad_avg", "first"), std::pair("adam_v", "second"),
                                      std::pair("square_avg", "second")}) {
        if (!states.contains(name)) continue;
        expect_same(program.read(states.at(name)).data, floats(each[key][step]), name);
        ++seen[name];
      }
    }
    ++seen["optimizers"];
  }
  EXPECT_EQ(seen["optimizers"], 36);
  EXPECT_EQ(seen["adam_v"], 60);
  EXPECT_EQ(seen["square_avg"], 60);
  EXPECT_EQ(seen["grad_avg"], 20);
  EXPECT_EQ(seen["momentum"], 60);
}

TEST(RoundedSteps, ClippingRoundsTheNormAndTheGradients) {
  int overflows = 0, flushed = 0, compared = 0;
  for (const Json& each : vectors()["clipping"]) {
    Plan plan;
    plan.clip = parse_format(each["format"].get<std::string>()).value();
    plan.clip_stagewise = each["stagewise"];
    SCOPED_TRACE(format_name(plan.clip) + (plan.clip_stagewise ? " stagewise " : " ") +
                 each["limit"].dump());
    Steps steps;
    Graph& graph = steps.graph();
    std::vector<ValueId> gradients;
    std::vector<std::string> paths;
    for (const Json& gradient : each["gradients"]) {
      paths.push_back("p" + std::to_string(paths.size()) + ".w");
      gradients.push_back(graph.add_input(paths.back(), vector_of(gradient)));
    }
    const ValueId inverse_scale = graph.add_input("inverse_scale", {}),
                  limit = graph.add_input("limit", {});
    const ClippedGradients all = add_clipping(graph, gradients, paths, inverse_scale, limit, plan);
    Program& program = steps.program();
    for (size_t i = 0; i < gradients.size(); ++i) {
      program.write(gradients[i], floats(each["gradients"][i]));
    }
    program.write_scalar(inverse_scale, 0.5);
    program.write_scalar(limit, each["limit"].get<double>());
    program.run(Entry::update, {});
    const float norm = floats(each["norm"])[0];
    expect_same(program.read(all.norm).data, {norm}, "norm");
    for (size_t i = 0; i < gradients.size(); ++i) {
      expect_same(program.read(all.clipped[i]).data, floats(each["clipped"][i]), paths[i]);
    }
    overflows += std::isinf(norm) ? 1 : 0;
    flushed += norm == 0.0f ? 1 : 0;
    ++compared;
  }
  EXPECT_EQ(compared, 20);
  EXPECT_EQ(overflows, 3) << "the norm itself, and stagewise the squares at 64";
  EXPECT_EQ(flushed, 1) << "stagewise, squares below the smallest subnormal";
}

TEST(RoundedSteps, AveragesRoundEveryOperation) {
  int compared = 0;
  for (const Json& each : vectors()["averages"]) {
    WeightAverage average{.decay = each["decay"]};
    if (each["form"] == "average") average.form = WeightAverage::Form::average;
    const FloatFormat storage = parse_format(each["storage"].get<std::string>()).value(),
                      compute = parse_format(each["compute"].get<std::string>()).value();
    SCOPED_TRACE(weight_average_text(average) + " stored in " + format_name(storage) + ", in " +
                 format_name(compute));
    Steps steps;
    Graph& graph = steps.graph();
    const Shape shape = vector_of(each["weights"][0]);
    graph.add_variable("p.w", shape, {});
    const ValueId moved = graph.add_input("moved", shape);
    graph.variables()[0].next = graph.add1("Assign", "p", {moved});
    const AverageValues values = add_weight_average(graph, 0, average, storage, compute);
    Program& program = steps.program();
    program.write(values.average, floats(each["weights"][0]));
    for (size_t step = 0; step + 1 < each["weights"].size(); ++step) {
      program.write(moved, floats(each["weights"][step + 1]));
      program.run(Entry::update, {});
      expect_same(program.read(values.average).data, floats(each["averages"][step]), "average");
      expect_same(program.read(values.update).data, floats(each["updates"][step]), "update");
    }
    ++compared;
  }
  EXPECT_EQ(compared, 54);
}

}  // namespace
}  // namespace halfscope
