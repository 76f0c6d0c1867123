// SPDX-License-Identifier: MIT
// `halfscope cost`: what it prints, as text and as JSON, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/program.h"
#include "tests/cli/refusals.h"

namespace halfscope {
namespace {

using nlohmann::json;
using test::Bench;
using test::expect_refusals;
using test::Outcome;
using test::Words;
using testing::HasSubstr;

json cost_of(const Bench& bench, Words words) {
  words.insert(words.begin(), "cost");
  words.emplace_back("--json");
  const Outcome outcome = bench.run(words);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return json::parse(outcome.out);
}

TEST(CliCost, RefusesMistakes) {
  const Bench bench;
  expect_refusals(
      bench,
      {{{"cost"}, 2, "cost needs a network", "cost resnet50"},
       {{"cost", "resnet19"}, 2, "unknown model 'resnet19'", "resnet18"},
       {{"cost", "none.onnx"}, 3, "cannot open 'none.onnx'", "check the path"},
       {{"cost", "lenet", "--device", "v10"}, 2, "unknown device 'v10'", "v100"},
       {{"cost", "lenet", "--device", "v100,"}, 2, "unknown device ''", "devices: "},
       {{"cost", "lenet", "--lanes", "float64"}, 2, "runs in double precision", "32 or fewer"},
       {{"cost", "lenet", "--plan", "half"}, 2, "no plan named 'half'", "model.half()"},
       {{"cost", "lenet", "--batch", "0"}, 2, "--batch 0: out of range"},
       {{"cost", "lenet", "--shape", "1x28x"}, 2, "--shape"},
       {{"cost", "lenet", "--shape", "1x8x8"}, 2, "at least 16x16"},
       {{"cost", "lenet", "--data", "digits", "--shape", "1x28x28"}, 2, "without --data"},
       {{"cost", "gpt:2x30x4"}, 2, "not a multiple of 4"},
       {{"cost", "resnet18", "--data", "digits"}, 2, "three channels"}});
}

TEST(CliCost, JsonHasEveryPlanAndDevice) {
  const Bench bench;
  const json cost = cost_of(
      bench, {"mlp:24-16-10", "--batch", "32", "--plan", "mixed_float16", "--device", "v100,h100"});
  for (const char* key : {"schema", "version", "model", "batch", "training", "parameters",
                          "devices", "assumptions", "plans"}) {
    EXPECT_TRUE(cost.contains(key)) << key;
  }
  EXPECT_EQ(cost.at("schema"), "halfscope.cost/1");
  EXPECT_EQ(cost.at("batch"), 32);
  EXPECT_EQ(cost.at("training"), true);
  EXPECT_EQ(cost.at("parameters"), 24 * 16 + 16 + 16 * 10 + 10);
  EXPECT_EQ(cost.at("devices").at(0).at("flops").at("fp16"), 125e12);
  ASSERT_EQ(cost.at("plans").size(), 2u);
  const json& mixed = cost.at("plans").at(1);
  for (const char* key :
       {"plan", "memory", "largest_batch", "flops", "bytes", "casts", "estimates"}) {
    EXPECT_TRUE(mixed.contains(key)) << key;
  }
  EXPECT_EQ(mixed.at("plan"), "mixed_float16");
  EXPECT_EQ(mixed.at("memory").at("weight_copies"), 2 * (24 * 16 + 16 + 16 * 10 + 10));
  // Three products of each layer, but the first one's data need no gradient.
  EXPECT_EQ(mixed.at("flops"), json({{"fp16", 2 * 32 * (2 * 24 * 16 + 3 * 16 * 10)}}));
  ASSERT_EQ(mixed.at("estimates").size(), 2u);
  const json& layers = mixed.at("estimates").at(0).at("layers");
  double seconds = 0.0;
  for (const json& layer : layers) seconds += layer.at("seconds").get<double>();
  EXPECT_NEAR(seconds, mixed.at("estimates").at(0).at("seconds").get<double>(), 1e-12);
  const Outcome text = bench.run({"cost", "gpt:1x32x2", "--batch", "4"});
  EXPECT_THAT(text.out, HasSubstr("gpt:1x32x2, batch 4 of 1024 tokens: "));
  const json pass = cost_of(bench, {"lenet", "--inference", "--lanes", "float16"});
  EXPECT_EQ(pass.at("training"), false);
  EXPECT_EQ(pass.at("plans").at(0).at("memory").at("gradients"), 0);
}

TEST(CliCost, SaysWhatLimitsLayers) {
  const Bench bench;
  const Outcome cost =
      bench.run({"cost", "resnet18", "--batch", "64", "--device", "v100,t4", "--layers"});
  EXPECT_EQ(cost.code, 0);
  for (const char* text :
       {"mixed_float16: ", " times as fast as float32 on v100 (estimated), with ",
        "copies of weights", "largest batch in 32 GB", "nothing was measured", "\nt4 ",
        "sizes are not multiples of 16 bytes", "limited by memory: moves 0.50 times the bytes"}) {
    EXPECT_THAT(cost.out, HasSubstr(text));
  }
  EXPECT_THAT(cost.out, testing::Not(HasSubstr("--layers shows all")));
}

}  // namespace
}  // namespace halfscope
