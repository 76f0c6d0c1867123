// SPDX-License-Identifier: MIT
// The command line with a device: its lanes next to the emulator's, the notes about its kernels,
// and runs whose device runs out of memory or is lost.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "analysis/run_view.h"
#include "tests/cli/program.h"

namespace halfscope::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> train(const std::vector<std::string>& more) {
  std::vector<std::string> words{"train", "--steps", "4", "--batch", "16", "--quiet", "--no-eval"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(OnSimulatedDevice, DoctorListsIt) {
  const Bench bench;
  const Outcome doctor = bench.run({"doctor"});
  ASSERT_EQ(doctor.code, 0) << doctor.err;
  EXPECT_THAT(doctor.out, AllOf(HasSubstr("device 0: simulated device, compute capability 9.0"),
                                HasSubstr("tensor cores multiply fp16, bf16, tf32, fp8"),
                                HasSubstr("Keras mixed_float16: fast here")));
  const Outcome layers =
      bench.run({"doctor", "--model", "mlp:784-16-10", "--plan", "mixed_float16"});
  ASSERT_EQ(layers.code, 0) << layers.err;
  EXPECT_THAT(layers.out, HasSubstr("fc1"));
}

// Own kernels have the emulator's bits in every tensor; sums of the libraries are explained.
TEST(OnSimulatedDevice, LanesRunBesideTheEmulator) {
  const Bench bench;
  const Outcome trained =
      bench.run(train({"--model", "mlp:784-16-10", "--lanes",
                       "float32,emulated:mixed_float16,cuda-own:mixed_float16,cuda:mixed_float16,"
                       "cuda-fast:mixed_float16",
                       "--kernels"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.out + trained.err,
              AllOf(HasSubstr("cuda-own:mixed_float16 fc1 Gemm: own kernel"),
                    HasSubstr("cuda:mixed_float16 fc1 Gemm: cuBLASLt"), HasSubstr("split-k 1"),
                    HasSubstr("split-k 4"),
                    HasSubstr("\ncuda-own:mixed_float16 entry grad: CUDA graph of "),
                    HasSubstr("\ncuda-fast:mixed_float16 entry update: CUDA graph of "),
                    Not(HasSubstr("not captured"))));

  const RunView run = RunView::open(bench / "run.hscope");
  for (int lane = 2; lane < run.lane_count(); ++lane) {
    SCOPED_TRACE(run.lane(lane).name);
    EXPECT_EQ(run.steps(lane).size(), 4u);
    ASSERT_FALSE(run.kernels(lane).empty());
    for (const KernelCheck& check : run.kernels(lane)) {
      const std::string& site = run.lane(lane).sites[static_cast<size_t>(check.site)].name();
      EXPECT_LE(check.beyond, 0) << site;  // -1: no sum
      if (run.lane(lane).backend == "cuda-own") {
        EXPECT_EQ(check.differing, 0) << site;
      }
    }
  }
  for (size_t step = 0; step < 4; ++step) {
    EXPECT_EQ(run.steps(2)[step].loss, run.steps(1)[step].loss) << "the emulator's bits";
  }

  const Outcome report = bench.run({"report", "run.hscope", "--md", "report.md"});
  ASSERT_EQ(report.code, 0) << report.err;
  EXPECT_THAT(text_of(bench / "report.md"),
              AllOf(HasSubstr("Kernels of `cuda-own:mixed_float16` and `cuda:mixed_float16`: All "),
                    Not(HasSubstr("kernel_fault"))));
}

TEST(OnSimulatedDevice, KernelsTellWhatIsNoGraphAndWhy) {
  const Bench bench;
  const std::vector<std::string> lanes{"--lanes", "emulated:float32,cuda-own:mixed_float16",
                                       "--kernels"};
  std::vector<std::string> words = train({"--model", "mlp:784-16-10", "--no-errors"});
  words.insert(words.end(), lanes.begin(), lanes.end());
  const Outcome trained = bench.run(words, "HALFSCOPE_SIMULATED_REFUSES=instantiate");
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err, AllOf(HasSubstr("\ncuda-own:mixed_float16 entry grad: not captured: "
                                           "cudaGraphInstantiate: cudaErrorMemoryAllocation ("),
                                 Not(HasSubstr("CUDA graph of")), Not(HasSubstr("emulated"))));
  EXPECT_THAT(trained.out, Not(HasSubstr("entry")));

  words = {"run", "mlp:784-16-10", "--random-input", "1", "--limit", "64", "--batch", "16"};
  words.insert(words.end(), lanes.begin(), lanes.end());
  const Outcome ran = bench.run(words);
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.err, AllOf(HasSubstr("cuda-own:mixed_float16 fc1 Gemm: own kernel\n"),
                             HasSubstr("\ncuda-own:mixed_float16 entry eval: CUDA graph of ")));
}

TEST(OnSimulatedDevice, ConvolutionsTrainOnIt) {
  const Bench bench;
  const Outcome trained = bench.run({"train", "--model", "lenet", "--steps", "1", "--batch", "4",
                                     "--quiet", "--no-eval", "--no-errors", "--lanes",
                                     "emulated:mixed_bfloat16,cuda:mixed_bfloat16,"
                                     "cuda-own:mixed_bfloat16",
                                     "--kernels"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.out + trained.err,
              AllOf(HasSubstr("cuda:mixed_bfloat16 conv1 Conv: cuDNN"),
                    HasSubstr("cuda:mixed_bfloat16 conv2 ConvGradInput: cuDNN"),
                    HasSubstr("cuda-own:mixed_bfloat16 conv1 Conv: own kernel")));
  const RunView run = RunView::open(bench / "run.hscope");
  EXPECT_EQ(run.steps(2)[0].loss, run.steps(0)[0].loss) << "the emulator's bits";
  EXPECT_NEAR(run.steps(1)[0].loss, run.steps(0)[0].loss, 1e-3);
}

// Two runs with the same settings give the same bytes of weights.
TEST(OnSimulatedDevice, TwoRunsGiveTheSameBits) {
  const Bench bench;
  for (const char* file : {"a.hsw", "b.hsw"}) {
    const Outcome trained =
        bench.run(train({"--model", "mlp:784-16-10", "--lanes", "float32,cuda:mixed_float16",
                         "--save-weights", file, "--force"}));
    ASSERT_EQ(trained.code, 0) << trained.err;
  }
  EXPECT_EQ(text_of(bench / "a.hsw"), text_of(bench / "b.hsw"));
}

TEST(OnSimulatedDevice, TrainingsAreResumedThere) {
  const Bench bench;
  const std::vector<std::string> lanes{"--model", "mlp:784-16-10", "--lanes",
                                       "float32,cuda-own:mixed_float16"};
  const auto steps = [&](const char* number, std::vector<std::string> more) {
    std::vector<std::string> words{"train", "--steps", number,     "--batch",
                                   "16",    "--quiet", "--no-eval"};
    words.insert(words.end(), lanes.begin(), lanes.end());
    words.insert(words.end(), more.begin(), more.end());
    return bench.run(words);
  };
  const Outcome first = steps("3", {"--checkpoint", "c.npz", "--out", "a.hscope"});
  ASSERT_EQ(first.code, 0) << first.err;
  const Outcome second =
      steps("5", {"--resume", "c.npz", "--out", "b.hscope", "--save-weights", "b.npz"});
  ASSERT_EQ(second.code, 0) << second.err;
  const Outcome whole = steps("5", {"--out", "c.hscope", "--save-weights", "c5.npz"});
  ASSERT_EQ(whole.code, 0) << whole.err;
  EXPECT_EQ(text_of(bench / "b.npz"), text_of(bench / "c5.npz"));
}

TEST(OnSimulatedDevice, WithoutAnyLaneLeftTheRunIsStillTold) {
  const Bench bench;
  const Outcome trained =
      bench.run({"train", "--model", "mlp:784-16-10", "--steps", "9", "--batch", "16", "--no-eval",
                 "--no-errors", "--lanes", "cuda-own:float32,cuda:mixed_float16", "--json",
                 "--save-weights", "w.npz"},
                "HALFSCOPE_SIMULATED_LOST_AFTER=200");
  EXPECT_EQ(trained.code, 3);
  const auto json = nlohmann::json::parse(trained.out);
  EXPECT_EQ(json.at("status"), "interrupted");
  EXPECT_TRUE(json.at("save_weights").is_null());
  for (const auto& lane : json.at("lanes")) {
    EXPECT_THAT(lane.at("problem").get<std::string>(), HasSubstr("lost at step "));
  }
  EXPECT_THAT(
      trained.err,
      AllOf(HasSubstr("note: w.npz was not written, because the last lane failed\n"),
            HasSubstr("lane cuda-own:float32 failed at step "),
            HasSubstr("lane cuda:mixed_float16 failed at step "), HasSubstr("; lane cuda")));
  EXPECT_FALSE(std::filesystem::exists(bench / "w.npz"));
}

// Memory may run out in the first steps, when the lanes are checked. A lane that fails then makes
// room for the others.
TEST(OnSimulatedDevice, ALaneThatIsLostMakesRoom) {
  const Bench bench;
  int ended_alone = 0;
  for (int kilobytes = 400; kilobytes <= 1600; kilobytes += 150) {
    const Outcome trained =
        bench.run(train({"--model", "mlp:784-16-10", "--lanes",
                         "float32,cuda-own:bfloat16,cuda-own:mixed_float16", "--force",
                         "--checkpoint", "c.npz"}),
                  "HALFSCOPE_SIMULATED_MEMORY=" + std::to_string(kilobytes * 1000));
    const RunView run = RunView::open(bench / "run.hscope");
    EXPECT_EQ(run.steps(0).size(), 4u);
    if (trained.code == 0) continue;
    EXPECT_EQ(trained.code, 3) << trained.err;
    EXPECT_THAT(trained.err, HasSubstr("note: no checkpoint was written after lane cuda-own:"));
    const int lost = (run.lost(1) ? 1 : 0) + (run.lost(2) ? 1 : 0);
    EXPECT_GT(lost, 0);
    ended_alone += lost == 1 ? 1 : 0;
  }
  EXPECT_GT(ended_alone, 0) << "a size that is enough for one of the two";
}

TEST(OnSimulatedDevice, ALostDeviceEndsItsLanesOnly) {
  const Bench bench;
  const Outcome trained =
      bench.run({"train", "--model", "mlp:784-16-10", "--steps", "40", "--batch", "16", "--quiet",
                 "--no-eval", "--lanes", "float32,cuda-own:mixed_float16,emulated:mixed_float16"},
                "HALFSCOPE_SIMULATED_LOST_AFTER=450");
  EXPECT_EQ(trained.code, 3);
  EXPECT_THAT(
      trained.err,
      AllOf(HasSubstr("lane cuda-own:mixed_float16 failed at step "),
            HasSubstr("unspecified launch failure\nhint: check the device with nvidia-smi")));
  EXPECT_EQ(lines_of(trained.err).size(), 2u) << trained.err;

  const RunView run = RunView::open(bench / "run.hscope");
  EXPECT_EQ(run.status(), RunStatus::complete);
  ASSERT_TRUE(run.lost(1));
  EXPECT_GT(run.lost(1)->step, 0);
  EXPECT_EQ(static_cast<int64_t>(run.steps(1).size()), run.lost(1)->step);
  EXPECT_EQ(run.steps(0).size(), 40u);
  EXPECT_EQ(run.steps(2).size(), 40u);
  EXPECT_THAT(bench.run({"inspect", "run.hscope"}).out, HasSubstr("cuda-own:mixed_float16  lost "));
  const Outcome report =
      bench.run({"report", "run.hscope", "--md", "report.md", "--fail-on", "error"});
  EXPECT_EQ(report.code, 1);
  EXPECT_THAT(text_of(bench / "report.md"), HasSubstr("stopped at step "));
}

constexpr const char* kLittleMemory = "HALFSCOPE_SIMULATED_MEMORY=20000000";

TEST(OnSimulatedDevice, TooLittleMemoryIsOneClearError) {
  const Bench bench;
  const Outcome trained = bench.run(
      train({"--model", "mlp:784-4096-10", "--lanes", "cuda:mixed_float16"}), kLittleMemory);
  EXPECT_EQ(trained.code, 3);
  EXPECT_THAT(trained.err, AllOf(HasSubstr("lane cuda:mixed_float16: CUDA "),
                                 HasSubstr(" MiB failed: out of memory"), HasSubstr("hint: "),
                                 HasSubstr("lower --batch")));
  EXPECT_EQ(lines_of(trained.err).size(), 2u) << trained.err;
  EXPECT_FALSE(std::filesystem::exists(bench / "run.hscope"));
}

// The lanes that fit train, and every reader of the run file copes with one without steps.
TEST(OnSimulatedDevice, ALaneWithoutMemoryIsLostBeforeItsFirstStep) {
  const Bench bench;
  const Outcome trained =
      bench.run({"train", "--model", "mlp:784-4096-10", "--steps", "2", "--batch", "16", "--lanes",
                 "cuda:mixed_float16,emulated:float32", "--json", "--save-weights", "w.npz",
                 "--checkpoint", "c.npz"},
                kLittleMemory);
  EXPECT_EQ(trained.code, 3);
  EXPECT_THAT(trained.err,
              AllOf(HasSubstr("note: lane cuda:mixed_float16 failed: CUDA "),
                    HasSubstr("; the other lanes continue, without checkpoints\n"),
                    HasSubstr("lane cuda:mixed_float16 failed at step 0: CUDA "),
                    HasSubstr(" MiB failed: out of memory\nhint: "),
                    HasSubstr("lower --batch, or train fewer lanes on the device, which has ")));
  const auto json = nlohmann::json::parse(trained.out);
  EXPECT_EQ(json.at("status"), "complete");
  EXPECT_EQ(json.at("lanes")[0].at("steps"), 0);
  EXPECT_THAT(json.at("lanes")[0].at("problem").get<std::string>(),
              HasSubstr("lost at step 0: CUDA "));
  EXPECT_EQ(json.at("lanes")[1].at("steps"), 2);
  EXPECT_EQ(json.at("save_weights"), "w.npz");
  EXPECT_TRUE(std::filesystem::exists(bench / "w.npz"));
  EXPECT_FALSE(std::filesystem::exists(bench / "c.npz"));

  const RunView run = RunView::open(bench / "run.hscope");
  EXPECT_EQ(run.status(), RunStatus::complete);
  ASSERT_TRUE(run.lost(0));
  EXPECT_EQ(run.lost(0)->step, 0);
  EXPECT_TRUE(run.steps(0).empty());
  EXPECT_EQ(run.steps(1).size(), 2u);
  EXPECT_THAT(bench.run({"inspect", "run.hscope"}).out, HasSubstr("cuda:mixed_float16  lost "));
  EXPECT_EQ(bench.run({"diagnose", "run.hscope"}).code, 0);
  const Outcome report = bench.run({"report", "run.hscope", "--md", "r.md", "--html", "r.html",
                                    "--json", "r.json", "--fail-on", "error"});
  EXPECT_EQ(report.code, 1) << report.err;
  EXPECT_THAT(text_of(bench / "r.md"), HasSubstr("stopped at step 0: CUDA "));
  EXPECT_EQ(bench
                .run({"report", "run.hscope", "--steps", "s.csv", "--stats", "t.csv", "--sums",
                      "u.csv", "--kernels", "k.csv"})
                .code,
            0);
}

TEST(OnSimulatedDevice, ANetworkRunsInTheLanesThatFit) {
  const Bench bench;
  const Outcome ran = bench.run(
      {"run", "mlp:784-4096-10", "--random-input", "1", "--limit", "16", "--lanes",
       "cuda:mixed_float16,emulated:float32", "--record", "run.hscope", "--out", "o.npz", "--json"},
      "HALFSCOPE_SIMULATED_MEMORY=10000000");
  EXPECT_EQ(ran.code, 3);
  EXPECT_THAT(ran.err, HasSubstr("lane cuda:mixed_float16 failed at batch 0: CUDA "));
  const auto json = nlohmann::json::parse(ran.out);
  EXPECT_EQ(json.at("lanes")[0].at("samples"), 0);
  EXPECT_EQ(json.at("lanes")[1].at("samples"), 16);
  EXPECT_EQ(json.at("outputs")[0].at("shape").dump(), "[16,10]");
  EXPECT_EQ(bench.run({"report", "run.hscope", "--md", "r.md"}).code, 0);
}

/// Two processes with a device each, with one that they share, and ranks of one program: weights
/// have the bits of the emulator's ranks, and the run files hold the same.
TEST(OnSimulatedDevice, RanksTrainWithTheBitsOfTheEmulator) {
  constexpr const char* kLauncher = "/usr/bin/mpirun.openmpi";
  const std::filesystem::path module =
      std::filesystem::path(HALFSCOPE_PROGRAM).parent_path() / "halfscope_openmpi.so";
  if (!std::filesystem::exists(kLauncher)) GTEST_SKIP() << kLauncher << " is not installed";
  if (!std::filesystem::exists(module)) GTEST_SKIP() << module << " was not built";
  Bench bench;
  const auto training = [](const std::string& lanes, const std::string& name) {
    return std::vector<std::string>{"train",
                                    "--model",
                                    "mlp:784-16-10",
                                    "--batch",
                                    "16",
                                    "--steps",
                                    "6",
                                    "--lanes",
                                    lanes,
                                    "--every",
                                    "2",
                                    "--no-eval",
                                    "--reduce",
                                    "ring:format=bf16",
                                    "--out",
                                    name + ".hscope",
                                    "--save-weights",
                                    name + ".npz"};
  };
  const std::string own = "cuda-own:float32,cuda-own:mixed_float16";
  const auto alone = [&](const std::string& lanes, const std::string& name) {
    std::vector<std::string> words = training(lanes, name);
    words.insert(words.end(), {"--ranks", "2", "--quiet"});
    const Outcome outcome = bench.run(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  };
  const auto launched = [&](const std::string& name, const std::string& environment) {
    std::vector<std::string> words{"--oversubscribe", "--mca", "btl", "self,vader", "-n", "2",
                                   HALFSCOPE_PROGRAM};
    for (const std::string& word : training(own, name)) words.push_back(word);
    bench.program = kLauncher;
    const Outcome outcome = bench.run(words,
                                      "OMPI_ALLOW_RUN_AS_ROOT=1\n"
                                      "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n" +
                                          environment);
    bench.program = HALFSCOPE_PROGRAM;
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(text_of(bench / (name + ".npz")), text_of(bench / "emulated.npz")) << name;
    const Outcome diff = bench.run({"diff", name + ".hscope", "device.hscope"});
    EXPECT_EQ(diff.code, 0) << diff.out;
    return outcome.err;
  };
  alone("float32,mixed_float16", "emulated");
  alone(own, "device");
  EXPECT_EQ(text_of(bench / "device.npz"), text_of(bench / "emulated.npz"));
  const bool has_nccl = bench.run({"doctor"}).out.find("NCCL not found") == std::string::npos;
  EXPECT_THAT(launched("shared", ""),
              HasSubstr(has_nccl ? "the host: ranks 0 and 1 share a GPU, which NCCL refuses"
                                 : "the host: rank 0 finds no NCCL"));
  EXPECT_THAT(launched("apart", "HALFSCOPE_SIMULATED_DEVICES=2"),
              HasSubstr(has_nccl ? "note: gradients of lanes on GPUs are sent by NCCL 2."
                                 : "the host: rank 0 finds no NCCL"));
}

}  // namespace
}  // namespace halfscope::test
