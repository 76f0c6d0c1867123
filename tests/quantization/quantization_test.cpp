// SPDX-License-Identifier: MIT
// Calibration and the search for layers to keep, on networks whose weak layer is known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <string>
#include <vector>

#include "analysis/cost/memory.h"
#include "analysis/quantization/trials.h"
#include "core/error.h"
#include "core/numeric/formats/rng.h"
#include "emulation/backends.h"

namespace halfscope {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kBatch = 8, kIn = 16, kHidden = 12, kOut = 4;

std::vector<float> noise(int64_t count, uint64_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t word = splitmix64(seed * 1000003 + static_cast<uint64_t>(i));
    values.push_back(static_cast<float>(word % 20001) * 1e-4f - 1.0f);
  }
  return values;
}

Dataset samples(int64_t count) {
  Dataset data;
  data.name = "noise";
  data.test.arrays.push_back(
      {.name = "input", .sample_shape = {kIn}, .reals = noise(count * kIn, 1), .samples = count});
  return data;
}

/// first [16 -> 12], middle [12 -> 12], last [12 -> 4]
Model network() {
  Model model;
  Graph& graph = model.graph;
  model.input = graph.add_input("input", {kBatch, kIn});
  const auto layer = [&](ValueId x, const std::string& path, int64_t in, int64_t out) {
    const ValueId w = graph.add_variable(path + ".weight", {out, in}, {});
    return graph.add1("Gemm", path, {x, w}, {{"transB", int64_t{1}}});
  };
  const ValueId first = layer(model.input, "first", kIn, kHidden);
  const ValueId middle = layer(first, "middle", kHidden, kHidden);
  model.outputs = {{"y", layer(middle, "last", kHidden, kOut)}};
  return model;
}

NamedTensors weights() {
  return {{"first.weight", {{kHidden, kIn}, noise(kHidden * kIn, 2)}},
          {"middle.weight", {{kHidden, kHidden}, noise(kHidden * kHidden, 3)}},
          {"last.weight", {{kOut, kHidden}, noise(kOut * kHidden, 4)}}};
}

/// One output of `first` is so large that the range of middle's input has no codes for the others,
/// and middle ignores it.
NamedTensors weights_with_an_outlier() {
  NamedTensors all = weights();
  for (int64_t i = 0; i < kIn; ++i) all["first.weight"].data[static_cast<size_t>(i)] *= 1e4f;
  for (int64_t i = 0; i < kHidden; ++i) {
    all["middle.weight"].data[static_cast<size_t>(i * kHidden)] = 0.0f;
  }
  return all;
}

class Quantization : public testing::Test {
 protected:
  std::vector<ProductRanges> measured(const NamedTensors& of, int64_t count) {
    return measure_products(network(), of, data_, count, emulation_backend(), stop_);
  }
  PlanTrials trials(const NamedTensors& of) {
    return {network(), of, data_, {}, emulation_backend(), stop_};
  }
  std::vector<ProductKey> keys() {
    return {{"first", "Gemm"}, {"middle", "Gemm"}, {"last", "Gemm"}};
  }

  Dataset data_ = samples(40);
  std::atomic<bool> stop_ = false;
};

TEST_F(Quantization, OperandsHaveTheMagnitudesOfWholeBatches) {
  const std::vector<ProductRanges> products = measured(weights(), 20);  // two batches of 8
  ASSERT_EQ(products.size(), 3u);
  EXPECT_EQ(products[0].path, "first");
  EXPECT_EQ(products[0].op, "Gemm");
  EXPECT_FALSE(products[0].known[0]);
  EXPECT_TRUE(products[0].known[1]);
  EXPECT_EQ(products[0].seen[0].count(), 16 * kIn);
  EXPECT_EQ(products[0].seen[1].count(), kHidden * kIn);
  float largest = 0.0f;
  for (int64_t i = 0; i < 16 * kIn; ++i) {
    largest = std::max(largest, std::fabs(data_.test.arrays[0].reals[static_cast<size_t>(i)]));
  }
  EXPECT_EQ(products[0].seen[0].largest(), largest);
  EXPECT_EQ(measured(weights(), 3)[0].seen[0].count(), 8 * kIn);  // at least one
  EXPECT_EQ(measured(weights(), 1000)[0].seen[0].count(), 40 * kIn);
}

TEST_F(Quantization, PlansHaveTheScalesOfTheRanges) {
  const std::vector<ProductRanges> products = measured(weights(), 40);
  const Plan plan = quantized_plan({}, products, {{"middle", "Gemm"}});
  ASSERT_EQ(plan.rules.size(), 2u);
  EXPECT_EQ(plan.rules[0].path, "first");
  EXPECT_EQ(plan.rules[0].scale->factor, products[0].seen[0].largest() / 127.0f);
  EXPECT_EQ(scale_name(*plan.rules[0].second_scale), "channel");
  EXPECT_EQ(plan.rules[1].path, "last");
  const Plan whole = quantized_plan({.by_channel = false}, products, {});
  EXPECT_EQ(whole.rules[0].second_scale->factor, products[0].seen[1].largest() / 127.0f);
}

