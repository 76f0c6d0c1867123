// SPDX-License-Identifier: MIT
// `halfscope sweep`: what ends in the study file does not depend on who trained what, in which
// order, and who was killed meanwhile.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "analysis/run_view.h"
#include "analysis/study/study_view.h"
#include "core/error.h"
#include "tests/cli/terminal.h"
#include "tests/support/text_file.h"

namespace halfscope {
namespace {

using test::Bench;
using test::lines_of;
using test::Outcome;
using test::write_text;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

/// `steps` sets how long a trial takes.
std::string study_of(int steps, int seeds) {
  return fmt::format(R"({{"schema": "halfscope.study/1", "name": "test",
    "settings": {{"model": "mlp:784-16-10", "batch": 16, "steps": {}, "optimizer": "sgd:lr=0.5"}},
    "axes": {{"plan": ["mixed_float16", "float16"], "seed": {{"from": 1, "to": {}}}}}}})",
                     steps, seeds);
}

/// Everything in a study file but the times and the workers.
std::string contents_of(const fs::path& folder) {
  const StudyView study = StudyView::open(folder);
  std::string text = study.info().name + study.info().json + study.info().version;
  for (const StudyAxis& axis : study.axes()) {
    text += "\n" + axis.name;
    for (const std::string& value : axis.values) text += " " + value;
  }
  const auto bits = [](auto number) {
    if constexpr (sizeof(number) == 4)
      return fmt::format(" {:x}", std::bit_cast<uint32_t>(number));
    else
      return fmt::format(" {:x}", std::bit_cast<uint64_t>(number));
  };
  for (const TrialRow& row : study.trials()) {
    text += fmt::format("\n{} {} {} {} {} {} {} {} {} {} {} {}", row.trial, row.hash, row.baseline,
                        row.base.value_or(-1), row.command, row.run, trial_status_name(row.status),
                        row.error, row.steps, row.skipped, row.cause, row.cause_layer);
    text +=
        row.headline + bits(row.loss) + bits(row.test_loss) + bits(row.accuracy) + bits(row.bits);
    for (const int place : row.places) text += " " + std::to_string(place);
    if (row.first_bad) text += row.first_bad->layer + row.first_bad->role;
    for (const CurvePoint& point : row.curve) text += bits(point.step) + bits(point.loss);
  }
  return text;
}

std::vector<fs::path> run_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder / "trials", ignored)) {
    if (entry.path().extension() == ".hscope") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// Returns the names of all other files in the folder of the trials.
std::vector<std::string> leftovers(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder / "trials")) {
    if (entry.path().extension() != ".hscope") names.push_back(entry.path().filename().string());
  }
  return names;
}

std::map<fs::path, fs::file_time_type> times_of(const fs::path& folder) {
  std::map<fs::path, fs::file_time_type> times;
  for (const fs::path& file : run_files(folder)) times[file] = fs::last_write_time(file);
  return times;
}

std::vector<pid_t> children_of(pid_t process) {
  std::ifstream stream(fmt::format("/proc/{}/task/{}/children", process, process));
  std::vector<pid_t> children;
  for (pid_t child = 0; stream >> child;) children.push_back(child);
  return children;
}

/// A process that nobody has waited for yet is dead, too.
bool is_alive(pid_t process) {
  std::ifstream stream(fmt::format("/proc/{}/stat", process));
  std::string id, name, state;
  return static_cast<bool>(stream >> id >> name >> state) && state != "Z";
}

