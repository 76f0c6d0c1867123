// SPDX-License-Identifier: MIT
// Backends of lanes: how they are requested, recorded and repeated, and the errors without a GPU.
#include <gmock/gmock.h>

#include "gpu/backends.h"
#include "tests/cli/program.h"

namespace halfscope::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::vector<std::string> train(const std::vector<std::string>& more) {
  std::vector<std::string> words{"train",   "--model", "mlp:784-16-10", "--steps", "3",
                                 "--batch", "16",      "--quiet",       "--force", "--no-eval"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(BackendOfLanes, EmulatedIsTheDefaultAndALaneMayNameIt) {
  const Bench bench;
  const Outcome trained =
      bench.run(train({"--lanes", "float32,mixed_float16,emulated:mixed_float16", "--compare",
                       "emulated:mixed_float16,mixed_float16"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  const Outcome runs = bench.run({"inspect", "run.hscope", "--json"});
  EXPECT_THAT(runs.out, HasSubstr("\"emulated:mixed_float16\""));
  EXPECT_THAT(runs.out, HasSubstr("\"backend\""));
  EXPECT_THAT(runs.out, Not(HasSubstr("\"cuda\"")));
  const Outcome report = bench.run({"report", "run.hscope", "--json", "report.json"});
  ASSERT_EQ(report.code, 0) << report.err;
  // The command that gives the run again asks for the same lanes.
  EXPECT_THAT(text_of(bench / "report.json"),
              HasSubstr("--lanes float32,mixed_float16,emulated:mixed_float16"));
}

TEST(BackendOfLanes, NamesAreUnique) {
  const Bench bench;
  const Outcome twice =
      bench.run(train({"--lanes", "emulated:mixed_float16,emulated:mixed_float16"}));
  EXPECT_EQ(twice.code, 2);
  EXPECT_THAT(twice.err, StartsWith("halfscope: two lanes are named 'emulated:mixed_float16'\n"));
}

TEST(BackendOfLanes, BadRequestsAreUsageErrors) {
  const Bench bench;
  const Outcome unknown = bench.run(train({"--backend", "cudda"}));
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, StartsWith("halfscope: unknown backend 'cudda'\nhint: "));
  EXPECT_THAT(unknown.err, HasSubstr("cuda"));
  const Outcome twofold = bench.run(train({"--lanes", "emulated:float64"}));
  EXPECT_EQ(twofold.code, 2);
  EXPECT_THAT(twofold.err, HasSubstr("emulated:float64' runs in double precision"));
  const Outcome plan = bench.run(train({"--lanes", "emulated:mixed_float15"}));
  EXPECT_EQ(plan.code, 2);
  EXPECT_THAT(plan.err, HasSubstr("mixed_float15"));
  EXPECT_FALSE(std::filesystem::exists(bench / "run.hscope"));
}

TEST(BackendOfLanes, FastNeedsAGpuLane) {
  const Bench bench;
  for (const char* lanes : {"float32,mixed_float16", "float32,cuda-own:mixed_float16"}) {
    const Outcome outcome = bench.run(train({"--lanes", lanes, "--fast"}));
    EXPECT_EQ(outcome.code, 2);
    if (!cuda_is_ready() && std::string(lanes).find("cuda") != std::string::npos) continue;
    EXPECT_EQ(outcome.err,
              "halfscope: --fast needs a lane on the backend cuda\n"
              "hint: add --backend cuda, or name lanes cuda:PLAN\n");
    EXPECT_FALSE(std::filesystem::exists(bench / "run.hscope"));
  }
}

// Lanes whose backend has only one kernel print nothing.
TEST(BackendOfLanes, KernelsAreThoseOfGpuLanes) {
  const Bench bench;
  const Outcome trained = bench.run(train({"--lanes", "float32,mixed_float16", "--kernels"}));
  EXPECT_EQ(trained.code, 0);
  EXPECT_EQ(trained.err, "");
}

TEST(BackendOfLanes, AMissingGpuIsOneClearError) {
  if (cuda_is_ready()) GTEST_SKIP() << "there is a GPU here";
  const Bench bench;
  for (const std::vector<std::string>& words :
       {train({"--backend", "cuda"}), train({"--lanes", "float32,cuda:mixed_float16"}),
        train({"--backend", "cuda-own"}), train({"--lanes", "float32,cuda-fast:mixed_float16"}),
        train({"--backend", "cuda", "--fast"})}) {
    const Outcome outcome = bench.run(words);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err, StartsWith("halfscope: cannot use backend 'cuda': "));
    EXPECT_THAT(outcome.err, HasSubstr("\nhint: use --backend emulated"));
    EXPECT_EQ(lines_of(outcome.err).size(), 2u);
    EXPECT_FALSE(std::filesystem::exists(bench / "run.hscope"));
  }
}

// On a machine with a GPU.
TEST(BackendOfLanes, CudaIsRecorded) {
  if (!cuda_is_ready()) GTEST_SKIP() << "no GPU here";
  const Bench bench;
  const Outcome trained =
      bench.run(train({"--lanes", "float32,emulated:mixed_float16,cuda:mixed_float16"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  const Outcome runs = bench.run({"inspect", "run.hscope", "--json"});
  EXPECT_THAT(runs.out, HasSubstr("\"cuda\""));
}

}  // namespace
}  // namespace halfscope::test
