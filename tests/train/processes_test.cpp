// SPDX-License-Identifier: MIT
// Ranks that exchange messages: every result has the bits of ranks that are simulated in one
// process. Threads stand for processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <numeric>

#include "core/error.h"
#include "core/exchange/rank_means.h"
#include "core/numeric/formats/rng.h"
#include "core/numeric/formats/round.h"
#include "tests/train/process_training.h"

namespace halfscope::test {
namespace {

TEST(Exchange, CollectsInTheOrderOfRanks) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    on_ranks(ranks, [&](Exchange& exchange) {
      const int64_t own[2] = {exchange.rank(), 10 * exchange.rank()};
      const std::vector<int64_t> all = all_gather(exchange, std::span<const int64_t>(own));
      const std::vector<std::string> texts =
          all_gather_texts(exchange, std::string(static_cast<size_t>(exchange.rank()), 'x'));
      for (int rank = 0; rank < ranks; ++rank) {
        const size_t i = static_cast<size_t>(rank);
        EXPECT_EQ(all[2 * i], rank);
        EXPECT_EQ(all[2 * i + 1], 10 * rank);
        EXPECT_EQ(texts[i].size(), i);
        std::vector<int> values(5, exchange.rank());
        broadcast(exchange, rank, std::span(values));
        EXPECT_EQ(values, std::vector<int>(5, rank));
        EXPECT_TRUE(any_rank(exchange, exchange.rank() == rank));
      }
      EXPECT_FALSE(any_rank(exchange, false));
      EXPECT_EQ(recorded_value(exchange, exchange.rank()), ranks - 1);
    });
  }
}

/// Numbers of one rank, some of them beyond the range of narrow formats.
template <class T>
std::vector<T> numbers(int rank, int64_t n) {
  std::vector<T> values;
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t word = splitmix64(static_cast<uint64_t>(1000 * rank + i));
    const T unit = static_cast<T>(word % 20001) / T{10000} - T{1};
    values.push_back(word % 37 == 0 ? unit * T{60000} : unit);
  }
  return values;
}

void round_all(std::span<float> row, const FloatFormat& format) {
  for (float& x : row) x = round_to_format(x, format).value;
}
void round_all(std::span<double>, const FloatFormat&) {}

/// The simulation in one process.
template <class T>
std::vector<T> simulated(const Reduction& how, const FloatFormat& format, int ranks, int64_t n) {
  std::vector<T> means(static_cast<size_t>(n));
  const int64_t chunks = reduction_chunks(how.algorithm, ranks);
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const auto begin = static_cast<size_t>(chunk_begin(n, chunks, chunk));
    const auto end = static_cast<size_t>(chunk_begin(n, chunks, chunk + 1));
    std::vector<std::vector<T>> own;
    std::vector<T*> rows;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<T> all = numbers<T>(rank, n);
      own.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(begin),
                       all.begin() + static_cast<std::ptrdiff_t>(end));
    }
    for (std::vector<T>& each : own) rows.push_back(each.data());
    reduce_rows<T>(
        how, rank_additions(how.algorithm, ranks, chunk), rows, static_cast<int64_t>(end - begin),
        [&](T* row, int64_t m) { round_all(std::span(row, static_cast<size_t>(m)), format); },
        means.data() + begin);
  }
  return means;
}

template <class T>
void expect_simulated_means(const std::string& recipe, const char* format_name, int ranks) {
  const Reduction how = parse_reduction(recipe);
  const FloatFormat format = *parse_format(format_name);
  const std::vector<int64_t> sizes{37, 1, 400, 5};
  for (const bool rounded : {false, true}) {
    if (rounded && std::is_same_v<T, double>) continue;
    on_ranks(ranks, [&](Exchange& exchange) {
      std::vector<std::vector<T>> own, mean;
      std::vector<RankTensor<T>> tensors;
      for (const int64_t n : sizes) {
        own.push_back(numbers<T>(exchange.rank(), n));
        mean.emplace_back(static_cast<size_t>(n));
        tensors.push_back({format, own.back(), mean.back(), rounded});
      }
      exchange_means<T>(exchange, how, tensors);
      for (size_t i = 0; i < sizes.size(); ++i) {
        std::vector<T> expected = simulated<T>(how, format, ranks, sizes[i]);
        if (rounded) round_all(std::span(expected), format);
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), mean[i].begin(),
                               [](T a, T b) { return a == b || (a != a && b != b); }))
            << recipe << " " << format_name << ", " << ranks << " ranks, rank " << exchange.rank();
      }
    });
  }
}

