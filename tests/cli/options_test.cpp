// SPDX-License-Identifier: MIT
// The settings of `train` as stored in run files, and the numbers that flags accept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/args/arguments.h"
#include "cli/args/settings.h"
#include "core/error.h"

namespace halfscope {
namespace {

using testing::Contains;
using testing::Not;
using Words = std::vector<std::string>;

Words settings_of(const Words& arguments) {
  return settings_words(parse_settings(kTrain, arguments));
}

TEST(CliOptions, SettingsOfDefaults) {
  EXPECT_EQ(settings_of(Words{}),
            (Words{"--model", "lenet", "--data", "digits", "--steps", "200", "--batch", "128",
                   "--optimizer", "sgd:lr=0.1", "--seed", "1"}));
}

TEST(CliOptions, SettingsGoThereAndBack) {
  const Words table[] = {
      {},
      {"--optimizer", "adam:beta1=0.8", "--lr", "0.003", "--no-shuffle"},
      {"--model", "mlp:784-10", "--steps", "1e3", "--init", "a b.npz", "--every", "7"},
      {"--no-record", "--no-eval", "--seed", "4294967295", "--batch", "3"},
      {"--optimizer", "sgd:momentum=0.9,weight_decay=1e-4"},
      {"--optimizer", "rmsprop:alpha=0.9,momentum=0.5", "--clip-norm", "0.25", "--no-errors"},
      {"--schedule", "cosine:warmup=5,floor=0.1", "--micro-batches", "4", "--accumulate-grads",
       "fp16", "--eval-every", "10", "--early-stop", "2", "--errors-every", "5"},
      {"--ema", "0.99:format=bf16,form=average", "--eval-ema", "--clip-norm", "2", "--clip-format",
       "fp16", "--optimizer-compute", "bf16"},
  };
  for (const Words& words : table) {
    const Words once = settings_of(words);
    EXPECT_EQ(settings_of(once), once);
  }
  EXPECT_THAT(settings_of(table[1]), Contains("adam:lr=0.003,beta1=0.8"));
  EXPECT_THAT(settings_of(table[2]), Contains("1000"));
  // The training's settings are there, each flag with its value.
  const auto holds = [](const Words& settings, const Words& part) {
    return std::search(settings.begin(), settings.end(), part.begin(), part.end()) !=
           settings.end();
  };
  EXPECT_TRUE(holds(settings_of(table[5]), {"--clip-norm", "0.25"}));
  EXPECT_TRUE(holds(settings_of(table[5]), {"--no-errors"}));
  EXPECT_TRUE(holds(settings_of(table[7]), {"--ema", "0.99:form=average,format=bf16"}));
  for (const char* word : {"--eval-ema", "--clip-format", "--optimizer-compute"}) {
    EXPECT_THAT(settings_of(table[7]), Contains(word));
  }
  const Words parts[] = {{"--schedule", "cosine:floor=0.1,warmup=5"},
                         {"--micro-batches", "4"},
                         {"--accumulate-grads", "fp16"},
                         {"--eval-every", "10"},
                         {"--early-stop", "2"},
                         {"--errors-every", "5"}};
  for (const Words& part : parts) EXPECT_TRUE(holds(settings_of(table[6]), part)) << part[0];
}

TEST(CliOptions, SettingsLeaveOutLanesAndOutputs) {
  const Words settings = settings_of(Words{"--plan",
                                           "float16",
                                           "--fp32",
                                           "conv*",
                                           "--fp32",
                                           "fc1",
                                           "--accumulate",
                                           "fp64",
                                           "--loss-scale",
                                           "none",
                                           "--checkpoint",
                                           "c.npz",
                                           "--checkpoint-every",
                                           "5",
                                           "--verify",
                                           "--out",
                                           "x.hscope",
                                           "--save-weights",
                                           "w.npz",
                                           "--force",
                                           "--threads",
                                           "2",
                                           "--quiet",
                                           "--json"});
  EXPECT_EQ(settings, settings_of(Words{}));
  EXPECT_EQ(lane_settings_words(
                parse_settings(kTrain, {"--plan", "float16", "--loss-scale", "none", "--accumulate",
                                        "fp64", "--fp32", "conv*", "--fp32", "fc1"})),
            (Words{"--lanes", "float32,float16", "--fp32", "conv*", "--fp32", "fc1", "--accumulate",
                   "fp64", "--loss-scale", "none"}));
  for (const Words& bad : {Words{"--no-such-flag"}, {"--steps", "many"}, {"--steps"}, {"lenet"}}) {
    EXPECT_THROW(parse_settings(kTrain, bad), Error) << bad[0];
  }
}

// Commas, quotes and braces inside a plan's JSON are not separators.
TEST(CliOptions, LanesMaySpellPlansOut) {
  const std::string plan =
      R"({"schema":"halfscope.plan/1","name":"a}\"{b","default":{"format":"fp16"}})";
  const Settings settings =
      parse_settings(kTrain, {"--lanes", "float32,emulated:" + plan + ",bfloat16"});
  ASSERT_EQ(settings.lanes.size(), 3u);
  EXPECT_EQ(settings.lanes[1].backend, "emulated");
  ASSERT_TRUE(settings.lanes[1].spelled_out);
  EXPECT_EQ(settings.lanes[1].spelled_out->name, "a}\"{b");
  const Words words = lane_settings_words(settings);
  EXPECT_EQ(lane_settings_words(parse_settings(kTrain, words)), words);
  EXPECT_EQ(settings.lanes[2].plan, "bfloat16");
}

TEST(CliOptions, LossScalesAsText) {
  for (const char* text : {"none", "dynamic:65536", "static:1024", "static:0.1", "dynamic:3e+30"}) {
    EXPECT_EQ(loss_scale_text(parse_loss_scale(text)), text);
  }
  EXPECT_EQ(loss_scale_text(parse_loss_scale("dynamic")), "dynamic:65536");
  EXPECT_EQ(loss_scale_text(parse_loss_scale("static:1e3")), "static:1000");
}

TEST(CliOptions, WholeNumbers) {
  const struct {
    const char* text;
    uint64_t value;
  } good[] = {{"1", 1}, {"1000", 1000}, {"1e3", 1000}, {"2.5e2", 250}, {"+7", 7}, {"1.0", 1}};
  for (const auto& each : good) EXPECT_EQ(parse_integer("--n", each.text, 1, 1000), each.value);
  for (const char* bad : {"", "0", "1001", "-1", "1.5", "1e-3", "many", "1 ", " 1", "0x10", "nan",
                          "inf", "1e300", "99999999999999999999", "1,000"}) {
    EXPECT_THROW(parse_integer("--n", bad, 1, 1000), Error) << bad;
  }
  EXPECT_EQ(parse_integer("--seed", "4294967295", 0, 4294967295), 4294967295u);
}

TEST(CliOptions, Numbers) {
  EXPECT_EQ(parse_number("--lr", "1e-3", 0.0, 1.0), 1e-3);
  EXPECT_EQ(parse_number("--lr", ".5", 0.0, 1.0), 0.5);
  for (const char* bad : {"", "fast", "-0.1", "nan", "inf", "1e999", "0.1x", "2"}) {
    EXPECT_THROW(parse_number("--lr", bad, 0.0, 1.0), Error) << bad;
  }
}

}  // namespace
}  // namespace halfscope
