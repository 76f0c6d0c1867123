// SPDX-License-Identifier: MIT
#include "core/lab/small_training.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string_view>

#include "core/error.h"
#include "core/models/layers.h"
#include "core/numeric/formats/rng.h"
#include "core/train/trainer.h"

namespace halfscope::lab {
namespace {

constexpr int64_t kSmallSamples = 640;
constexpr size_t kGlyphRows = 7, kGlyphColumns = 5;

/// A font of 5x7 pixels.
constexpr std::array<std::array<std::string_view, kGlyphRows>, 10> kPixelDigits{
    {{" ### ", "#   #", "#  ##", "# # #", "##  #", "#   #", " ### "},
     {"  #  ", " ##  ", "  #  ", "  #  ", "  #  ", "  #  ", " ### "},
     {" ### ", "#   #", "    #", "   # ", "  #  ", " #   ", "#####"},
     {" ### ", "#   #", "    #", "  ## ", "    #", "#   #", " ### "},
     {"   # ", "  ## ", " # # ", "#  # ", "#####", "   # ", "   # "},
     {"#####", "#    ", "#### ", "    #", "    #", "#   #", " ### "},
     {" ### ", "#    ", "#    ", "#### ", "#   #", "#   #", " ### "},
     {"#####", "    #", "   # ", "  #  ", "  #  ", "  #  ", "  #  "},
     {" ### ", "#   #", "#   #", " ### ", "#   #", "#   #", " ### "},
     {" ### ", "#   #", "#   #", " ####", "    #", "    #", " ### "}}};

/// Returns a whole number below `count`; the remainder's bias does not matter here.
int64_t draw(uint64_t sample, uint64_t index, int64_t count) {
  return static_cast<int64_t>(random_word(random_key(8, 8, sample), index) %
                              static_cast<uint64_t>(count));
}

Dataset make_small_digits() {
  Dataset data;
  data.name = "8x8 digits";
  data.classes = kSmallClasses;
  SampleArray pixels{.name = "input", .sample_shape = {kSmallInputs}, .samples = kSmallSamples};
  SampleArray labels{.name = "labels", .sample_shape = {}, .samples = kSmallSamples};
  for (int64_t i = 0; i < kSmallSamples; ++i) {
    const uint64_t sample = static_cast<uint64_t>(i);
    const int64_t digit = draw(sample, 0, kSmallClasses);
    const int64_t right = draw(sample, 1, 4), down = draw(sample, 2, 2);
    // Pixels are hundredths: few formats contain them, so that reading them rounds.
    const int64_t ink = 60 + draw(sample, 3, 41);
    for (int64_t at = 0; at < kSmallInputs; ++at) {
      const int64_t row = at / kDigitSide - down, column = at % kDigitSide - right;
      const bool inside = row >= 0 && row < static_cast<int64_t>(kGlyphRows) && column >= 0 &&
                          column < static_cast<int64_t>(kGlyphColumns);
      const bool inked =
          inside && kPixelDigits[static_cast<size_t>(digit)][static_cast<size_t>(row)]
                                [static_cast<size_t>(column)] == '#';
      const int64_t noise = draw(sample, 4 + static_cast<uint64_t>(at), 31);
      const int64_t level = inked ? std::max<int64_t>(ink - noise, 0) : noise;
      pixels.reals.push_back(static_cast<float>(static_cast<double>(level) / 100.0));
    }
    labels.integers.push_back(static_cast<int32_t>(digit));
  }
  data.train.arrays = {std::move(pixels), std::move(labels)};
  return data;
}

TensorScale scale_of(const BlockFormat& blocks) {
  TensorScale scale;
  scale.kind = blocks.scale == ScaleKind::e4m3fn_and_fp32 ? TensorScale::Kind::nvfp4
                                                          : TensorScale::Kind::block;
  if (scale.kind == TensorScale::Kind::block) {
    scale.block_size = blocks.block_size;
    scale.fp32_scales = blocks.scale == ScaleKind::fp32;
    if (!scale.fp32_scales) scale.rule = blocks.rule;
  }
  return scale;
}

LaneConfig lane_of(Plan plan, const LossScalerConfig& scaler, const Backend& backend) {
  LaneConfig lane;
  lane.plan = std::move(plan);
  lane.scaler = scaler;
  lane.backend = &backend;
  return lane;
}

}  // namespace

const Dataset& small_digits() {
  static const Dataset data = make_small_digits();
  return data;
}

Model small_network(int64_t batch, int loss_weight) {
  Layers net(
      {.name = "digits-8x8", .batch = batch, .sample = {kSmallInputs}, .classes = kSmallClasses});
  const ValueId hidden = net.relu("relu1", net.linear("fc1", net.samples(), kSmallHidden));
  Model model = net.finish(net.linear("fc2", hidden, kSmallClasses));
  if (loss_weight != 0) {
    const float factor = static_cast<float>(std::ldexp(1.0, loss_weight));
    model.loss =
        model.graph.add1("Mul", "loss_weight", {model.loss, model.graph.add_constant(factor)});
  }
  return model;
}

Plan small_plan(const SmallTraining& training) {
  Plan plan;
  plan.name = "microscope";
  plan.defaults.read = plan.defaults.write = training.format;
  const RoundingChoice rounding{.mode = training.rounding};
  plan.defaults.rounding = plan.storage_rounding = rounding;
  plan.defaults.accumulation = training.accumulation;
  const Accumulation::Kind kind = training.accumulation.kind;
  if (kind == Accumulation::format || kind == Accumulation::format_mul_add)
    plan.defaults.accumulation.rounding = rounding;
  if (!training.master_weights) plan.storage = training.format;
  if (training.blocks) {
    plan.rules.push_back({.path = "",
                          .op = "Gemm",
                          .read = training.blocks->element,
                          .scale = scale_of(*training.blocks)});
  }
  return plan;
}

Optimizer small_optimizer(const SmallTraining& training) {
  Optimizer optimizer;
  optimizer.kind = training.adam ? Optimizer::Kind::adam : Optimizer::Kind::sgd;
  optimizer.learning_rate = training.learning_rate;
  // Adam's usual 1e-8 would be as large as the gradients of a loss with a small weight.
  optimizer.eps = 1e-12;
  return optimizer;
}

SmallRun train_small(const SmallTraining& training, int64_t step, const Backend& backend) {
  SmallRun run;
  const StepWatch lane_watch(backend, step, run.lane.watched);
  const StepWatch twin_watch(backend, step, run.twin.watched);
  TrainConfig config;
  config.model = "digits-8x8";
  config.build = [&](int64_t batch) { return small_network(batch, training.loss_weight); };
  config.optimizer = small_optimizer(training);
  config.batch = kSmallBatch;
  config.ranks = training.ranks;
  config.reduction = training.reduction;
  config.steps = training.steps;
  config.seed = training.seed;
  config.every = 0;
  config.evaluate = false;
  config.lanes = {lane_of(small_plan(training), training.scaler, lane_watch),
                  lane_of(Plan{}, {}, twin_watch)};
  const double weight = std::ldexp(1.0, training.loss_weight);
  const auto progress = [&](const std::vector<StepRow>& rows) {
    for (const auto& [row, lane] : {std::pair{&rows.at(0), &run.lane}, {&rows.at(1), &run.twin}}) {
      lane->steps.push_back({row->loss / weight, row->loss_scale, row->skipped});
    }
  };
  try {
    Trainer trainer(config, small_digits());
    const std::atomic<bool> stop{false};
    trainer.run(nullptr, progress, stop);
    if (!trainer.lost_lanes().empty()) run.problem = trainer.lost_lanes().front().why;
  } catch (const Error& error) {
    run.problem = error.what();
  }
  run.samples = BatchOrder(kSmallSamples, kSmallBatch, training.seed, true).batch(step);
  return run;
}

}  // namespace halfscope::lab