TEST(RankMeans, HaveTheBitsOfTheSimulation) {
  for (const char* algorithm : {"ring", "tree", "halving", "all-to-all"}) {
    for (const char* average : {"before", "after"}) {
      const std::string recipe = std::string(algorithm) + ":average=" + average;
      for (const int ranks : {1, 2, 3, 4, 6, 7, 8}) {
        for (const char* format : {"fp32", "bf16", "fp16", "e4m3fn", "tf32"}) {
          expect_simulated_means<float>(recipe, format, ranks);
        }
        expect_simulated_means<double>(recipe, "fp32", ranks);
      }
    }
  }
}

/// A ring sends each element 2 (N - 1) / N times, halving as often, and all-to-all too, all in two
/// bytes in bf16 (Patarasuk and Yuan 2009 for the ring).
TEST(RankMeans, SendNoMoreThanTheyMust) {
  constexpr int64_t kElements = 840;
  for (const char* recipe : {"ring", "halving", "all-to-all"}) {
    for (const int ranks : {2, 4, 8}) {
      const std::vector<uint64_t> sent = on_ranks(ranks, [&](Exchange& exchange) {
        std::vector<float> own = numbers<float>(exchange.rank(), kElements), mean(own.size());
        const RankTensor<float> tensor{kBf16, own, mean, true};
        exchange_means<float>(exchange, parse_reduction(recipe), std::span(&tensor, 1));
      });
      for (const uint64_t bytes : sent) {
        EXPECT_EQ(bytes, 2u * 2u * kElements / static_cast<uint64_t>(ranks) *
                             static_cast<uint64_t>(ranks - 1))
            << recipe << ", " << ranks << " ranks";
      }
    }
  }
}

TEST(Processes, TrainWithTheBitsOfTheSimulation) {
  const struct {
    const char *recipe, *scale;  // overflows, then recovers
    int ranks;
  } cases[] = {{"ring", "dynamic:4e6", 2},
               {"tree:format=bf16", "dynamic:5e5", 4},
               {"halving:average=after,format=e5m2", "dynamic:5e5", 8},
               {"all-to-all:format=bf16", "dynamic:4e6", 2}};
  for (const auto& [recipe, scale, ranks] : cases) {
    SCOPED_TRACE(recipe);
    TrainConfig setup = config(kMlp, "mixed_float16", scale);
    setup.lanes.push_back(lane(preset_plan("float32").value(), "none"));
    setup.lanes.push_back(lane(preset_plan("float64").value(), "none"));
    setup.reduction = parse_reduction(recipe);
    setup.steps = 8;
    setup.evaluate = true;
    setup.evaluate_every = 3;
    setup.errors.enabled = true;
    expect_recovery(expect_simulated(setup, ranks, data()));
  }
}

TEST(Processes, MayBeThreeWithMicroBatches) {
  TrainConfig setup = config(kMlp, "mixed_bfloat16", "none");
  setup.batch = 24;
  setup.micro_batches = 2;
  setup.reduction = parse_reduction("halving");
  setup.clip_norm = 0.5;
  expect_simulated(setup, 3, data());
}

/// Running statistics are rank 0's, and delayed scales remember the largest magnitude on any rank.
TEST(Processes, ShareBuffersAndScaleHistories) {
  TrainConfig setup = config("resnet20", "mixed_float16", "dynamic:4096");
  setup.lanes.push_back(lane(preset_plan("fp8_delayed").value(), "none"));
  setup.evaluate = true;
  expect_simulated(setup, 2, small_images());
  expect_simulated(setup, 4, small_images());
}

TEST(Processes, StopAfterTheSameStep) {
  std::vector<int64_t> steps(3);
  on_ranks(3, [&](Exchange& exchange) {
    omp_set_num_threads(1);
    TrainConfig setup = config(kMlp, "float32", "none");
    setup.batch = 24;
    setup.ranks = 3;
    setup.steps = 1000;
    setup.exchange = &exchange;
    Trainer trainer(setup, data());
    Collector sink;
    std::atomic<bool> stop{false};
    const auto progress = [&](const std::vector<StepRow>& rows) {
      if (exchange.rank() == 1 && rows[0].step == 6) stop = true;
    };
    trainer.run(&sink, progress, stop);
    steps[static_cast<size_t>(exchange.rank())] = trainer.step();
  });
  EXPECT_THAT(steps, testing::Each(steps[0]));
  EXPECT_LT(steps[0], 10);
}

TEST(Processes, RejectSetUpsThatTheyCannotTrain) {
  Post post(2);
  ThreadExchange exchange(post, 0);
  TrainConfig setup = config(kMlp, "mixed_float16", "dynamic");
  setup.exchange = &exchange;
  setup.ranks = 4;
  EXPECT_THAT([&] { Trainer(setup, data()); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("2 processes were started")));
  setup.ranks = 2;
  setup.reduction = parse_reduction("ring:vote=one");
  EXPECT_THAT([&] { Trainer(setup, data()); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("vote=one")));
}

}  // namespace
}  // namespace halfscope::test
