// SPDX-License-Identifier: MIT
// Steps of a small network on the emulator and another backend.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/lower/lower.h"
#include "core/lower/optimizer.h"
#include "core/models/models.h"
#include "tests/gpu/lockstep.h"

namespace halfscope::test {

/// Fully connected with a batch normalization, a convolution and a pooling: small, but all there.
inline Model small_network(int64_t batch) {
  Model model;
  Graph& graph = model.graph;
  model.input = graph.add_input("input", {batch, 2, 8, 8});
  model.labels = graph.add_input("labels", {batch}, ElementType::index);
  const auto variable = [&](const std::string& path, const Shape& shape) {
    return graph.add_variable(path, shape, {.bound = 0.5});
  };
  const ValueId conv =
      graph.add1("Conv", "conv", {model.input, variable("conv.weight", {32, 2, 3, 3})},
                 {{"pads", std::vector<int64_t>{1, 1, 1, 1}}});
  const ValueId mean = graph.add_buffer("norm.mean", {32}, {});
  const ValueId var = graph.add_buffer("norm.var", {32}, {.bound = 0.0, .center = 1.0});
  const std::vector<ValueId> norm =
      graph.add("BatchNormalization", "norm",
                {conv, variable("norm.weight", {32}), variable("norm.bias", {32}), mean, var},
                {{"training_mode", int64_t{1}}, {"unbiased", int64_t{1}}});
  for (Variable& each : graph.variables()) {
    if (each.value == mean) each.next = norm[1];
    if (each.value == var) each.next = norm[2];
  }
  const ValueId relu = graph.add1("Relu", "relu", {norm[0]});
  const ValueId pool = graph.add1(
      "MaxPool", "pool", {relu},
      {{"kernel_shape", std::vector<int64_t>{2, 2}}, {"strides", std::vector<int64_t>{2, 2}}});
  const ValueId flat = graph.add1("Flatten", "flatten", {pool});
  model.logits =
      graph.add1("Gemm", "fc", {flat, variable("fc.weight", {10, 512}), variable("fc.bias", {10})},
                 {{"transB", int64_t{1}}});
  model.loss = graph.add1("SoftmaxCrossEntropyLoss", "loss", {model.logits, model.labels});
  return model;
}

/// The same with what newer networks have: normalizations within a sample, smooth activations.
inline Model smooth_network(int64_t batch) {
  Model model;
  Graph& graph = model.graph;
  model.input = graph.add_input("input", {batch, 2, 8, 8});
  model.labels = graph.add_input("labels", {batch}, ElementType::index);
  const auto variable = [&](const std::string& path, const Shape& shape) {
    return graph.add_variable(path, shape, {.bound = 0.5});
  };
  const auto normalized = [&](const char* op, const std::string& path, ValueId x,
                              const Shape& shape, const Attributes& attributes = {}) {
    std::vector<ValueId> inputs{x, variable(path + ".weight", shape)};
    if (std::string(op) != "RMSNormalization") inputs.push_back(variable(path + ".bias", shape));
    return graph.add1(op, path, inputs, attributes);
  };
  ValueId x = graph.add1("Conv", "conv", {model.input, variable("conv.weight", {16, 2, 3, 3})},
                         {{"strides", std::vector<int64_t>{2, 2}}});
  x = normalized("GroupNormalization", "groups", x, {16}, {{"num_groups", int64_t{4}}});
  x = graph.add1("Swish", "swish", {x});
  x = normalized("InstanceNormalization", "instance", x, {16});
  x = graph.add1("PRelu", "prelu", {x, variable("prelu.weight", {16, 1, 1})});
  x = graph.add1("Flatten", "flatten", {x});
  x = normalized("LayerNormalization", "layer", x, {144});
  x = graph.add1("Gemm", "fc1", {x, variable("fc1.weight", {144, 24})});
  x = graph.add1("Gelu", "gelu", {x});
  x = normalized("RMSNormalization", "rms", x, {24});
  x = graph.add1("Mul", "gated", {x, graph.add1("Softmax", "softmax", {x})});
  model.logits = graph.add1("Gemm", "fc2", {x, variable("fc2.weight", {24, 10})});
  model.loss = graph.add1("SoftmaxCrossEntropyLoss", "loss", {model.logits, model.labels});
  return model;
}

/// Convolutions with normalizations, a shortcut, and a pooling between them, without a layer that
/// needs whole planes: all activations can have their channels last. `pooled`: by their maximum in
/// the end, otherwise by their mean.
inline Model residual_network(int64_t batch, bool pooled = false) {
  Model model;
  Graph& graph = model.graph;
  model.input = graph.add_input("input", {batch, 2, 8, 8});
  model.labels = graph.add_input("labels", {batch}, ElementType::index);
  const auto variable = [&](const std::string& path, const Shape& shape) {
    return graph.add_variable(path, shape, {.bound = 0.5});
  };
  const auto normalized = [&](const std::string& path, ValueId x, const Shape& kernel) {
    x = graph.add1("Conv", path, {x, variable(path + ".weight", kernel)},
                   {{"pads", std::vector<int64_t>{1, 1, 1, 1}}});
    const Shape channels{kernel[0]};
    const std::string norm = path + "_norm";
    const ValueId mean = graph.add_buffer(norm + ".mean", channels, {});
    const ValueId var = graph.add_buffer(norm + ".var", channels, {.bound = 0.0, .center = 1.0});
    const std::vector<ValueId> made = graph.add(
        "BatchNormalization", norm,
        {x, variable(norm + ".weight", channels), variable(norm + ".bias", channels), mean, var},
        {{"training_mode", int64_t{1}}, {"unbiased", int64_t{1}}});
    for (Variable& each : graph.variables()) {
      if (each.value == mean) each.next = made[1];
      if (each.value == var) each.next = made[2];
    }
    return made[0];
  };
  ValueId x = graph.add1("Relu", "relu1", {normalized("conv1", model.input, {24, 2, 3, 3})});
  x = graph.add1("MaxPool", "pool", {x},
                 {{"kernel_shape", std::vector<int64_t>{3, 3}},
                  {"strides", std::vector<int64_t>{2, 2}},
                  {"pads", std::vector<int64_t>{1, 1, 1, 1}}});
  const ValueId shortcut = x;
  x = graph.add1("Relu", "relu2", {normalized("conv2", x, {24, 24, 3, 3})});
  x = graph.add1("Add", "add", {normalized("conv3", x, {24, 24, 3, 3}), shortcut});
  x = graph.add1("Relu", "relu3", {x});
  x = graph.add1("Conv", "conv4",
                 {x, variable("conv4.weight", {16, 24, 1, 1}), variable("conv4.bias", {16})});
  x = graph.add1("Sigmoid", "gate", {x});
  // To one pixel, which has no order of channels.
  x = pooled ? graph.add1("MaxPool", "mean", {x}, {{"kernel_shape", std::vector<int64_t>{4, 4}}})
             : graph.add1("GlobalAveragePool", "mean", {x});
  x = graph.add1("Flatten", "flatten", {x});
  model.logits = graph.add1("Gemm", "fc", {x, variable("fc.weight", {16, 10})});
  model.loss = graph.add1("SoftmaxCrossEntropyLoss", "loss", {model.logits, model.labels});
  return model;
}

/// Two layers of attention, with a mask that chooses and one that is added, on tokens of 16 pixels.
inline Model attention_network(int64_t batch) {
  constexpr int64_t kTokens = 8, kWidth = 16;
  Model model;
  Graph& graph = model.graph;
  model.input = graph.add_input("input", {batch, 2, 8, 8});
  model.labels = graph.add_input("labels", {batch}, ElementType::index);
  const auto product = [&](const std::string& path, ValueId x, int64_t out) {
    const Shape shape{graph.value(x).shape.back(), out};
    return graph.add1("MatMul", path, {x, graph.add_variable(path + ".weight", shape, {0.5})});
  };
  const auto tokens = std::vector<int64_t>{batch, kTokens, kWidth};
  ValueId x = graph.add1("Reshape", "tokens", {model.input}, {{"shape", tokens}});
  std::vector<int32_t> seen;
  std::vector<float> added;
  for (int64_t i = 0; i < kTokens * kTokens; ++i) {
    seen.push_back(i % kTokens <= i / kTokens ? 1 : 0);
    added.push_back(static_cast<float>(i % 5) - 2.0f);
  }
  const std::vector<ValueId> masks[] = {
      {graph.add_index_constant({kTokens, kTokens}, seen), graph.add_constant(-INFINITY)},
      {graph.add_constant(Tensor{{kTokens, kTokens}, added})}};
  const Attributes how[] = {{{"scale", 0.3}}, {{"scale", 3.0}, {"divide", int64_t{1}}}};
  for (size_t i = 0; i < 2; ++i) {
    const std::string path = "layer" + std::to_string(i) + "/";
    const ValueId k = graph.add1("Transpose", path + "k", {product(path + "keys", x, kWidth)},
                                 {{"perm", std::vector<int64_t>{0, 2, 1}}});
    std::vector<ValueId> inputs{product(path + "q", x, kWidth), k, product(path + "v", x, kWidth)};
    inputs.insert(inputs.end(), masks[i].begin(), masks[i].end());
    x = graph.add1("Add", path + "add",
                   {x, graph.add1("Attention", path + "attention", inputs, how[i])});
  }
  x = graph.add1("Flatten", "flatten", {x});
  model.logits =
      graph.add1("Gemm", "fc", {x, graph.add_variable("fc.weight", {kTokens * kWidth, 10}, {0.5})});
  model.loss = graph.add1("SoftmaxCrossEntropyLoss", "loss", {model.logits, model.labels});
  return model;
}

inline constexpr int64_t kBatch = 6;

/// Two steps of two micro-batches, and an evaluation. Returns how many values plain steps left out.
inline int64_t run_lockstep(const Plan& plan, const std::string& optimizer, const Backend& backend,
                            const Model& model = small_network(kBatch),
                            const WeightAverage& average = {.decay = 0.9}, bool statistics = true) {
  TrainingSpec spec{parse_optimizer(optimizer), 2};
  spec.average = average;
  spec.clips = true;
  const Executable exe = lower(model, plan, spec);
  Lockstep lanes(exe, backend);
  const NamedTensors weights = initial_weights(model.graph, 1);
  for (const Variable& variable : exe.graph.variables()) {
    const auto found = weights.find(variable.path);
    if (found != weights.end())
      lanes.write(variable.value, std::span<const float>(found->second.data));
  }
  const auto batch = [&](uint64_t seed) {
    lanes.write(exe.input, std::span<const float>(noise(kBatch * 2 * 64, seed)));
    lanes.write(exe.labels, std::span<const int32_t>(std::vector<int32_t>{3, 9, 0, 1, 5, 5}));
  };
  for (uint64_t step = 0; step < 2; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    lanes.set_random(7, step);
    lanes.write_scalar(exe.loss_scale, 512.0);
    lanes.write_scalar(exe.inverse_scale, 1.0 / 512.0);
    lanes.write_scalar(exe.clip, 0.75);
    if (exe.clip_limit != kNone) lanes.write_scalar(exe.clip_limit, 0.5);
    lanes.write_scalar(exe.learning_rate, 0.01);
    for (const StepInput& each : exe.step_scalars) {
      lanes.write_scalar(each.value, scalar_value(each.scalar, static_cast<int64_t>(step) + 1));
    }
    lanes.run(Entry::begin, statistics);
    for (uint64_t part = 0; part < 2; ++part) {
      batch(10 * step + part);
      lanes.write_scalar(exe.keep_sum, part == 0 ? 0.0 : 1.0);
      lanes.run(Entry::grad, statistics);
      if (step == 0 && part == 0) lanes.rerun(Entry::grad);
      lanes.run(Entry::accumulate, statistics);
    }
    lanes.run(Entry::norm, statistics);
    lanes.run(Entry::update, statistics && step == 0);
    if (step == 0) lanes.rerun(Entry::update);
    if (testing::Test::HasFatalFailure()) return 0;
    for (const Variable& variable : exe.graph.variables()) lanes.compare(variable.value);
  }
  batch(99);
  lanes.run(Entry::eval, statistics);
  EXPECT_GT(lanes.compared_elements(), 50000);
  return lanes.left_out();
}

}  // namespace halfscope::test
