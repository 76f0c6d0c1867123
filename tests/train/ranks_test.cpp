// SPDX-License-Identifier: MIT
// Data-parallel ranks: their results compared with micro-batches and message passing, which rank
// skips a step, and what is recorded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "analysis/memory_sink.h"
#include "analysis/rules/rules.h"
#include "core/error.h"
#include "core/numeric/formats/round.h"
#include "core/observe/rank_check.h"
#include "core/train/feed.h"
#include "tests/data/test_files.h"
#include "tests/numeric/ranks_by_messages.h"
#include "tests/train/small_training.h"

namespace halfscope::test {
namespace {

using testing::HasSubstr;

TrainConfig ranked(const std::string& plan, const std::string& scale, int64_t ranks,
                   const std::string& reduce) {
  TrainConfig setup = config(kMlp, plan, scale);
  setup.ranks = ranks;
  setup.reduction = parse_reduction(reduce);
  return setup;
}

void expect_same(const Result& a, const Result& b) {
  expect_same_weights(a.weights, b.weights);
  ASSERT_EQ(a.seen.rows.size(), b.seen.rows.size());
  for (size_t i = 0; i < a.seen.rows.size(); ++i) {
    EXPECT_EQ(a.seen.rows[i].loss, b.seen.rows[i].loss) << "step " << i;
    EXPECT_EQ(a.seen.rows[i].grad_norm, b.seen.rows[i].grad_norm) << "step " << i;
  }
}

/// Micro-batches are added in the order of all-to-all, and halves and quarters are exact.
TEST(Ranks, ThatAddInOrderAreMicroBatches) {
  for (const char* plan : {"float32", "float64", "mixed_bfloat16"}) {
    TrainConfig parts = config(kMlp, plan, "none");
    parts.micro_batches = 4;
    parts.sum_format = kFp32;
    TrainConfig both = ranked(plan, "none", 2, "all-to-all:format=fp32");
    both.micro_batches = 2;
    both.sum_format = kFp32;
    const Result expected = train(parts);
    expect_same(train(ranked(plan, "none", 4, "all-to-all:format=fp32")), expected);
    // (g0 + g1) + (g2 + g3) is the order of a tree.
    expect_same(train(both), train(ranked(plan, "none", 4, "tree:format=fp32")));
  }
}

TEST(Ranks, OneIsPlainTraining) {
  expect_same(train(ranked("mixed_float16", "dynamic", 1, "ring:format=e4m3fn")),
              train(config(kMlp, "mixed_float16", "dynamic")));
}

TEST(Ranks, TwoAddTheSameNumbersInEveryAlgorithm) {
  const Result ring = train(ranked("mixed_float16", "static:1024", 2, "ring"));
  for (const char* other : {"tree", "halving", "all-to-all"}) {
    expect_same(train(ranked("mixed_float16", "static:1024", 2, other)), ring);
  }
}

TEST(Ranks, ReferencesFollowTheOrderAndNoFormat) {
  for (const char* plan : {"float32", "float64"}) {
    expect_same(train(ranked(plan, "none", 8, "ring:format=e4m3fn")),
                train(ranked(plan, "none", 8, "ring:format=fp32")));
  }
  TrainConfig ring = ranked("float32", "none", 8, "ring"), chain = ring;
  chain.reduction = parse_reduction("all-to-all");
  const NamedTensors a = train(ring).weights, b = train(chain).weights;
  EXPECT_NE(a.at("fc1.weight").data, b.at("fc1.weight").data) << "another order";
}

TEST(Ranks, APlanWinsOverTheTraining) {
  TrainConfig by_plan = ranked("mixed_bfloat16", "none", 8, "ring:format=e5m2");
  by_plan.lanes[0].plan.reduction = parse_reduction("tree:format=bf16");
  expect_same(train(by_plan), train(ranked("mixed_bfloat16", "none", 8, "tree:format=bf16")));
  Plan narrow;
  EXPECT_TRUE(is_full_precision(narrow));
  narrow.reduction = parse_reduction("tree");
  EXPECT_TRUE(is_full_precision(narrow)) << "the gradients' own format";
  narrow.reduction = parse_reduction("tree:format=bf16");
  EXPECT_FALSE(is_full_precision(narrow));
  EXPECT_EQ(*plan_from_json(plan_to_json(narrow)).reduction, *narrow.reduction);
}

/// Returns the reductions of random gradients, some of which are not finite.
std::vector<std::vector<float>> reduced_gradients(const Executable& exe, bool keeps) {
  const std::unique_ptr<Program> program = emulation_backend().compile(exe);
  program->keep_values(keeps);
  const Graph& graph = exe.graph;
  uint64_t word = 3;
  for (int64_t rank = 0; rank < exe.ranks; ++rank) {
    program->write_scalar(exe.rank, static_cast<double>(rank));
    for (const ReducedGradient& each : exe.reduced) {
      const Variable& stack = *graph.variable_of(each.stack);
      const ValueId gradient = graph.node(graph.value(stack.next).producer).inputs[1];
      std::vector<float> values(static_cast<size_t>(element_count(graph.value(gradient).shape)));
      for (float& x : values) {
        const uint64_t draw = splitmix64(++word);
        x = draw % 997 == 0 ? INFINITY
            : draw % 991 == 0
                ? std::numeric_limits<float>::max()
                : static_cast<float>(static_cast<int64_t>(draw % 2001) - 1000) * 1e-3f;
      }
      program->write(gradient, values);
    }
    program->run(Entry::accumulate, {});
  }
  program->write(exe.rank_takes_part, std::vector<float>(static_cast<size_t>(exe.ranks), 1.0f));
  program->run(Entry::norm, {});
  std::vector<std::vector<float>> results;
  for (const ReducedGradient& each : exe.reduced) {
    results.push_back(program->read(each.reduced).data);
  }
  return results;
}

// Adding them as they come gives the bits of a reduction that waits for all of them.
TEST(Ranks, GradientsThatNobodyReadsAreAddedAsTheyCome) {
  const int threads_before = omp_get_max_threads();
  for (const int64_t ranks : {2, 3, 7, 64}) {
    const Model model = build_model("mlp:256-70-10", 2, data().sample_shape, 10);
    for (const char* recipe :
         {"ring", "ring:format=bf16", "ring:format=e5m2,average=after", "all-to-all:format=bf16",
          "all-to-all:average=after", "tree:format=bf16", "ring:vote=one", "halving"}) {
      for (const char* plan : {"float32", "mixed_bfloat16"}) {
        TrainingSpec spec;
        spec.ranks = ranks;
        spec.reduction = parse_reduction(recipe);
        const Executable exe = lower(model, *preset_plan(plan), spec);
        omp_set_num_threads(1);
        const auto kept = reduced_gradients(exe, true);
        for (const int threads : {1, 3}) {
          omp_set_num_threads(threads);
          const auto folded = reduced_gradients(exe, false);
          ASSERT_EQ(folded.size(), 4u);
          for (size_t i = 0; i < folded.size(); ++i) {
            for (size_t k = 0; k < folded[i].size(); ++k) {
              const float a = kept[i][k], b = folded[i][k];
              ASSERT_TRUE(std::isnan(a) ? std::isnan(b)
                                        : std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b))
                  << recipe << " " << plan << " " << ranks << " ranks, element " << k << ": " << a
                  << " and " << b;
            }
          }
        }
      }
    }
  }
  omp_set_num_threads(threads_before);
}

/// A step of three ranks on the emulator, by hand: the gradients of each rank are computed alone,
/// and the graph's reduction is compared with message passing.
TEST(Ranks, TheGraphReducesByMessagePassing) {
  constexpr int64_t kRanks = 3;
  const Model model = build_model(kMlp, 4, data().sample_shape, 10);
  for (const char* recipe : {"ring:format=bf16", "tree:average=after", "halving:format=e5m2",
                             "all-to-all:format=bf16,average=after"}) {
    TrainingSpec spec;
    spec.ranks = kRanks;
    spec.reduction = parse_reduction(recipe);
    const Executable exe = lower(model, *preset_plan("mixed_bfloat16"), spec);
    const std::unique_ptr<Program> program = emulation_backend().compile(exe);
    uint64_t word = 7;
    for (const Variable& variable : exe.graph.variables()) {
      Tensor values = program->read(variable.value);
      for (float& x : values.data) {
        x = static_cast<float>(splitmix64(++word) % 1000) / 10000.0f - 0.05f;
      }
      program->write(variable.value, values.data);
    }
    Feed feed(exe, data());
    program->write_scalar(exe.loss_scale, 1.0);
    std::map<std::string, RankBuffers> alone;
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      const std::vector<int64_t> samples{4 * rank, 4 * rank + 1, 4 * rank + 2, 4 * rank + 3};
      feed.write(exe, *program, data().train, samples);
      program->write_scalar(exe.rank, static_cast<double>(rank));
      program->run(Entry::grad, {});
      for (const Tap& tap : exe.taps) {
        if (tap.site.role == Role::weight_grad && tap.site.tensor.ends_with("_grad")) {
          alone[tap.site.name() + "_reduced"].push_back(program->read(tap.value).data);
        }
      }
      program->run(Entry::accumulate, {});
    }
    program->write(exe.rank_takes_part, std::vector<float>(kRanks, 1.0f));
    program->run(Entry::norm, {});
    size_t compared = 0;
    double sum_sq = 0.0;
    for (const Tap& tap : exe.taps) {
      const auto found = alone.find(tap.site.name());
      if (found == alone.end()) continue;
      const auto store = [&](float x) { return round_to_format(x, tap.site.format).value; };
      const bool before = spec.reduction.average == Reduction::Average::before;
      MessagePassing passing{found->second, store};
      for (std::vector<float>& rank : passing.ranks) {
        for (float& g : rank) g = before ? store(store(g) / 3.0f) : store(g);
      }
      using Algorithm = Reduction::Algorithm;
      const Algorithm algorithm = spec.reduction.algorithm;
      std::vector<float> sum = algorithm == Algorithm::ring      ? passing.ring()
                               : algorithm == Algorithm::tree    ? passing.tree()
                               : algorithm == Algorithm::halving ? passing.halving()
                                                                 : passing.all_to_all();
      for (float& x : sum) x = store(before ? x : x / 3.0f);
      EXPECT_EQ(program->read(tap.value).data, sum) << recipe << " " << tap.site.name();
      for (const float x : sum) sum_sq += static_cast<double>(x) * static_cast<double>(x);
      ++compared;
    }
    EXPECT_EQ(compared, 6u);
    EXPECT_NEAR(program->read_scalar(exe.gradient_norm), sum_sq, 1e-12 * sum_sq);

    // The recorded errors, compared with sums in double.
    for (const ReductionError& row : check_reductions(
             5, exe, *program,
             [&](const ReducedGradient& each) { return program->read(each.stack).data; })) {
      EXPECT_EQ(row.step, 5);
      const std::string name = exe.taps[static_cast<size_t>(row.site)].site.name();
      if (row.ranks != kRanks) continue;
      const std::vector<float> reduced =
          program->read(exe.taps[static_cast<size_t>(row.site)].value).data;
      double difference = 0.0, norm = 0.0;
      for (size_t i = 0; i < reduced.size(); ++i) {
        double mean = 0.0;
        for (const std::vector<float>& rank : alone.at(name)) mean += static_cast<double>(rank[i]);
        mean /= 3.0;
        difference += std::pow(static_cast<double>(reduced[i]) - mean, 2);
        norm += mean * mean;
      }
      EXPECT_NEAR(row.error, std::sqrt(difference / norm), 1e-9) << recipe << " " << name;
    }
  }
}

