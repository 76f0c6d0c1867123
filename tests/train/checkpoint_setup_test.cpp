// SPDX-License-Identifier: MIT
// A checkpoint fits trainings with the settings, the network and the samples of the one that wrote
// it.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/policy/policy.h"
#include "tests/train/small_training.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: helpers of these tests

/// Returns why a training cannot resume from the checkpoint of another one.
std::string refusal(const TrainConfig& first, const TrainConfig& second,
                    const Dataset& set = data()) {
  const Checkpoint checkpoint = Trainer(first, data()).checkpoint();
  Trainer trainer(second, set);
  try {
    trainer.resume(checkpoint);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "accepted";
}

TEST(Checkpoint, OfAnotherSetUpIsRefused) {
  const TrainConfig setup = config(kMlp, "mixed_float16", "dynamic");
  const std::string start = "the checkpoint was made ";
  EXPECT_EQ(refusal(setup, setup), "accepted");
  TrainConfig other = setup;
  other.seed = 0;
  EXPECT_EQ(refusal(setup, other), start + "with another --seed");
  other.clip_norm = 1.0;
  EXPECT_EQ(refusal(setup, other), start + "without --clip-norm, with another --seed");
  other = setup;
  other.lanes[0].scaler = parse_loss_scale("static:8");
  EXPECT_EQ(refusal(setup, other), start + "with another loss scale of mixed_float16");
  other = setup;
  accumulate_in(other.lanes[0].plan, Accumulation::format);
  EXPECT_EQ(refusal(setup, other), start + "with another plan of mixed_float16");
  other = setup;
  other.optimizer.learning_rate = 5.0;
  EXPECT_EQ(refusal(setup, other), start + "with another --optimizer");
  other = setup;
  other.lanes[0].plan.name = "renamed";
  EXPECT_EQ(refusal(setup, other), "the checkpoint has no lane 'renamed'");
  other = setup;
  other.model = "mlp:256-40-10";
  EXPECT_EQ(refusal(setup, other), start + "with another --model");
  other = setup;
  other.optimizer = parse_optimizer("adam");
  EXPECT_EQ(refusal(setup, other), start + "with another --optimizer");
}

// Whichever of the two trainings has the setting: the checkpoint keeps it, or the one that resumes.
TEST(Checkpoint, NoSettingThatChangesResultsMayComeOrGo) {
  TrainConfig setup = config(kMlp, "mixed_float16", "static:1024");
  setup.batch = 16;
  const std::pair<const char*, std::function<void(TrainConfig&)>> settings[] = {
      {"no-shuffle", [](TrainConfig& c) { c.shuffle = false; }},
      {"micro-batches", [](TrainConfig& c) { c.micro_batches = 2; }},
      {"optimizer-state", [](TrainConfig& c) { c.state_format = kBf16; }},
      {"param-group", [](TrainConfig& c) { c.groups = {parse_parameter_group("*.bias:lr=0.25")}; }},
      {"clip-norm", [](TrainConfig& c) { c.clip_norm = 0.5; }},
      {"clip-before-unscale", [](TrainConfig& c) { c.clip_before_unscale = true; }},
      {"unscale-only", [](TrainConfig& c) { c.unscale_only = true; }},
      {"ema", [](TrainConfig& c) { c.average = parse_weight_average("0.9"); }},
      {"loss", [](TrainConfig& c) { c.network["loss"] = "mse"; }},
      {"frozen", [](TrainConfig& c) { c.network["frozen"] = "fc1.*"; }}};
  for (const auto& [name, set] : settings) {
    TrainConfig with = setup;
    set(with);
    const std::string flag = std::string("--") + name;
    EXPECT_EQ(refusal(setup, with), "the checkpoint was made without " + flag);
    EXPECT_EQ(refusal(with, setup), "the checkpoint was made with " + flag + " (missing here)");
    EXPECT_EQ(refusal(with, with), "accepted") << flag;
  }
  TrainConfig ranks = setup;
  ranks.ranks = 2;
  EXPECT_EQ(refusal(ranks, setup),
            "the checkpoint was made with --ranks (missing here), with --reduce (missing here)");
  // Recording, evaluations and the number of steps may change, and lanes may be left out.
  TrainConfig free = setup;
  free.steps += 10;
  free.every = 7;
  free.evaluate_every = 3;
  free.patience = 2;
  EXPECT_EQ(refusal(setup, free), "accepted");
  TrainConfig two = setup;
  two.lanes.push_back(lane(preset_plan("float32").value(), "none"));
  EXPECT_EQ(refusal(two, setup), "accepted");
}

TEST(Checkpoint, OfOtherSamplesIsRefused) {
  const TrainConfig setup = config(kMlp, "mixed_float16", "dynamic");
  Dataset other = data();
  EXPECT_EQ(refusal(setup, setup, other), "accepted");
  other.train.labels[0] ^= 1;
  EXPECT_EQ(refusal(setup, setup, other), "the checkpoint was made with other samples in --data");
  other = data();
  other.mean = std::vector<double>(static_cast<size_t>(other.sample_shape[0]), 0.5);
  other.deviation = other.mean;
  EXPECT_EQ(refusal(setup, setup, other), "the checkpoint was made with other samples in --data");
}

}  // namespace
}  // namespace halfscope