template <typename Condition>
bool wait_until(const Condition& condition) {
  for (int tries = 0; tries < 1500; ++tries) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

bool exists_on_path(const std::string& program) {
  return std::system(("command -v " + program + " >/dev/null 2>&1").c_str()) == 0;
}

/// Runs a shell command in the bench's folder, with the program on the path.
int shell(const Bench& bench, const std::string& command) {
  const std::string path = fs::path(HALFSCOPE_PROGRAM).parent_path().string();
  return std::system(fmt::format("cd '{}' && PATH='{}':$PATH && {{ {}; }} >shell.txt 2>&1",
                                 (bench / "").string(), path, command)
                         .c_str());
}

TEST(Sweep, HasTheSameResultsWithAnyNumberOfWorkers) {
  const Bench bench;
  write_text(bench / "s.json", study_of(30, 4));
  const Outcome one = bench.run({"sweep", "s.json", "--out", "one", "--workers", "1"});
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(one.err, "");
  EXPECT_THAT(one.out, HasSubstr("float32 (baseline)"));
  EXPECT_THAT(one.out, HasSubstr("4/4"));
  EXPECT_THAT(one.out, HasSubstr("study: " + (bench / "one").string()));
  const Outcome three =
      bench.run({"sweep", "s.json", "--out", "three", "--workers", "3", "--json"});
  EXPECT_EQ(three.code, 0) << three.err;
  const auto json = nlohmann::json::parse(three.out);
  EXPECT_EQ(json.at("schema"), "halfscope.sweep/1");
  EXPECT_EQ(json.at("trials"), 12);
  EXPECT_EQ(json.at("done"), 12);
  EXPECT_EQ(json.at("plans").size(), 3u);
  EXPECT_EQ(contents_of(bench / "one"), contents_of(bench / "three"));
  EXPECT_EQ(run_files(bench / "one").size(), 12u);
  EXPECT_THAT(leftovers(bench / "one"), IsEmpty());
  EXPECT_THAT(leftovers(bench / "three"), IsEmpty());
  // A row of the study says what its run file says, and a run of its command.
  const StudyView study = StudyView::open(bench / "three");
  const TrialRow& row = study.trials()[2];
  const RunView run = RunView::open(bench / "three" / row.run);
  EXPECT_EQ(run.info().command, row.command);
  double sum = 0.0;
  for (size_t step = 24; step < 30; ++step) sum += run.steps(0)[step].loss;
  EXPECT_EQ(row.loss, sum / 6.0);
  EXPECT_EQ(row.test_loss, run.evals(0).back().loss);
  fs::create_directories(bench / "again/trials");
  ASSERT_EQ(shell(bench, "cd again && " + row.command), 0) << test::text_of(bench / "shell.txt");
  const RunView again = RunView::open(bench / "again" / row.run);
  for (size_t step = 0; step < 30; ++step) {
    EXPECT_EQ(again.steps(0)[step].loss, run.steps(0)[step].loss);
  }
}

TEST(Sweep, RepeatsNothingAndTakesMoreSeeds) {
  const Bench bench;
  write_text(bench / "s.json", study_of(20, 2));
  ASSERT_EQ(bench.run({"sweep", "s.json", "--out", "study", "--quiet"}).code, 0);
  const auto times = times_of(bench / "study");
  ASSERT_EQ(times.size(), 6u);
  const std::string contents = contents_of(bench / "study");
  ASSERT_EQ(bench.run({"sweep", "s.json", "--out", "study", "--quiet"}).code, 0);
  EXPECT_EQ(times_of(bench / "study"), times);
  EXPECT_EQ(contents_of(bench / "study"), contents);
  write_text(bench / "s.json", study_of(20, 3));
  ASSERT_EQ(bench.run({"sweep", "s.json", "--out", "study", "--quiet"}).code, 0);
  const auto more = times_of(bench / "study");
  EXPECT_EQ(more.size(), 9u);
  for (const auto& [file, time] : times) EXPECT_EQ(more.at(file), time) << file;
  ASSERT_EQ(bench.run({"sweep", "s.json", "--out", "fresh", "--quiet"}).code, 0);
  EXPECT_EQ(contents_of(bench / "study"), contents_of(bench / "fresh"));
  // A trial that could not be trained is tried again, after those that have not been tried.
  const fs::path first = run_files(bench / "study")[0], second = run_files(bench / "study")[1];
  fs::remove(first);
  fs::remove(second);
  write_text(fs::path(first).replace_extension(".error"), "out of memory\n");
  const Outcome failed = bench.run({"sweep", "s.json", "--out", "study", "--collect"});
  EXPECT_EQ(failed.code, 3);
  EXPECT_THAT(failed.err,
              HasSubstr("1 of 9 trials could not be trained, the first: out of memory"));
  EXPECT_THAT(failed.err, HasSubstr("hint: see " + first.parent_path().string() + "/" +
                                    first.stem().string() + ".error, and run"));
  EXPECT_THAT(failed.out, HasSubstr("7 of 9 trials finished;")) << "neither failed nor waiting";
  EXPECT_EQ(StudyView::open(bench / "study").count(TrialStatus::failed), 1u);
  ASSERT_EQ(bench.run({"sweep", "s.json", "--out", "study", "--quiet", "--workers", "1"}).code, 0);
  EXPECT_LT(fs::last_write_time(second), fs::last_write_time(first));
  EXPECT_EQ(contents_of(bench / "study"), contents_of(bench / "fresh"));
  EXPECT_THAT(leftovers(bench / "study"), IsEmpty());
  // Without the study file the run files are enough; without a run file its trial is trained.
  fs::remove(bench / "study/study.sqlite");
  fs::remove(run_files(bench / "study")[0]);
  const Outcome collected = bench.run({"sweep", "s.json", "--out", "study", "--collect"});
  EXPECT_EQ(collected.code, 0);
  EXPECT_THAT(collected.out, HasSubstr("8 of 9 trials finished"));
  EXPECT_EQ(run_files(bench / "study").size(), 8u);
  ASSERT_EQ(bench.run({"sweep", "s.json", "--out", "study", "--quiet"}).code, 0);
  EXPECT_EQ(contents_of(bench / "study"), contents_of(bench / "fresh"));
}

// Whatever study.sqlite says of it.
TEST(Sweep, TrainsATrialAgainWhoseRunFileIsDamaged) {
  const Bench bench;
  write_text(bench / "s.json", study_of(20, 2));
  ASSERT_EQ(bench.run({"sweep", "s.json", "--out", "study", "--quiet"}).code, 0);
  const std::string contents = contents_of(bench / "study");
  const std::vector<fs::path> runs = run_files(bench / "study");
  const auto size = fs::file_size(runs[2]);
  const std::string note = "note: 1 run file in '" + (bench / "study").string() + "' is damaged; ";
  for (const uintmax_t left : {size, size - 1, uintmax_t{100}, uintmax_t{0}}) {
    if (left == size) {  // a page of other bytes, and the right length
      std::fstream(runs[2], std::ios::in | std::ios::out | std::ios::binary)
          .seekp(static_cast<std::streamoff>(size / 8192 * 4096))
          .write(std::string(4096, 'x').data(), 4096);
    }
    fs::resize_file(runs[2], left);
    const std::string lines =
        bench.run({"sweep", "s.json", "--out", "study", "--print-trials"}).out;
    ASSERT_EQ(lines_of(lines).size(), 1u) << left;
    EXPECT_THAT(lines, HasSubstr("--trial " + runs[2].stem().string()));
    const Outcome collected = bench.run({"sweep", "s.json", "--out", "study", "--collect"});
    EXPECT_THAT(collected.out, HasSubstr("5 of 6 trials finished"));
    EXPECT_EQ(collected.err, note + "the same command without --collect trains its trial again\n");
    const auto times = times_of(bench / "study");
    const Outcome again = bench.run({"sweep", "s.json", "--out", "study"});
    ASSERT_EQ(again.code, 0);
    EXPECT_EQ(again.err, note + "its trial is trained again\n");
    for (const auto& [file, time] : times_of(bench / "study")) {
      EXPECT_EQ(times.at(file) == time, file != runs[2]) << file;
    }
    EXPECT_EQ(contents_of(bench / "study"), contents);
  }
}

TEST(Sweep, SurvivesWorkersThatAreKilled) {
  const Bench bench;
  write_text(bench / "s.json", study_of(400, 4));
  ASSERT_EQ(bench.run({"sweep", "s.json", "--out", "whole", "--quiet", "--workers", "1"}).code, 0);
  const pid_t child =
      bench.start({"sweep", "s.json", "--out", "study", "--quiet", "--workers", "2"});
  size_t killed = 0;
  for (const size_t finished : {1u, 3u, 6u}) {
    ASSERT_TRUE(wait_until([&] { return run_files(bench / "study").size() >= finished; }));
    const std::vector<pid_t> workers = children_of(child);
    if (!workers.empty()) killed += kill(workers[0], SIGKILL) == 0 ? 1 : 0;
  }
  EXPECT_GE(killed, 2u);
  const Outcome outcome = bench.finish(child);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(contents_of(bench / "study"), contents_of(bench / "whole"));
  EXPECT_THAT(leftovers(bench / "study"), IsEmpty());
}

TEST(Sweep, GoesOnAfterItWasKilled) {
  const Bench bench;
  write_text(bench / "s.json", study_of(400, 3));
  ASSERT_EQ(bench.run({"sweep", "s.json", "--out", "whole", "--quiet"}).code, 0);
  const pid_t child =
      bench.start({"sweep", "s.json", "--out", "study", "--quiet", "--workers", "2"});
  ASSERT_TRUE(wait_until([&] { return run_files(bench / "study").size() >= 2; }));
  const std::vector<pid_t> workers = children_of(child);
  kill(child, SIGKILL);
  bench.finish(child);
  // Workers end with it, and have not begun another trial.
  for (const pid_t worker : workers) {
    EXPECT_TRUE(wait_until([&] { return !is_alive(worker); })) << worker;
  }
  const auto times = times_of(bench / "study");
  EXPECT_LT(times.size(), 9u);
  EXPECT_NO_THROW(StudyView::open(bench / "study")) << "readable";
  ASSERT_EQ(bench.run({"sweep", "s.json", "--out", "study", "--quiet"}).code, 0);
  for (const auto& [file, time] : times) EXPECT_EQ(fs::last_write_time(file), time) << file;
  EXPECT_EQ(contents_of(bench / "study"), contents_of(bench / "whole"));
  EXPECT_THAT(leftovers(bench / "study"), IsEmpty());
}

TEST(Sweep, OneCtrlCFinishesRunningTrialsAndTwoEndAtOnce) {
  const Bench bench;
  write_text(bench / "s.json", study_of(1000, 6));
  pid_t child = bench.start({"sweep", "s.json", "--out", "study", "--workers", "2"});
  ASSERT_TRUE(wait_until([&] { return run_files(bench / "study").size() >= 1; }));
  kill(child, SIGINT);
  Outcome outcome = bench.finish(child);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const size_t finished = run_files(bench / "study").size();
  EXPECT_LT(finished, 18u);
  EXPECT_GE(finished, 2u) << "the running ones were finished";
  EXPECT_THAT(outcome.out, HasSubstr(fmt::format("{} of 18 trials finished", finished)));
  EXPECT_EQ(StudyView::open(bench / "study").count(TrialStatus::done), finished);
  EXPECT_THAT(leftovers(bench / "study"), IsEmpty());

  write_text(bench / "long.json", study_of(1000000, 1));
  child = bench.start({"sweep", "long.json", "--workers", "1"});
  ASSERT_TRUE(wait_until([&] { return !children_of(child).empty(); }));
  const pid_t worker = children_of(child)[0];
  ASSERT_TRUE(wait_until([&] { return !leftovers(bench / "long-study").empty(); }));
  kill(child, SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  kill(child, SIGINT);
  outcome = bench.finish(child);
  EXPECT_EQ(outcome.code, 130);
  EXPECT_TRUE(wait_until([&] { return !is_alive(worker); }));
}

TEST(Sweep, OtherProgramsCanRunItsTrials) {
  const Bench bench;
  write_text(bench / "s.json", study_of(20, 2));
  ASSERT_EQ(bench.run({"sweep", "s.json", "--out", "whole", "--quiet"}).code, 0);
  const Outcome printed = bench.run({"sweep", "s.json", "--out", "study", "--print-trials"});
  EXPECT_EQ(printed.code, 0);
  EXPECT_FALSE(fs::exists(bench / "study"));
  const std::vector<std::string> lines = lines_of(printed.out);
  ASSERT_EQ(lines.size(), 6u);
  std::string reversed;
  for (size_t i = lines.size(); i-- > 0;) reversed += lines[i] + "\n";
  write_text(bench / "reversed.sh", reversed);
  // From another folder, as a batch system would.
  ASSERT_EQ(shell(bench, "cd / && sh '" + (bench / "reversed.sh").string() + "'"), 0)
      << test::text_of(bench / "shell.txt");
  EXPECT_EQ(bench.run({"sweep", "s.json", "--out", "study", "--print-trials"}).out, "");
  const auto times = times_of(bench / "study");
  ASSERT_EQ(shell(bench, "sh reversed.sh"), 0);
  EXPECT_THAT(test::text_of(bench / "shell.txt"), HasSubstr("is already finished"));
  EXPECT_EQ(times_of(bench / "study"), times);
  ASSERT_EQ(bench.run({"sweep", "s.json", "--out", "study", "--collect", "--quiet"}).code, 0);
  EXPECT_EQ(contents_of(bench / "study"), contents_of(bench / "whole"));
  // By number, as an array of jobs does.
  for (int trial = 0; trial < 6; ++trial) {
    const Outcome outcome =
        bench.run({"sweep", "s.json", "--out", "array", "--trial", std::to_string(trial)});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr(fmt::format("trial {} (", trial)));
  }
  ASSERT_EQ(bench.run({"sweep", "s.json", "--out", "array", "--collect", "--quiet"}).code, 0);
  EXPECT_EQ(contents_of(bench / "array"), contents_of(bench / "whole"));
}

TEST(Sweep, GnuParallelCanRunItsTrials) {
  if (!exists_on_path("parallel")) GTEST_SKIP() << "GNU parallel is not installed";
  const Bench bench;
  write_text(bench / "s.json", study_of(20, 2));
  ASSERT_EQ(bench.run({"sweep", "s.json", "--out", "whole", "--quiet"}).code, 0);
  ASSERT_EQ(shell(bench, "halfscope sweep s.json --print-trials | parallel -j 2"), 0)
      << test::text_of(bench / "shell.txt");
  ASSERT_EQ(bench.run({"sweep", "s.json", "--collect", "--quiet"}).code, 0);
  EXPECT_EQ(contents_of(bench / "s-study"), contents_of(bench / "whole"));
}

TEST(Sweep, SlurmCanRunItsTrials) {
  if (std::system("sinfo >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "Slurm is not installed, or its controller does not run here";
  }
  const Bench bench;
  write_text(bench / "s.json", study_of(20, 2));
  ASSERT_EQ(bench.run({"sweep", "s.json", "--out", "whole", "--quiet"}).code, 0);
  ASSERT_EQ(shell(bench,
                  "sbatch --wait --array=0-5 --output=%a.txt --wrap "
                  "'halfscope sweep s.json --trial $SLURM_ARRAY_TASK_ID'"),
            0)
      << test::text_of(bench / "shell.txt");
  ASSERT_EQ(bench.run({"sweep", "s.json", "--collect", "--quiet"}).code, 0);
  EXPECT_EQ(contents_of(bench / "s-study"), contents_of(bench / "whole"));
}

// The second batch does not fit into the memory that the shell allows.
TEST(Sweep, GoesOnWithoutTrialsThatCannotBeTrained) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the address sanitizer needs more memory than the limit";
#endif
  const Bench bench;
  write_text(bench / "s.json", R"({"schema": "halfscope.study/1", "baseline": null,
    "settings": {"model": "mlp:784-16384-10", "steps": 1, "no_eval": true, "no_record": true},
    "axes": {"plan": ["mixed_float16"], "batch": [12000, 16]}})");
  const std::string limited = "ulimit -v 1500000 && halfscope sweep s.json --workers 1";
  EXPECT_EQ(WEXITSTATUS(shell(bench, limited)), 3);
  const std::string said = test::text_of(bench / "shell.txt");
  EXPECT_THAT(said, HasSubstr("halfscope: 1 of 2 trials could not be trained, the first: "));
  EXPECT_THAT(said, HasSubstr("out of memory"));
  EXPECT_THAT(said, HasSubstr(".error, and run the same command again"));
  StudyView study = StudyView::open(bench / "s-study");
  EXPECT_EQ(study.trials()[0].status, TrialStatus::failed);
  EXPECT_THAT(study.trials()[0].error, HasSubstr("out of memory"));
  EXPECT_EQ(study.trials()[1].status, TrialStatus::done);
  // As others run them, too: the file of the error is read.
  EXPECT_EQ(WEXITSTATUS(shell(bench,
                              "ulimit -v 1500000 && "
                              "halfscope sweep s.json --out other --trial 0")),
            3);
  EXPECT_EQ(WEXITSTATUS(shell(bench, "halfscope sweep s.json --out other --collect")), 3);
  study = StudyView::open(bench / "other");
  EXPECT_EQ(study.trials()[0].status, TrialStatus::failed);
  EXPECT_EQ(study.trials()[1].status, TrialStatus::waiting);
}

