// SPDX-License-Identifier: MIT
// Logits with padded rows (gpu/engine/padded_rows.h): which values have them, and that steps with
// them, recorded and plain, give the emulator's bits.
#include "gpu/engine/padded_rows.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/policy/policy.h"
#include "tests/gpu/interpreted_library.h"
#include "tests/gpu/small_network.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: networks and libraries of these tests

/// Two layers without biases, the second with as many outputs as there are classes.
Model classifier(int64_t classes) {
  Model model;
  Graph& graph = model.graph;
  model.input = graph.add_input("input", {kBatch, 2, 8, 8});
  model.labels = graph.add_input("labels", {kBatch}, ElementType::index);
  const ValueId flat = graph.add1("Flatten", "flatten", {model.input});
  const auto layer = [&](const std::string& path, ValueId x, int64_t in, int64_t out) {
    const ValueId weight = graph.add_variable(path + ".weight", {out, in}, {.bound = 0.5});
    return graph.add1("Gemm", path, {x, weight}, {{"transB", int64_t{1}}});
  };
  model.logits = layer("fc", layer("hidden", flat, 128, 16), 16, classes);
  model.loss = graph.add1("SoftmaxCrossEntropyLoss", "loss", {model.logits, model.labels});
  return model;
}

Executable training(const Model& model, const char* plan) {
  return lower(model, preset_plan(plan).value(), TrainingSpec{parse_optimizer("sgd"), 1});
}

gpu::RowPitches padded(const Executable& exe, Entry entry) {
  return gpu::find_padded_rows(exe, entry, gpu::Layout(exe));
}

TEST(PaddedRows, AreThoseOfLogitsThatDoNotBeginWell) {
  const Executable exe = training(classifier(10925), "mixed_float16");
  const gpu::RowPitches found = padded(exe, Entry::grad);
  ASSERT_EQ(found.size(), 2u) << "logits and their gradient";
  ASSERT_TRUE(found.contains(exe.logits));
  for (const auto& [value, pitch] : found) EXPECT_EQ(pitch, 10928);
  EXPECT_EQ(padded(exe, Entry::eval).size(), 1u);
  EXPECT_TRUE(padded(exe, Entry::update).empty());
}

TEST(PaddedRows, AreNotThoseOfLogitsThatAnEvaluationReads) {
  TrainingSpec spec{parse_optimizer("sgd"), 1};
  spec.scores = true;
  const Executable exe = lower(classifier(10925), preset_plan("mixed_float16").value(), spec);
  EXPECT_EQ(exe.eval_logits, exe.logits);
  EXPECT_TRUE(padded(exe, Entry::eval).empty());
  EXPECT_EQ(padded(exe, Entry::grad).size(), 2u);
}

TEST(PaddedRows, AreLeftAwayWhereTheyWouldNotHelp) {
  EXPECT_TRUE(padded(training(classifier(10928), "mixed_float16"), Entry::grad).empty());
  EXPECT_TRUE(padded(training(classifier(10925), "float32"), Entry::grad).empty());
  EXPECT_TRUE(padded(training(classifier(101), "mixed_float16"), Entry::grad).empty()) << "small";
  // Somebody else reads the logits.
  Model model = classifier(10925);
  model.loss = model.graph.add1("Add", "both",
                                {model.loss, model.graph.add1("ReduceMean", "mean", {model.logits},
                                                              {{"keepdims", int64_t{0}}})});
  EXPECT_TRUE(padded(training(model, "mixed_float16"), Entry::grad).empty());
}

/// Runs two steps and an evaluation; `plain`: nobody reads values in between.
std::unique_ptr<Program> run(const Executable& exe, const Backend& backend, bool plain) {
  std::unique_ptr<Program> program = backend.compile(exe);
  if (plain) program->keep_values(false);
  for (const auto& [path, tensor] : initial_weights(classifier(10925).graph, 1)) {
    for (const Variable& variable : exe.graph.variables()) {
      if (variable.path != path) continue;
      program->write(variable.value, std::span<const float>(tensor.data));
    }
  }
  const auto batch = [&](uint64_t seed) {
    program->write(exe.input, std::span<const float>(noise(kBatch * 2 * 64, seed)));
    program->write(exe.labels,
                   std::span<const int32_t>(std::vector<int32_t>{3, 9, 0, -1, 10924, 5}));
  };
  for (uint64_t step = 0; step < 2; ++step) {
    batch(step);
    program->write_scalar(exe.loss_scale, 512.0);
    program->write_scalar(exe.inverse_scale, 1.0 / 512.0);
    program->write_scalar(exe.learning_rate, 0.01);
    program->write_scalar(exe.keep_sum, 0.0);
    for (const Entry entry :
         {Entry::begin, Entry::grad, Entry::accumulate, Entry::norm, Entry::update}) {
      program->run(entry, {});
    }
  }
  batch(7);
  program->run(Entry::eval, {});
  return program;
}

TEST(PaddedRows, GiveTheBitsOfTheEmulator) {
  const Executable exe = training(classifier(10925), "mixed_float16");
  const std::unique_ptr<Program> expected = run(exe, emulation_backend(), false);
  for (const bool biases : {true, false}) {
    std::vector<MatrixPlan> plans;
    const LibraryBackend fast({.fast = true, .biases = biases, .plans = &plans});
    for (const bool plain : {false, true}) {
      SCOPED_TRACE(plain ? "plain" : "recorded");
      const std::unique_ptr<Program> got = run(exe, fast, plain);
      EXPECT_EQ(got->read_scalar(exe.loss), expected->read_scalar(exe.loss));
      for (const Variable& variable : exe.graph.variables()) {
        EXPECT_EQ(got->read(variable.value).data, expected->read(variable.value).data)
            << variable.path;
      }
      if (plain) {
        EXPECT_THROW(static_cast<void>(got->read(exe.logits)), Error) << "they were not padded";
      } else {
        EXPECT_EQ(got->read(exe.logits).data, expected->read(exe.logits).data);
      }
    }
    int64_t padded = 0;
    for (const MatrixPlan& each : plans) {
      for (const int64_t size : {each.m, each.n, each.k}) padded += size == 10928 ? 1 : 0;
    }
    EXPECT_GE(padded, 4) << "logits and the gradient of what they are made from, in both runs";
  }
}

// A library that cannot write them: logits have the usual rows.
TEST(PaddedRows, AreNoMatterToOtherLibraries) {
  const Executable exe = training(classifier(10925), "mixed_float16");
  const std::unique_ptr<Program> expected = run(exe, emulation_backend(), false);
  for (const InterpretedOptions& options :
       {InterpretedOptions{.matrices = false, .fast = true}, InterpretedOptions{}}) {
    const std::unique_ptr<Program> got = run(exe, LibraryBackend(options), true);
    EXPECT_EQ(got->read(exe.logits).data, expected->read(exe.logits).data);
  }
}

}  // namespace
}  // namespace halfscope