TEST_F(Quantization, NothingIsKeptIfAllLayersCanBeQuantized) {
  const std::vector<ProductRanges> products = measured(weights(), 40);
  const KeptSearch search =
      find_kept(trials(weights()), {}, products, keys(), {}, {.error = 0.05}, stop_);
  EXPECT_TRUE(search.found);
  EXPECT_TRUE(search.kept.empty());
  EXPECT_GT(search.score.error, 1e-4);  // something was quantized
  EXPECT_EQ(search.trials, 1);
}

TEST_F(Quantization, TheLayerWhoseInputHasAnOutlierIsKept) {
  const NamedTensors of = weights_with_an_outlier();
  const std::vector<ProductRanges> products = measured(of, 40);
  const PlanTrials all = trials(of);
  const Tolerance tolerance{.error = 0.05};
  // Whatever the order in which they are tried.
  std::vector<ProductKey> order = keys();
  std::sort(order.begin(), order.end());
  do {
    const KeptSearch search = find_kept(all, {}, products, order, {}, tolerance, stop_);
    ASSERT_TRUE(search.found);
    ASSERT_EQ(search.kept.size(), 1u);
    EXPECT_EQ(search.kept[0].key.first, "middle");
    EXPECT_GT(search.kept[0].without.error, 0.05);
    EXPECT_LE(search.score.error, 0.05);
  } while (std::next_permutation(order.begin(), order.end()));
  // Its own result is what suffers.
  const std::vector<double> errors = all.errors_of(quantized_plan({}, products, {}), products);
  EXPECT_LT(errors[0], 0.02);
  EXPECT_GT(errors[1], 0.2);
}

TEST_F(Quantization, WeightsOfDifferentSizesNeedAScaleForEachChannel) {
  NamedTensors of = weights();
  // A large output channel of `last`; the others are the same.
  for (int64_t i = 0; i < kHidden; ++i) of["last.weight"].data[static_cast<size_t>(i)] *= 1e4f;
  Model small = network();
  const std::vector<ProductRanges> products = measured(of, 40);
  const auto small_channels = [&](bool by_channel) {
    const Plan plan = quantized_plan({.by_channel = by_channel}, products, {});
    const Executable exe = lower_inference(small, plan);
    const auto program = emulation_backend().compile(exe);
    for (const Variable& each : exe.graph.variables()) {
      program->write(each.value, of.at(each.path).data);
    }
    program->write(exe.inputs[0].value,
                   std::span<const float>(data_.test.arrays[0].reals).first(kBatch * kIn));
    program->run(Entry::eval, {});
    const std::vector<float> y = program->read(exe.outputs[0].value).data;
    float largest = 0.0f;
    for (size_t i = 0; i < y.size(); ++i) {
      if (i % kOut != 0) largest = std::max(largest, std::fabs(y[i]));
    }
    return largest;
  };
  EXPECT_EQ(small_channels(false), 0.0f);  // no codes are left for them
  EXPECT_GT(small_channels(true), 0.1f);
}

TEST_F(Quantization, ANetworkThatCannotBeQuantizedIsKeptWhole) {
  const std::vector<ProductRanges> products = measured(weights(), 40);
  const KeptSearch all = find_kept(trials(weights()), {.format = kInt4Format}, products, keys(), {},
                                   {.error = 0.0}, stop_);
  EXPECT_TRUE(all.found);  // what is left is fp32
  EXPECT_EQ(all.kept.size(), 3u);
  Plan narrow;
  narrow.defaults.read = narrow.defaults.write = kFp16;
  const KeptSearch none =
      find_kept(trials(weights()), {.base = narrow}, products, keys(), {}, {.error = 0.0}, stop_);
  EXPECT_FALSE(none.found);
  EXPECT_GT(none.score.error, 0.0);
}

TEST_F(Quantization, WhatIsKeptAnywayIsNeverQuantized) {
  const std::vector<ProductRanges> products = measured(weights(), 40);
  const KeptSearch search =
      find_kept(trials(weights()), {}, products, {{"last", "Gemm"}},
                {{"first", "Gemm"}, {"middle", "Gemm"}}, {.error = 0.0}, stop_);
  EXPECT_TRUE(search.found);
  ASSERT_EQ(search.kept.size(), 1u);
  EXPECT_EQ(search.score.error, 0.0);
}

TEST_F(Quantization, MistakesHaveMessages) {
  NamedTensors of = weights();
  of["first.weight"].data[0] = std::nanf("");
  try {
    measured(of, 8);
    FAIL() << "NaN was calibrated";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("first: its operands have infinities or NaN"));
  }
  data_ = samples(3);
  try {
    measured(weights(), 8);
    FAIL() << "half a batch was calibrated";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("a whole batch of 8 samples"));
  }
}

TEST_F(Quantization, WeightsTakeTheBytesOfTheirCodes) {
  const std::vector<ProductRanges> products = measured(weights(), 40);
  constexpr int64_t kWeights = kHidden * kIn + kHidden * kHidden + kOut * kHidden;
  const auto bytes = [&](const Plan& plan) {
    return kept_weight_bytes(lower_inference(network(), plan));
  };
  EXPECT_EQ(bytes({}), 4 * kWeights);
  EXPECT_EQ(bytes(quantized_plan({}, products, {})),
            kWeights + 4 * (kHidden + kHidden + kOut) + 3 * 4);  // and tensor scales of 1
}

}  // namespace
}  // namespace halfscope