// The system ends the workers of two trials as soon as they have used a second of a processor.
TEST(Sweep, GoesOnAfterTrialsThatKillTheirWorkers) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "with the address sanitizer, a second is too little for any trial";
#endif
  const Bench bench;
  write_text(bench / "s.json", R"({"schema": "halfscope.study/1", "baseline": null,
    "settings": {"model": "mlp:784-16-10", "batch": 16, "no_record": true, "no_eval": true},
    "axes": {"plan": ["mixed_float16"], "steps": [1000000, 1000001, 2]}})");
  const std::string limited = "ulimit -t 1 && halfscope sweep s.json --workers 1";
  EXPECT_EQ(WEXITSTATUS(shell(bench, limited)), 3);
  StudyView study = StudyView::open(bench / "s-study");
  for (const size_t deadly : {0u, 1u}) {
    EXPECT_EQ(study.trials()[deadly].status, TrialStatus::failed);
    EXPECT_THAT(study.trials()[deadly].error, HasSubstr("its worker died 3 times: signal"));
  }
  EXPECT_EQ(study.trials()[2].status, TrialStatus::done);
}

TEST(Sweep, ShowsItsProgressOnATerminal) {
  const Bench bench;
  // Long enough for several lines on any machine.
  write_text(bench / "s.json", study_of(1500, 2));
  const std::string drawn = test::on_terminal(bench, {"sweep", "s.json", "--workers", "1"}, 120);
  if (drawn.empty()) GTEST_SKIP() << "no pseudo-terminal here";
  EXPECT_THAT(drawn, HasSubstr("0/6 trials"));
  EXPECT_THAT(drawn, testing::ContainsRegex("[1-5]/6 trials  [0-9]+s left"));
  EXPECT_EQ(test::on_terminal(bench, {"sweep", "s.json", "--quiet"}, 60), "");
}

// A training that overflows is a result.
TEST(Sweep, ATrainingThatFailsIsNotAnError) {
  const Bench bench;
  write_text(bench / "s.json", R"({"schema": "halfscope.study/1",
    "settings": {"model": "mlp:784-64-10", "steps": 60, "optimizer": "sgd:lr=0.5"},
    "axes": {"plan": ["float16", "mixed_bfloat16"], "loss_scale": ["static:1e30"],
             "seed": [1, 2]}})");
  const Outcome outcome = bench.run({"sweep", "s.json", "--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json.at("failed"), 0);
  const auto& plan = json.at("plans").at(1);
  EXPECT_EQ(plan.at("plan"), "float16");
  EXPECT_EQ(plan.at("failing"), 2);
  EXPECT_EQ(plan.at("first_layer_trials"), 2);
  const StudyView study = StudyView::open(bench / "s-study");
  EXPECT_EQ(study.trials()[0].skipped, 60) << "every gradient overflows";
  EXPECT_TRUE(study.trials()[0].fails);
  ASSERT_TRUE(study.trials()[0].first_bad);
  EXPECT_FALSE(study.trials()[0].cause.empty());
}

}  // namespace
}  // namespace halfscope
