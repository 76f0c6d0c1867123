// SPDX-License-Identifier: MIT
// The microscope's arithmetic against the tensors of the engine, bit for bit, its statements about
// bins against the formats themselves, and its trainings against known ones.
#include "core/lab/microscope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <set>

#include "core/lab/number_text.h"
#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/round.h"
#include "emulation/backends.h"
#include "emulation/threads.h"

namespace halfscope::lab {
namespace {

SmallTraining training_of(const char* format, const char* scale = "none", int64_t steps = 30) {
  SmallTraining training;
  training.format = parse_format(format).value();
  training.scaler = parse_loss_scale(scale);
  training.steps = steps;
  training.learning_rate = 0.02;
  return training;
}

SmallRun run_of(const SmallTraining& training, int64_t step) {
  const OneThread one;
  return train_small(training, step, emulation_backend());
}

bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

/// Checks every station of some weights of a run; returns how many stations the engine stored.
int expect_stations_match(const SmallRun& run, const std::string& what) {
  EXPECT_EQ(run.problem, "") << what;
  int stored = 0;
  for (const int layer : {1, 2}) {
    for (int64_t i = 0; i < 6; ++i) {
      const MicroscopePlace place{.layer = layer,
                                  .row = layer == 1 ? (i * 7) % kSmallHidden : (i * 3) % 10,
                                  .column = layer == 1 ? 9 + i * 8 : (i * 5) % kSmallHidden,
                                  .sample = i % 2 == 0 ? -1 : i * 11};
      const Microscope microscope = follow(run, place);
      EXPECT_EQ(microscope.problem, "") << what;
      for (const Station& each : microscope.stations) {
        EXPECT_TRUE(same_bits(each.stored, each.recomputed))
            << what << ", layer " << layer << " [" << place.row << "," << place.column << "], "
            << each.key << ": " << each.stored << " stored, " << each.recomputed << " recomputed";
        stored += each.by_engine ? 1 : 0;
      }
    }
  }
  return stored;
}

TEST(Microscope, RepeatsTheEngineBitForBit) {
  for (const char* format : {"fp16", "bf16", "tf32", "e4m3fn", "e5m2", "e6m5", "fp32"}) {
    const SmallRun run = run_of(training_of(format, "static:64"), 12);
    EXPECT_GT(expect_stations_match(run, format), 12 * 9);
  }
}

TEST(Microscope, RepeatsStochasticRounding) {
  for (const char* format : {"fp16", "bf16", "e5m2"}) {
    SmallTraining training = training_of(format);
    training.rounding = RoundingMode::stochastic;
    training.master_weights = false;
    expect_stations_match(run_of(training, 7), format);
  }
}

TEST(Microscope, RepeatsAccumulations) {
  for (const char* name :
       {"fp64", "pairwise", "interleaved16", "kahan", "format", "format-mul-add",
        "fma32-then-round", "tensor-core:h100", "fp32:promote=16", "fp32:split-k=4"}) {
    for (const RoundingMode rounding : {RoundingMode::nearest_even, RoundingMode::stochastic}) {
      SmallTraining training = training_of("bf16");
      training.accumulation = parse_accumulation(name).value();
      training.rounding = rounding;
      expect_stations_match(run_of(training, 5), name);
    }
  }
}

TEST(Microscope, RepeatsBlockScales) {
  for (const char* name :
       {"mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp4", "mxfp8_e4m3:up", "nvfp4"}) {
    SmallTraining training = training_of("bf16");
    training.blocks = parse_block_format(name).value();
    expect_stations_match(run_of(training, 9), name);
    training.blocks->block_size = training.blocks->scale == ScaleKind::ue8m0 ? 8 : 16;
    training.rounding = RoundingMode::stochastic;
    const SmallRun run = run_of(training, 9);
    expect_stations_match(run, std::string(name) + " of 8");
    const Microscope microscope = follow(run, {.layer = 1, .row = 4, .column = 20});
    ASSERT_NE(station(microscope, "read weight scale"), nullptr) << name;
    EXPECT_GT(station(microscope, "read weight")->unit, 0.0);
  }
}

TEST(Microscope, ScalesOfBlocksFollowFromTheLargestNumber) {
  SmallTraining training = training_of("bf16");
  training.blocks = kMxfp8E4m3;
  const SmallRun run = run_of(training, 9);
  for (const int64_t column : {5, 40}) {  // the first and the second block of 32
    const Microscope microscope = follow(run, {.layer = 1, .row = 4, .column = column});
    const auto begin = microscope.weights.begin() + (column < 32 ? 0 : 32);
    double largest = 0.0;
    std::for_each(begin, begin + 32, [&](float weight) {
      largest = std::max(largest, std::fabs(static_cast<double>(weight)));
    });
    // OCP MX 1.0, 6.3: the power of two of the largest number over that of the element format.
    const double scale = std::exp2(std::floor(std::log2(largest)) - 8);
    EXPECT_EQ(station(microscope, "read weight scale")->stored, scale);
    EXPECT_EQ(station(microscope, "read weight")->unit, scale);
    const double code = station(microscope, "read weight")->stored / scale;
    EXPECT_EQ(round_to_format(code, kE4m3fn).flags & kInexact, 0);
  }
}

TEST(Microscope, RepeatsReductionsHopByHop) {
  for (const char* name : {"ring", "tree", "halving", "all-to-all", "ring:format=bf16",
                           "tree:format=e5m2,average=after", "all-to-all:average=after"}) {
    SmallTraining training = training_of("fp16", "static:256", 8);
    training.ranks = 8;
    training.reduction = parse_reduction(name);
    const SmallRun run = run_of(training, 4);
    expect_stations_match(run, name);
    const Microscope microscope = follow(run, {.layer = 1, .row = 3, .column = 20});
    int hops = 0;
    for (const Station& each : microscope.stations) hops += each.key.starts_with("hop ") ? 1 : 0;
    EXPECT_EQ(hops, 7) << name;
  }
}

TEST(Microscope, RepeatsGradientDescent) {
  SmallTraining training = training_of("fp16", "dynamic:1024");
  training.adam = false;
  training.learning_rate = 0.5;
  const SmallRun run = run_of(training, 10);
  expect_stations_match(run, "sgd");
  const Microscope microscope = follow(run, {});
  EXPECT_EQ(station(microscope, "m"), nullptr);
  // w' = w - rate * g, in double: a station's numbers follow from those before it.
  const double old = station(microscope, "weight")->stored;
  const double g = station(microscope, "unscaled")->stored;
  EXPECT_NEAR(station(microscope, "new weight")->stored, old - 0.5 * g, 1e-7);
}

TEST(Microscope, StationsFollowFromEachOther) {
  const SmallRun run = run_of(training_of("fp16", "static:4096"), 15);
  const Microscope microscope = follow(run, {.layer = 2, .row = 1, .column = 5});
  const auto at = [&](const char* key) { return *station(microscope, key); };
  EXPECT_EQ(at("product").exact,
            at("read weight").stored * static_cast<double>(microscope.inputs.at(5)));
  EXPECT_EQ(at("weight").stored, static_cast<double>(microscope.weights.at(5)));
  EXPECT_EQ(at("read weight").exact, at("weight").stored);
  EXPECT_EQ(at("sum").exact, at("sum").previous + at("product").exact);
  EXPECT_EQ(at("scaled loss").exact, at("loss").stored * 4096);
  EXPECT_EQ(at("unscaled").exact, at("gradient").stored / 4096);
  EXPECT_EQ(at("new weight").exact, at("weight").stored + at("update").stored);
  // The twin's gradient is multiplied by the lane's scale, so that both can be compared.
  EXPECT_EQ(at("gradient").twin_factor, 4096.0);
  EXPECT_NEAR(at("gradient").twin / at("gradient").stored, 1.0, 0.1);
  EXPECT_EQ(at("unscaled").twin_factor, 1.0);
  EXPECT_NEAR(at("loss").twin, at("loss").stored, 0.01);
}

TEST(Microscope, BinsAreNeighborsOfTheFormat) {
  for (const char* format : {"fp16", "e4m3fn", "bf16"}) {
    const SmallRun run = run_of(training_of(format, "static:64"), 12);
    int rounded = 0;
    for (int64_t row = 0; row < 10; ++row) {
      for (const Station& each : follow(run, {.row = row, .column = row}).stations) {
        if (!each.rounds || !std::isfinite(each.below) || !std::isfinite(each.above)) continue;
        const double low = std::min(each.below, each.above),
                     high = std::max(each.below, each.above);
        EXPECT_LE(low, each.exact) << each.key;
        EXPECT_GE(high, each.exact) << each.key;
        EXPECT_EQ(static_cast<double>(neighbour(static_cast<float>(low), 1, each.format)), high)
            << each.key;
        const bool nearest = std::fabs(each.stored - each.exact) <= 0.5 * (high - low);
        // Stations that store a result of several fp32 operations may be off by a few ulps.
        EXPECT_TRUE(nearest || each.format == kFp32) << format << " " << each.key;
        rounded += each.loss == StationLoss::rounded && each.format != kFp32 ? 1 : 0;
        EXPECT_EQ(each.dropped.empty(), each.exact == low || each.exact == high) << each.key;
      }
    }
    EXPECT_GT(rounded, 20) << format;
  }
}

TEST(Microscope, SmallGradientsNeedALossScale) {
  SmallTraining training = training_of("fp16", "none", 150);
  training.loss_weight = -16;
  const SmallRun without = run_of(training, 100);
  EXPECT_GT(without.lane.steps.back().loss, 2.0);
  EXPECT_LT(without.twin.steps.back().loss, 0.4);
  std::set<StationLoss> losses;
  for (int64_t row = 0; row < 10; ++row) {
    const Microscope microscope = follow(without, {.row = row, .column = 2 * row});
    losses.insert(station(microscope, "output gradient")->loss);
    losses.insert(station(microscope, "gradient")->loss);
  }
  EXPECT_TRUE(losses.contains(StationLoss::flushed) || losses.contains(StationLoss::subnormal));

  training.scaler = parse_loss_scale("static:65536");
  const SmallRun with = run_of(training, 100);
  EXPECT_NEAR(with.lane.steps.back().loss, with.twin.steps.back().loss, 0.02);
  training.scaler = {};
  training.format = kBf16;
  const SmallRun bf16 = run_of(training, 100);
  EXPECT_NEAR(bf16.lane.steps.back().loss, bf16.twin.steps.back().loss, 0.1);
}

TEST(Microscope, UpdatesAreLostWithoutMasterWeights) {
  SmallTraining training = training_of("bf16", "none", 400);
  training.learning_rate = 0.0005;
  const double kept = run_of(training, 0).lane.steps.back().loss;
  training.master_weights = false;
  const SmallRun run = run_of(training, 40);
  EXPECT_GT(run.lane.steps.back().loss, kept + 0.1);
  int lost = 0, moved = 0;
  for (int64_t row = 0; row < 10; ++row) {
    for (int64_t column = 0; column < kSmallHidden; ++column) {
      const Microscope microscope = follow(run, {.row = row, .column = column, .sample = 0});
      const Station* const weight = station(microscope, "new weight");
      const double old = station(microscope, "weight")->stored;
      const bool updates = station(microscope, "update")->stored != 0.0;
      EXPECT_EQ(weight->loss == StationLoss::swamped, updates && weight->stored == old);
      lost += weight->loss == StationLoss::swamped ? 1 : 0;
      moved += weight->stored != old ? 1 : 0;
    }
  }
  EXPECT_GT(lost, 50);
  EXPECT_GT(moved, 50);
  training.rounding = RoundingMode::stochastic;
  EXPECT_LT(run_of(training, 0).lane.steps.back().loss, kept + 0.05) << "stochastic rounding";
}

TEST(Microscope, OverflowSkipsAStep) {
  SmallTraining training = training_of("fp16", "dynamic:1e9", 40);
  const SmallRun run = run_of(training, 2);
  EXPECT_TRUE(run.lane.steps[2].skipped);
  EXPECT_FALSE(run.twin.steps[2].skipped);
  EXPECT_FALSE(run.lane.steps.back().skipped);
  EXPECT_LT(run.lane.steps.back().loss_scale, 1e9);
  const Microscope microscope = follow(run, {});
  EXPECT_TRUE(microscope.skipped);
  const Station* const weight = station(microscope, "new weight");
  EXPECT_EQ(weight->loss, StationLoss::skipped);
  EXPECT_EQ(weight->stored, station(microscope, "weight")->stored);
  EXPECT_EQ(station(microscope, "update"), nullptr);
  int broken = 0;
  EXPECT_EQ(std::sscanf(weight->text.c_str(), "The step is skipped: %d of 2410 gradients", &broken),
            1)
      << weight->text;
  EXPECT_GT(broken, 0);
  bool overflows = false;
  for (int64_t row = 0; row < 10; ++row) {
    for (const Station& each : follow(run, {.row = row}).stations) {
      overflows = overflows || each.loss == StationLoss::overflow;
    }
  }
  EXPECT_TRUE(overflows);
}

TEST(Microscope, AShorterRunHasTheSameSteps) {
  const SmallTraining whole = training_of("fp16", "dynamic:1e7", 40);
  SmallTraining part = whole;
  part.steps = 21;
  const SmallRun a = run_of(whole, 20), b = run_of(part, 20);
  const Microscope x = follow(a, {.layer = 1, .row = 5, .column = 30}),
                   y = follow(b, {.layer = 1, .row = 5, .column = 30});
  ASSERT_EQ(x.stations.size(), y.stations.size());
  for (size_t i = 0; i < x.stations.size(); ++i) {
    EXPECT_TRUE(same_bits(x.stations[i].stored, y.stations[i].stored)) << x.stations[i].key;
    EXPECT_TRUE(same_bits(x.stations[i].twin, y.stations[i].twin)) << x.stations[i].key;
  }
  for (size_t i = 0; i < b.lane.steps.size(); ++i) {
    EXPECT_EQ(a.lane.steps[i].loss, b.lane.steps[i].loss);
  }
}

/// Numbers of PyTorch 2.15 (CPU, torch.optim.Adam), which trained the same network from the same
/// initial weights on the same batches; data, weights and batches were made again in Python.
TEST(Microscope, TheTwinTrainsAsPyTorchDoes) {
  const SmallTraining training = training_of("fp16", "none", 150);
  const SmallRun run = run_of(training, 20);
  const auto near = [](double ours, double torch, double tolerance) {
    EXPECT_NEAR(ours / torch, 1.0, tolerance) << ours << " and " << torch;
  };
  near(run.twin.steps[0].loss, 2.3189578, 1e-6);
  near(run.twin.steps[20].loss, 1.9478549, 1e-5);
  near(run.twin.steps[50].loss, 0.8575516, 1e-4);
  near(run.twin.steps[100].loss, 0.3397923, 1e-3);
  const Microscope microscope = follow(run, {.layer = 2, .row = 3, .column = 5});
  const auto twin = [&](const char* key) { return station(microscope, key)->twin; };
  near(twin("weight"), -0.32889181, 1e-4);
  near(twin("gradient"), -0.077896424, 1e-4);
  near(twin("m"), -0.0024360218, 1e-3);
  near(twin("v"), 8.5671827e-06, 1e-4);
  near(twin("new weight"), -0.32619682, 1e-4);
}

/// Watching copies tensors and must not change any.
TEST(Microscope, WatchingChangesNothing) {
  SmallTraining training = training_of("bf16");
  training.rounding = RoundingMode::stochastic;
  const SmallRun early = run_of(training, 0), late = run_of(training, 29);
  ASSERT_EQ(early.lane.steps.size(), 30u);
  for (size_t i = 0; i < 30; ++i) EXPECT_EQ(early.lane.steps[i].loss, late.lane.steps[i].loss);
}

TEST(Microscope, SaysWhyThereIsNothing) {
  SmallTraining training = training_of("fp16");
  training.ranks = 3;
  EXPECT_NE(run_of(training, 0).problem.find("3 ranks"), std::string::npos);
  EXPECT_NE(follow(run_of(training_of("fp16"), 99), {}).problem, "");
}

TEST(Microscope, DigitsAreAlwaysTheSame) {
  const Split& digits = small_digits().train;
  ASSERT_EQ(digits.size(), 640);
  double sum = 0.0;
  std::set<int32_t> labels(digits.arrays[1].integers.begin(), digits.arrays[1].integers.end());
  for (const float pixel : digits.arrays[0].reals) {
    EXPECT_TRUE(pixel >= 0.0f && pixel <= 1.0f);
    sum += std::round(100.0 * static_cast<double>(pixel));
  }
  EXPECT_EQ(labels.size(), 10u);
  EXPECT_EQ(sum, 1094535.0) << "of hundredths";
}

}  // namespace
}  // namespace halfscope::lab
