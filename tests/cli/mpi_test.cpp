// SPDX-License-Identifier: MIT
// Trainings of several processes, started by Open MPI and by MPICH: they have the bits of the ranks
// that one process simulates, and all of them end when one fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "analysis/run_view.h"
#include "core/data/npz.h"
#include "tests/cli/program.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;
using test::Bench;
using test::Outcome;
using testing::HasSubstr;
using Words = std::vector<std::string>;

struct Launcher {
  friend std::ostream& operator<<(std::ostream& out, const Launcher& one) {
    return out << one.name;
  }
  const char* name;
  const char* program;
  const char* module;
  Words options;
};

const Launcher kLaunchers[] = {
    {"OpenMpi",
     "/usr/bin/mpirun.openmpi",
     "halfscope_openmpi.so",
     {"--oversubscribe", "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo"}},
    {"Mpich", "/usr/bin/mpirun.mpich", "halfscope_mpich.so", {}},
};

// Continuous integration may run as root, which Open MPI refuses otherwise.
constexpr const char* kAsRoot = "OMPI_ALLOW_RUN_AS_ROOT=1\nOMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1";

class Mpi : public testing::TestWithParam<Launcher> {
 protected:
  void SetUp() override {
    const fs::path module = fs::path(HALFSCOPE_PROGRAM).parent_path() / GetParam().module;
    if (!fs::exists(GetParam().program)) GTEST_SKIP() << GetParam().program << " is not installed";
    if (!fs::exists(module)) GTEST_SKIP() << module << " was not built";
  }

  /// Arguments of the launcher that start `ranks` processes.
  static Words processes(int ranks, const Words& words) {
    Words all{"-n", std::to_string(ranks), HALFSCOPE_PROGRAM};
    all.insert(all.end(), words.begin(), words.end());
    return all;
  }
  static Outcome launch(Bench& bench, const Words& words) {
    return bench.finish(start(bench, words));
  }
  static pid_t start(Bench& bench, const Words& words) {
    Words all = GetParam().options;
    all.insert(all.end(), words.begin(), words.end());
    bench.program = GetParam().program;
    const pid_t child = bench.start(all, kAsRoot);
    bench.program = HALFSCOPE_PROGRAM;
    return child;
  }

  /// Trains both ways and compares weights and everything that was recorded.
  static void expect_simulated(int ranks, const Words& training) {
    Bench bench;
    Words mpi = training, alone = training;
    mpi.insert(mpi.end(), {"--out", "mpi.hscope", "--save-weights", "mpi.npz"});
    alone.insert(alone.end(), {"--out", "alone.hscope", "--save-weights", "alone.npz", "--ranks",
                               std::to_string(ranks)});
    const Outcome launched = launch(bench, processes(ranks, mpi));
    ASSERT_EQ(launched.code, 0) << launched.err;
    const Outcome simulated = bench.run(alone);
    ASSERT_EQ(simulated.code, 0) << simulated.err;
    EXPECT_EQ(test::text_of(bench / "mpi.npz"), test::text_of(bench / "alone.npz"));
    const Outcome diff = bench.run({"diff", "mpi.hscope", "alone.hscope"});
    EXPECT_EQ(diff.code, 0) << diff.out;
    const RunView a = RunView::open(bench / "mpi.hscope"),
                  b = RunView::open(bench / "alone.hscope");
    ASSERT_EQ(a.lane_count(), b.lane_count());
    for (int lane = 0; lane < a.lane_count(); ++lane) {
      EXPECT_EQ(a.deviations(lane).size(), b.deviations(lane).size());
      EXPECT_EQ(a.reductions(lane).size(), b.reductions(lane).size());
      EXPECT_EQ(a.evals(lane).size(), b.evals(lane).size());
    }
    EXPECT_EQ(a.info().settings, b.info().settings) << "the run repeats as a simulation";
  }
};

const Words kTraining{"train",   "--model", "mlp:784-16-10", "--batch", "24",
                      "--steps", "12",      "--quiet",       "--lanes", "float32,mixed_float16"};

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_P(Mpi, TrainsWithTheBitsOfTheSimulation) {
  expect_simulated(2, with(kTraining, {"--reduce", "ring:format=bf16"}));
  expect_simulated(3, with(kTraining, {"--reduce", "tree", "--micro-batches", "2"}));
}

TEST_P(Mpi, SlowManyRanks) {
  for (const char* recipe : {"ring:format=bf16", "halving", "all-to-all:average=after"}) {
    for (const int ranks : {4, 8}) expect_simulated(ranks, with(kTraining, {"--reduce", recipe}));
  }
  expect_simulated(2, {"train", "--model", "resnet20", "--data", "digits", "--batch", "8",
                       "--steps", "3", "--no-eval", "--quiet", "--plan", "mixed_float16"});
}