/// Batches of four on two ranks: rank 1's first share is so large that its gradients overflow in
/// fp16, whatever class the network sees in it.
Dataset with_outlier() {
  constexpr int64_t kSamples = 16;
  Dataset set{"outlier", {1, 2, 2}, 2, {}, {}, {}, {}};
  SampleArray x{.name = "input", .sample_shape = {1, 2, 2}, .samples = kSamples};
  SampleArray labels{.name = "labels", .sample_shape = {}, .samples = kSamples};
  for (int64_t s = 0; s < kSamples; ++s) {
    labels.integers.push_back(static_cast<int32_t>(s % 2));
    const bool large = s == 2 || s == 3;
    for (int64_t p = 0; p < 4; ++p) {
      x.reals.push_back(large ? 1000.0f : static_cast<float>((s * 5 + p * 3) % 7 + 1) / 8.0f);
    }
  }
  set.train.arrays = {x, labels};
  return set;
}

TrainConfig overflowing(const std::string& reduce) {
  TrainConfig setup = ranked("mixed_float16", "dynamic:1024", 2, reduce);
  setup.model = "mlp:4-6-2";
  setup.batch = 4;
  setup.steps = 1;
  setup.shuffle = false;
  return setup;
}

struct Seen {
  RunView view;
  NamedTensors weights;
};

