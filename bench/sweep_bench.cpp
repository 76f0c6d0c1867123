// SPDX-License-Identifier: MIT
// The cost of a sweep beside its trainings: many trials of about 50 ms each, by one worker and by
// two, beside the same trainings one after the other in this process. Rounds alternate, since
// machines are shared.
//
//   sweep_bench [TRIALS [PROGRAM]]
#include <fmt/format.h>
#include <omp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "analysis/loss_gap.h"
#include "analysis/recorder.h"
#include "cli/sweep/study.h"
#include "cli/tasks/record_training.h"
#include "cli/tasks/training.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kRounds = 5;

/// Seconds on the clock, and of processors.
struct Spent {
  double clock = 0.0, processors = 0.0;
};

double processor_seconds(int who) {
  rusage usage{};
  getrusage(who, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Returns what `work` takes in this process or in its children.
template <typename Work>
Spent spent(int who, const Work& work) {
  const Clock::time_point start = Clock::now();
  const double before = processor_seconds(who);
  work();
  return {std::chrono::duration<double>(Clock::now() - start).count(),
          processor_seconds(who) - before};
}

/// A study of that many trials, baselines included.
void write_study(const fs::path& file, int trials, int first_seed) {
  std::ofstream(file) << fmt::format(
      R"({{"schema": "halfscope.study/1", "baseline": null,
           "settings": {{"model": "mlp:784-32-10", "batch": 32, "steps": 140,
                         "optimizer": "sgd:lr=0.5"}},
           "axes": {{"plan": ["mixed_float16"], "seed": {{"from": {}, "to": {}}}}}}})",
      first_seed, first_seed + trials - 1);
}

Spent timed(const std::string& command) {
  return spent(RUSAGE_CHILDREN, [&command] {
    if (std::system(command.c_str()) != 0) throw std::runtime_error("failed: " + command);
  });
}

/// Sets up, trains and writes every trial of a study in this process.
void train_here(const StudyPlan& study, const fs::path& folder) {
  const std::atomic<bool> never{false};
  const auto data = std::make_shared<const Dataset>(load_training_data(study.trials[0].settings));
  for (const StudyTrial& trial : study.trials) {
    Settings settings = trial.settings;
    settings.threads = 1;
    settings.quiet = true;
    RecordedTraining training(settings, trial.spec.command, data);
    Recorder recorder(folder / (trial.spec.hash + ".hscope"),
                      {.force = true, .private_until_end = true});
    training.run(recorder, never);
  }
}

void run(int trials, const std::string& program) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("sweep_bench_{}", getpid());
  const int part = std::max(1, trials / kRounds);
  std::vector<Spent> here, one, two;
  for (int round = 0; round < kRounds; ++round) {
    fs::create_directories(folder / "here");
    const fs::path file = folder / fmt::format("{}.json", round);
    write_study(file, part, 1 + round * part);
    const StudyPlan study = read_study(file.string());
    here.push_back(spent(RUSAGE_SELF, [&] { train_here(study, folder / "here"); }));
    for (const auto& [workers, times] : {std::pair{1, &one}, std::pair{2, &two}}) {
      times->push_back(timed(
          fmt::format("'{}' sweep '{}' --out '{}' --workers {} --quiet", program, file.string(),
                      (folder / fmt::format("{}-{}", round, workers)).string(), workers)));
    }
    const auto each = [part](const Spent& time) { return 1e3 * time.clock / part; };
    fmt::print(
        "round {}: {} trials of {:.1f} ms; in a sweep {:.1f} ms each with one worker, {:.1f} "
        "with two\n",
        round + 1, part, each(here.back()), each(one.back()), each(two.back()));
  }
  std::vector<double> overhead, work, speedup;
  for (size_t i = 0; i < here.size(); ++i) {
    overhead.push_back(1e3 * (one[i].clock - here[i].clock) / part);
    work.push_back(1e3 * (one[i].processors - here[i].processors) / part);
    speedup.push_back(one[i].clock / two[i].clock);
  }
  fmt::print("overhead per trial: {:.2f} ms on the clock, {:.2f} ms of processors\n",
             median(overhead), median(work));
  fmt::print("two workers: {:.2f} times as fast as one\n", median(speedup));
  // All trials in one folder, as if batch jobs had run them.
  const fs::path all = folder / "all";
  fs::create_directories(all / "trials");
  for (int round = 0; round < kRounds; ++round) {
    for (const auto& entry :
         fs::directory_iterator(folder / fmt::format("{}-1", round) / "trials")) {
      fs::rename(entry.path(), all / "trials" / entry.path().filename());
    }
  }
  write_study(folder / "all.json", part * kRounds, 1);
  const std::string collect = fmt::format("'{}' sweep '{}' --out '{}' --collect --quiet", program,
                                          (folder / "all.json").string(), all.string());
  std::vector<double> clock, processors;
  for (int round = 0; round < kRounds; ++round) {
    fs::remove(all / "study.sqlite");
    const Spent time = timed(collect);
    clock.push_back(time.clock);
    processors.push_back(time.processors);
  }
  fmt::print("collect: {:.2f} s on the clock, {:.2f} s of processors for {} trials\n",
             median(clock), median(processors), part * kRounds);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace halfscope

int main(int argc, char** argv) {
  const int trials = argc > 1 ? std::atoi(argv[1]) : 2000;
  const std::string program =
      argc > 2 ? argv[2]
               : (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "halfscope");
  omp_set_num_threads(1);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  halfscope::run(std::max(trials, 5), program);
}