/// The proof does not depend on who trained.
TEST_P(Mpi, SlowDealsTheTrialsOfASearch) {
  Bench bench;
  const Outcome trained =
      bench.run({"train", "--model", "lenet-hot", "--plan", "mixed_float16", "--steps", "40",
                 "--batch", "16", "--no-eval", "--quiet", "--out", "alone.hscope"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  fs::copy_file(bench / "alone.hscope", bench / "mpi.hscope");
  const Words verify{"diagnose", "mpi.hscope", "--verify", "--quiet", "--out", "mpi.json"};
  const Outcome dealt = launch(bench, processes(3, verify));
  const Outcome alone =
      bench.run({"diagnose", "alone.hscope", "--verify", "--quiet", "--out", "alone.json"});
  EXPECT_EQ(dealt.code, alone.code) << dealt.err;
  EXPECT_EQ(test::text_of(bench / "mpi.json"), test::text_of(bench / "alone.json"));
  const std::string proof = RunView::open(bench / "alone.hscope").proof(1);
  EXPECT_NE(proof, "");
  EXPECT_EQ(RunView::open(bench / "mpi.hscope").proof(1), proof);
}

/// Every process has the error; one prints it.
TEST_P(Mpi, PrintsAnErrorOnce) {
  Bench bench;
  for (const Words& wrong : {Words{"--batch", "25"}, Words{"--ranks", "4"}, Words{"--stps", "3"},
                             Words{"--reduce", "ring:vote=one"}}) {
    const Outcome outcome = launch(bench, processes(2, with(kTraining, wrong)));
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    const size_t first = outcome.err.find("halfscope: ");
    ASSERT_NE(first, std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.err.find("halfscope: ", first + 1), std::string::npos) << outcome.err;
    EXPECT_FALSE(fs::exists(bench / "run.hscope"));
  }
}

TEST_P(Mpi, RefusesProcessesThatDisagree) {
  Bench bench;
  Words words = processes(1, with(kTraining, {"--seed", "1"}));
  words.emplace_back(":");
  const Words other = processes(1, with(kTraining, {"--seed", "2"}));
  words.insert(words.end(), other.begin(), other.end());
  const Outcome outcome = launch(bench, words);
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("the processes do not agree: rank 0 has"));
  EXPECT_FALSE(fs::exists(bench / "run.hscope"));
}

/// Returns the process IDs of the halfscope processes that run below `folder`.
std::set<pid_t> running_in(const fs::path& folder) {
  std::set<pid_t> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code gone;
    if (fs::read_symlink(entry.path() / "exe", gone) != fs::path(HALFSCOPE_PROGRAM)) continue;
    if (fs::read_symlink(entry.path() / "cwd", gone) == folder) found.insert(std::stoi(name));
  }
  return found;
}

/// The file keeps the steps that were recorded, and no process goes on.
TEST_P(Mpi, EndsWithAProcess) {
  Bench bench;
  Words endless = kTraining;
  *std::find(endless.begin(), endless.end(), "12") = "1000000";
  const pid_t child = start(bench, processes(2, endless));
  size_t steps = 0;
  for (int tries = 0; tries < 400 && steps < 5; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    try {
      steps = RunView::open(bench / "run.hscope").steps(0).size();
    } catch (const std::exception&) {
      continue;  // not there yet
    }
  }
  const fs::path folder = fs::canonical(bench / ".");
  const std::set<pid_t> before = running_in(folder);
  kill(before.empty() ? child : *before.rbegin(), SIGKILL);
  const Outcome outcome = bench.finish(child);
  ASSERT_GE(steps, 5u);
  EXPECT_EQ(before.size(), 2u);
  EXPECT_NE(outcome.code, 0);
  EXPECT_THAT(running_in(folder), testing::IsEmpty());
  EXPECT_GE(RunView::open(bench / "run.hscope").steps(0).size(), steps);
}

void write_study(const fs::path& file, int seeds) {
  std::ofstream(file) << R"({"schema": "halfscope.study/1",
    "settings": {"model": "mlp:784-16-10", "steps": 10, "batch": 16},
    "axes": {"plan": ["mixed_float16", "bfloat16"], "seed": {"from": 1, "to": )"
                      << seeds << "}}}\n";
}

/// Returns the result of a sweep without the name of its folder.
std::string without(std::string text, const std::string& folder) {
  const size_t at = text.find(folder);
  return at == std::string::npos ? text : text.erase(at, folder.size());
}

TEST_P(Mpi, SweepsLikeProcessesOfOneMachine) {
  Bench bench;
  write_study(bench / "study.json", 3);
  const Outcome dealt =
      launch(bench, processes(3, {"sweep", "study.json", "--out", "mpi", "--json"}));
  ASSERT_EQ(dealt.code, 0) << dealt.err;
  const Outcome local =
      bench.run({"sweep", "study.json", "--out", "local", "--json", "--workers", "1"});
  EXPECT_THAT(local.out, HasSubstr("\"done\": 9"));
  EXPECT_EQ(without(dealt.out, (bench / "mpi").string()),
            without(local.out, (bench / "local").string()));

  const Outcome missing = launch(bench, processes(2, {"sweep", "nothing.json"}));
  EXPECT_EQ(missing.code, 3);
  EXPECT_THAT(missing.err, HasSubstr("nothing.json"));
}

/// A killed rank ends the job; the next one trains what is missing.
TEST_P(Mpi, SweepsGoOnAfterARankDies) {
  Bench bench;
  write_study(bench / "study.json", 200);
  const pid_t child = start(bench, processes(3, {"sweep", "study.json", "--out", "study"}));
  const auto finished = [&] {
    std::error_code error;
    size_t count = 0;
    for (const fs::directory_entry& each : fs::directory_iterator(bench / "study/trials", error)) {
      count += each.path().extension() == ".hscope" ? 1 : 0;
    }
    return count;
  };
  for (int tries = 0; tries < 400 && finished() < 5; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const std::set<pid_t> ranks = running_in(fs::canonical(bench / "."));
  kill(ranks.empty() ? child : *ranks.rbegin(), SIGKILL);
  EXPECT_NE(bench.finish(child).code, 0);
  const size_t before = finished();
  ASSERT_GE(before, 5u);
  ASSERT_LT(before, 600u) << "the study ended too soon for this test";
  write_study(bench / "study.json", 4);  // a part of it, to save time
  const Outcome rest = bench.run({"sweep", "study.json", "--out", "study", "--json"});
  EXPECT_EQ(rest.code, 0) << rest.err;
  EXPECT_THAT(rest.out, HasSubstr("\"done\": 12"));
}

INSTANTIATE_TEST_SUITE_P(Each, Mpi, testing::ValuesIn(kLaunchers),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace halfscope