Seen watch(const TrainConfig& setup, const Dataset& set) {
  Trainer trainer(setup, set);
  MemorySink sink;
  sink.begin(trainer.describe());
  const std::atomic<bool> stop{false};
  trainer.run(&sink, {}, stop);
  return {sink.view(), trainer.weights(0)};
}

TEST(RankVotes, AllSkipWhereOneOverflows) {
  const Dataset set = with_outlier();
  const Seen seen = watch(overflowing("ring:format=e4m3fn:sat"), set);
  EXPECT_TRUE(seen.view.steps(0)[0].skipped) << "although the sum has no infinity";
  EXPECT_FALSE(std::isfinite(seen.view.steps(0)[0].grad_norm));
  EXPECT_TRUE(seen.view.ranks(0).empty());
}

/// Rank 0 steps with (g_0 + 0) / 2, which is a training on its samples alone at half the rate.
TEST(RankVotes, OneSkipsAloneAndRanksPart) {
  const Dataset set = with_outlier();
  const TrainConfig setup = overflowing("ring:vote=one");
  const Seen seen = watch(setup, set);
  EXPECT_FALSE(seen.view.steps(0)[0].skipped) << "rank 0";
  ASSERT_EQ(seen.view.ranks(0).size(), 1u);
  const RankSpread& row = seen.view.ranks(0)[0];
  EXPECT_EQ(row.step, 0);
  EXPECT_EQ(row.ranks, 2);
  EXPECT_EQ(row.skipped, 1);

  TrainConfig alone = setup;
  alone.ranks = 1;
  alone.batch = 2;
  alone.optimizer.learning_rate /= 2.0;
  const Seen half = watch(alone, set);
  expect_same_weights(seen.weights, half.weights);
  // Rank 1 kept its weights.
  TrainConfig still = alone;
  still.optimizer.learning_rate = 0.0;
  const NamedTensors start = watch(still, set).weights;
  double difference = 0.0, norm = 0.0;
  for (const auto& [path, tensor] : seen.weights) {
    for (size_t i = 0; i < tensor.data.size(); ++i) {
      const double w = static_cast<double>(tensor.data[i]);
      difference += std::pow(w - static_cast<double>(start.at(path).data[i]), 2);
      norm += w * w;
    }
  }
  EXPECT_NEAR(row.distance, std::sqrt(difference / norm), 1e-9);
}

TEST(RankVotes, OfRanksThatPartedIsJudged) {
  const Dataset set = with_outlier();
  TrainConfig setup = overflowing("ring:vote=one");
  setup.steps = 6;
  setup.lanes.insert(setup.lanes.begin(), lane(*preset_plan("float32"), "none"));
  const Seen seen = watch(setup, set);
  EXPECT_EQ(seen.view.ranks(1).size(), 6u) << "from the first step on";
  const std::vector<Finding> findings = run_rules(seen.view);
  const auto found = std::find_if(findings.begin(), findings.end(), [](const Finding& each) {
    return each.rule == "rank_disagreement";
  });
  ASSERT_NE(found, findings.end());
  EXPECT_EQ(found->lane, 1);
  EXPECT_EQ(found->step, 0);
  EXPECT_GE(found->severity, Severity::warning);
  EXPECT_EQ(std::get<std::string>(found->evidence.at("cause")), "rank_disagreement");
  EXPECT_THAT(found->text, HasSubstr("At step 0, 1 of 2 ranks skipped"));
  // In the test the training's text is not in the settings, so the rule knows no vote to change.
  setup.reduction.vote = Reduction::Vote::all;
  for (const Finding& each : run_rules(watch(setup, set).view)) {
    EXPECT_NE(each.rule, "rank_disagreement");
  }
}

TEST(Ranks, CheckpointsHoldRanksThatParted) {
  const Dataset set = with_outlier();
  TrainConfig setup = overflowing("ring:vote=one");
  setup.optimizer = parse_optimizer("adam");
  setup.steps = 6;
  const NamedTensors whole = watch(setup, set).weights;
  TrainConfig first = setup;
  first.steps = 3;
  const TemporaryFolder folder;
  first.checkpoint = folder / "c.npz";
  static_cast<void>(watch(first, set));
  const Checkpoint saved = load_checkpoint(first.checkpoint);
  EXPECT_EQ(saved.lanes.size(), 3u) << "the lane and two ranks";
  EXPECT_NE(saved.lanes.at("mixed_float16#rank0").updates,
            saved.lanes.at("mixed_float16#rank1").updates);
  Trainer trainer(setup, set);
  trainer.resume(saved);
  const std::atomic<bool> stop{false};
  trainer.run(nullptr, {}, stop);
  expect_same_weights(trainer.weights(0), whole);

  for (const int64_t ranks : {1, 4}) {
    TrainConfig other = setup;
    other.ranks = ranks;
    EXPECT_THROW(Trainer(other, set).resume(saved), Error) << ranks;
  }
}

TEST(Ranks, BatchNormalizationKeepsTheStatisticsOfRankZero) {
  TrainConfig setup = config("resnet20", "float32", "none");
  setup.batch = 8;
  setup.steps = 1;
  setup.shuffle = false;
  TrainConfig alone = setup;
  alone.batch = 4;
  setup.ranks = 2;
  for (const BufferCommit commit : {BufferCommit::on_step, BufferCommit::always}) {
    setup.lanes[0].plan.buffers = alone.lanes[0].plan.buffers = commit;
    const NamedTensors both = train(setup, small_images()).weights;
    const NamedTensors first = train(alone, small_images()).weights;
    size_t buffers = 0;
    for (const auto& [path, tensor] : first) {
      if (!path.ends_with("running_mean") && !path.ends_with("running_var")) continue;
      EXPECT_EQ(both.at(path).data, tensor.data) << path;
      ++buffers;
    }
    EXPECT_GT(buffers, 10u);
  }
}

TEST(Ranks, AReductionThatLosesIsJudged) {
  TrainConfig setup = ranked("mixed_bfloat16", "none", 16, "ring:format=e5m2");
  setup.lanes.insert(setup.lanes.begin(), lane(*preset_plan("float32"), "none"));
  setup.steps = 24;
  setup.errors.enabled = true;
  Trainer trainer(setup, data());
  MemorySink sink;
  RunInfo info = trainer.describe();
  info.settings = {"--reduce", "ring:format=e5m2"};
  sink.begin(info);
  const std::atomic<bool> stop{false};
  trainer.run(&sink, {}, stop);
  const RunView& run = sink.view();
  std::vector<int64_t> counts;
  for (const ReductionError& row : run.reductions(1)) {
    if (row.step == 0 && row.site == run.find_site(1, "fc1.weight_grad_reduced").value()) {
      counts.push_back(row.ranks);
      EXPECT_GT(row.error, row.ranks > 2 ? row.stored : 0.0);
      EXPECT_GT(row.additions, 0);
    }
  }
  EXPECT_EQ(counts, (std::vector<int64_t>{2, 4, 8, 16}));
  for (const ReductionError& row : run.reductions(0)) EXPECT_LT(row.error, 1e-5);
  const std::vector<Finding> findings = run_rules(run);
  const auto found = std::find_if(findings.begin(), findings.end(), [](const Finding& each) {
    return each.rule == "rank_reduction";
  });
  ASSERT_NE(found, findings.end());
  EXPECT_EQ(found->lane, 1);
  EXPECT_THAT(found->mechanism, HasSubstr("the sum over 16 ranks makes"));
  EXPECT_THAT(found->text, HasSubstr("over 2 ranks"));
  ASSERT_TRUE(found->action.edit.reduction().has_value());
  // One rounding to e5m2 alone costs 6%, so another order does not help enough.
  EXPECT_GT(std::get<double>(found->evidence.at("error")), 0.01);
}

TEST(Ranks, WrongSetUpsAreUsageErrors) {
  const auto problem = [](const TrainConfig& setup) -> std::string {
    try {
      const Trainer trainer(setup, data());
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_FALSE(error.hint().empty());
      return error.what();
    }
  };
  EXPECT_THAT(problem(ranked("float32", "none", 3, "ring")),
              HasSubstr("a batch of 16 cannot be divided equally among 3 ranks"));
  TrainConfig parts = ranked("float32", "none", 8, "ring");
  parts.micro_batches = 4;
  EXPECT_THAT(problem(parts), HasSubstr("2 samples of a rank cannot be split into 4"));
}

}  // namespace
}  // namespace halfscope::test
