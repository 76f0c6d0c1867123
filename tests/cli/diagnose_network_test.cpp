// SPDX-License-Identifier: MIT
// `halfscope diagnose` of a network: it records first, and says what it says of the run file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "analysis/run_view.h"
#include "core/data/npz.h"
#include "tests/cli/program.h"

namespace halfscope {
namespace {

using nlohmann::json;
using test::Bench;
using test::Outcome;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Words = std::vector<std::string>;

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// Creates a folder for temporary files, to check that none are left in it.
class Temporary {
 public:
  explicit Temporary(const Bench& bench) : folder_(bench / "tmp") {
    std::filesystem::create_directory(folder_);
  }
  std::string environment() const { return "TMPDIR=" + folder_.string(); }
  std::filesystem::path folder() const { return folder_; }
  bool is_empty() const { return std::filesystem::is_empty(folder_); }

 private:
  std::filesystem::path folder_;
};

json result_of(const Bench& bench, const Words& words, const std::string& environment = "") {
  const Outcome outcome = bench.run(words, environment);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return json::parse(outcome.out);
}

/// Without what only one of the two ways has: the name of the file, and times.
json comparable(json result) {
  result.erase("run");
  if (result.at("twins").is_object()) result["twins"].erase("seconds");
  if (result.at("proof").is_object()) {
    for (json& trial : result["proof"]["trials"]) trial.erase("seconds");
    for (const char* key : {"seconds", "cost"}) result["proof"].erase(key);
  }
  return result;
}

const Words kTraining{"--batch", "8", "--steps", "12", "--plan", "mixed_float16", "--threads", "1"};

TEST(CliDiagnoseNetwork, ATrainingSaysWhatItsRunFileSays) {
  const Bench bench;
  const Temporary temporary(bench);
  const json direct =
      result_of(bench, with({"diagnose", "--model", "lenet-hot", "--json"}, kTraining),
                temporary.environment());
  EXPECT_TRUE(temporary.is_empty());
  EXPECT_EQ(direct.at("run"), nullptr);
  EXPECT_EQ(direct.at("diagnosis").at("root").at(0).at("layer"), "conv2");
  ASSERT_EQ(bench.run(with({"train", "--model", "lenet-hot", "--quiet"}, kTraining)).code, 0);
  const json two_steps = result_of(bench, {"diagnose", "run.hscope", "--json", "--threads", "1"});
  EXPECT_EQ(comparable(direct), comparable(two_steps));
  // A network may replace the run file on the command line.
  EXPECT_EQ(result_of(bench, with({"diagnose", "lenet-hot", "--json"}, kTraining)), direct);
}

TEST(CliDiagnoseNetwork, ACaseOfTheZooIsRecordedAsItIsMeantAndProved) {
  const Bench bench;
  const Temporary temporary(bench);
  const Words verify{"diagnose", "--model", "zoo:F7", "--verify", "--threads", "1", "--json"};
  const json direct = result_of(bench, verify, temporary.environment());
  EXPECT_TRUE(temporary.is_empty());
  EXPECT_EQ(direct.at("proof").at("holds"), true);
  ASSERT_EQ(bench.run({"zoo", "run", "F7", "--quiet"}).code, 0);
  const json two_steps =
      result_of(bench, {"diagnose", "F7.hscope", "--verify", "--threads", "1", "--json"});
  EXPECT_EQ(comparable(direct), comparable(two_steps));
  // A trained case, under a plan with its own setting.
  const Outcome trained = bench.run({"diagnose", "zoo:F22", "--json", "--record", "F22.hscope"});
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(json::parse(trained.out).at("run"), "F22.hscope");
  const RunInfo info = RunView::open(bench / "F22.hscope").info();
  EXPECT_THAT(info.settings, testing::IsSupersetOf({"--accumulate-grads", "bf16"}));
  EXPECT_THAT(info.command, AllOf(StartsWith("halfscope train --model zoo:F22 "),
                                  testing::EndsWith(" --out F22.hscope")));
}

TEST(CliDiagnoseNetwork, AFileIsRunForwardOrTrained) {
  const Bench bench;
  ASSERT_EQ(bench.run({"convert", "mlp:784-16-10", "--data", "digits", "--out", "n.onnx"}).code, 0);
  Tensor rows{{6, 1, 28, 28}, std::vector<float>(6 * 784, 0.25f)};
  rows.data[0] = 7e4f;
  write_npz(bench / "x.npz", {{"input", rows}});
  const Words plan{"--plan", "float16", "--threads", "1", "--json"};
  ASSERT_EQ(bench
                .run({"run", "n.onnx", "--input", "x.npz", "--plan", "float16", "--record",
                      "r.hscope", "--quiet"})
                .code,
            0);
  const json two_steps = result_of(bench, {"diagnose", "r.hscope", "--json"});
  EXPECT_EQ(two_steps.at("diagnosis").at("harmed"), true);
  for (const char* flag : {"--input", "--data"}) {
    const json direct = result_of(bench, with({"diagnose", "n.onnx", flag, "x.npz"}, plan));
    EXPECT_EQ(comparable(direct), comparable(two_steps)) << flag;
  }
  const Outcome trained =
      bench.run({"diagnose", "n.onnx", "--loss", "cross-entropy", "--data", "digits", "--steps",
                 "3", "--plan", "mixed_float16", "--record", "t.hscope", "--quiet"});
  EXPECT_EQ(trained.code, 0) << trained.err;
  const RunView run = RunView::open(bench / "t.hscope");
  EXPECT_FALSE(run.info().inference);
  EXPECT_EQ(run.steps(0).size(), 3u);
}

TEST(CliDiagnoseNetwork, AConfigurationFileSaysWhichOfTheTwo) {
  const Bench bench;
  std::ofstream(bench / "run.json")
      << R"({"schema": "halfscope.run-config/1", "network": "zoo:F7", "plan": "mixed_float16"})";
  EXPECT_EQ(result_of(bench, {"diagnose", "--config", "run.json", "--json"}),
            result_of(bench, {"diagnose", "zoo:F7", "--json"}));
  std::ofstream(bench / "train.json")
      << R"({"schema": "halfscope.train-config/1", "model": "mlp:784-16-10", "steps": 3,)"
      << R"( "batch": 16})";
  EXPECT_EQ(bench.run({"diagnose", "--config", "train.json", "--quiet"}).code, 0);
  std::ofstream(bench / "none.json")
      << R"({"schema": "halfscope.train-config/1", "no_record": true})";
  EXPECT_THAT(bench.run({"diagnose", "--config", "none.json"}).err,
              AllOf(HasSubstr("none.json: \"no_record\": "), HasSubstr("hint: take it out")));
}

TEST(CliDiagnoseNetwork, NextRepeatsTheCommandOrNamesTheFileThatIsKept) {
  const Bench bench;
  EXPECT_THAT(bench.run({"diagnose", "zoo:F7"}).out,
              HasSubstr("\nnext: halfscope diagnose zoo:F7 --verify --out plan.json\n"));
  EXPECT_THAT(bench.run({"diagnose", "zoo:F7", "--record", "k.hscope"}).out,
              HasSubstr("\nrun file: k.hscope\n"
                        "next: halfscope diagnose k.hscope --verify --out plan.json\n"));
  EXPECT_EQ(bench.run({"diagnose", "zoo:F7", "--record", "k.hscope"}).code, 2) << "it is there";
  const Outcome plan = bench.run(
      {"diagnose", "zoo:F7", "--verify", "--out", "p.json", "--record", "k.hscope", "--force"});
  EXPECT_THAT(plan.out, HasSubstr("\nplan: p.json\nnext: halfscope run zoo:F7 "));
}

TEST(CliDiagnoseNetwork, WrongFlagsSayWhatToDo) {
  const Bench bench;
  const Temporary temporary(bench);
  std::ofstream(bench / "n.onnx") << "";
  const auto error_of = [&](const Words& words) {
    const Outcome outcome = bench.run(with({"diagnose"}, words), temporary.environment());
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(test::lines_of(outcome.err).size(), 2u) << outcome.err;
    EXPECT_TRUE(temporary.is_empty());
    return outcome.err;
  };
  EXPECT_THAT(error_of({}), AllOf(HasSubstr("diagnose needs a run file or a network"),
                                  HasSubstr("hint: try halfscope diagnose")));
  EXPECT_THAT(error_of({"run.hscope", "--steps", "3"}),
              AllOf(HasSubstr("--steps is for recording, but run.hscope is recorded already"),
                    HasSubstr("name a network")));
  EXPECT_THAT(error_of({"zoo:F7", "--steps", "3"}),
              AllOf(HasSubstr("--steps is for training, but zoo:F7 is run forward"),
                    HasSubstr("leave it out")));
  EXPECT_THAT(error_of({"zoo:F16", "--random-input", "3"}),
              HasSubstr("--random-input is for running a network forward, but zoo:F16 is trained"));
  EXPECT_THAT(error_of({"lenet", "--steps", "3", "--limit", "3"}),
              AllOf(HasSubstr("lenet is trained because of --steps"),
                    HasSubstr("leave out --limit, or --steps")));
  EXPECT_THAT(error_of({"lenet", "--model", "lenet"}), HasSubstr("both name a network"));
  EXPECT_THAT(error_of({"n.onnx", "--random-input", "1"}), HasSubstr("add a plan"));
  EXPECT_THAT(error_of({"n.onnx", "--plan", "float16"}), HasSubstr("--random-input"));
  EXPECT_THAT(error_of({"run.hscope", "--record", "k.hscope"}), HasSubstr("recorded already"));
  EXPECT_THAT(error_of({"lenet", "--plan", "float16", "--plan", "bfloat16"}),
              HasSubstr("--plan is given twice"));
  EXPECT_THAT(error_of({"zoo:F7", "--no-record"}), HasSubstr("diagnose has no flag --no-record"));
  EXPECT_THAT(error_of({"zoo:F7b"}), HasSubstr("did you mean F7?"));
  EXPECT_THAT(error_of({"lenet", "--verify", "--budget", "40x"}),
              AllOf(HasSubstr("--budget 40x: neither a number of trials nor a time"),
                    HasSubstr("40 for trials, 90s for seconds or 10m for minutes")));
  EXPECT_THAT(error_of({"zoo:F7", "--audit", "--verify"}),
              AllOf(HasSubstr("--audit runs nothing"), HasSubstr("leave out --audit or --verify")));
}

TEST(CliDiagnoseNetwork, AnErrorLeavesNothingBehind) {
  const Bench bench;
  const Temporary temporary(bench);
  const Outcome outcome =
      bench.run({"diagnose", "lenet", "--batch", "1e6"}, temporary.environment());
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("does not fit the data"));
  EXPECT_TRUE(temporary.is_empty());
  const Outcome nowhere = bench.run({"diagnose", "zoo:F7"}, "TMPDIR=/dev/null");
  EXPECT_TRUE(nowhere.code == 0 || nowhere.code == 3) << "another folder, or one clear error";
}

/// Waits until the recording has begun.
void wait_for_recording(const Temporary& temporary) {
  for (int tries = 0; tries < 600; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (const auto& entry : std::filesystem::directory_iterator(temporary.folder())) {
      if (std::filesystem::exists(entry.path() / "run.hscope-wal")) return;
    }
  }
  ADD_FAILURE() << "nothing is recorded";
}

TEST(CliDiagnoseNetwork, CtrlCDiagnosesWhatThereIsAndLeavesNothingBehind) {
  const Bench bench;
  const Temporary temporary(bench);
  const pid_t child = bench.start(
      {"diagnose", "mlp:784-16-10", "--batch", "16", "--steps", "1e6", "--plan", "mixed_float16"},
      temporary.environment());
  wait_for_recording(temporary);
  kill(child, SIGINT);
  const Outcome outcome = bench.finish(child);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, StartsWith("verdict: "));
  EXPECT_TRUE(temporary.is_empty());
}

// Steps of this network take long enough for both signals to arrive within one.
TEST(CliDiagnoseNetwork, ASecondCtrlCLeavesNothingBehindEither) {
  const Bench bench;
  const Temporary temporary(bench);
  const pid_t child = bench.start({"diagnose", "mlp:784-2048-2048-10", "--batch", "12000",
                                   "--steps", "1e6", "--plan", "mixed_float16"},
                                  temporary.environment());
  wait_for_recording(temporary);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the first step has begun
  kill(child, SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  kill(child, SIGINT);
  EXPECT_EQ(bench.finish(child).code, 130);
  EXPECT_TRUE(temporary.is_empty());
}

TEST(CliDiagnoseNetwork, AProofOfAReadOnlyFileIsToldAndNotStored) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write everything";
  const Bench bench;
  ASSERT_EQ(bench.run({"zoo", "run", "F7", "--quiet"}).code, 0);
  const std::filesystem::path file = bench / "F7.hscope";
  std::filesystem::permissions(file, std::filesystem::perms::owner_read);
  const Outcome outcome = bench.run({"diagnose", "F7.hscope", "--verify"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("proof: Tested by running it"));
  EXPECT_EQ(outcome.err,
            "note: the proof could not be stored in F7.hscope: it or its folder is read-only\n");
  EXPECT_EQ(RunView::open(file).proof(1), "");
}

TEST(CliAudit, ListsConstantsOfNetworksAndTrainings) {
  const Bench bench;
  const Outcome text = bench.run({"diagnose", "zoo:F15", "--audit"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(
      text.out,
      AllOf(StartsWith("lane float16_stagewise: 6 constants checked, 1 harmful\n"),
            HasSubstr("eps            1e-08  fp16            0     100%  yes   optimizer"),
            HasSubstr("\nerror: eps is 0 in fp16, so "), HasSubstr("Use at least 5.96e-8")));
  const json result = result_of(bench, {"diagnose", "zoo:F6", "--audit", "--json"});
  EXPECT_EQ(result.at("schema"), "halfscope.audit/1");
  EXPECT_EQ(result.at("network"), "zoo:F6");
  EXPECT_EQ(result.at("trains"), false);
  ASSERT_EQ(result.at("lanes").size(), 1u);
  const json& mask = result.at("lanes").at(0).at("constants").at(0);
  EXPECT_EQ(mask.at("becomes"), "-inf");
  EXPECT_EQ(mask.at("harmful"), true);
  EXPECT_EQ(mask.at("safe"), -32752.0);
  // Nothing runs, and a file needs no samples.
  EXPECT_EQ(bench.run({"convert", "zoo:F6", "--out", "f6.onnx"}).code, 0);
  const json file =
      result_of(bench, {"diagnose", "f6.onnx", "--audit", "--plan", "float16_stagewise", "--json"});
  EXPECT_EQ(file.at("lanes").at(0).at("harmful"), 1);
}

TEST(CliAudit, ARunFileIsAuditedByItsSettings) {
  const Bench bench;
  ASSERT_EQ(bench.run({"zoo", "run", "F17", "--quiet"}).code, 0);
  EXPECT_EQ(result_of(bench, {"diagnose", "F17.hscope", "--audit", "--json"}),
            result_of(bench, {"diagnose", "zoo:F17", "--audit", "--json"}));
}

TEST(CliAudit, ARunFileIsAuditedUnderThePlanThatWasRecorded) {
  const Bench bench;
  std::ofstream(bench / "own.json") << R"({"schema": "halfscope.plan/1", "name": "own",
    "default": {"read": "fp16", "write": "fp16", "accumulate": "fp32", "mode": "stagewise"}, "variables": {"storage": "fp16"}})";
  ASSERT_EQ(bench.run({"run", "zoo:F5", "--plan", "own.json", "--record", "own.hscope"}).code, 0);
  const json before = result_of(bench, {"diagnose", "own.hscope", "--audit", "--json"});
  EXPECT_EQ(before.at("lanes").at(0).at("name"), "own");
  EXPECT_GT(before.at("lanes").at(0).at("harmful"), 0);
  std::filesystem::remove(bench / "own.json");
  EXPECT_EQ(result_of(bench, {"diagnose", "own.hscope", "--audit", "--json"}), before);
}

TEST(CliAudit, EndsWithOneOnlyIfAsked) {
  const Bench bench;
  const Words audit{"diagnose", "zoo:F5", "--audit", "--quiet"};
  EXPECT_EQ(bench.run(audit).code, 0);
  EXPECT_EQ(bench.run(with(audit, {"--fail-on", "error"})).code, 1);
  EXPECT_EQ(bench.run(with(audit, {"--fail-on", "error", "--plan", "bfloat16_stagewise"})).code, 0);
  EXPECT_EQ(bench.run(with(audit, {"--fail-on", "fatal"})).code, 2);
  const Outcome other = bench.run({"diagnose", "zoo:F5", "--audit", "--lane", "float16_stagwise"});
  EXPECT_THAT(other.err, HasSubstr("did you mean float16_stagewise?"));
  EXPECT_THAT(bench.run({"diagnose", "lenet", "--lanes", "float32", "--audit"}).err,
              AllOf(HasSubstr("all lanes run in full precision"), HasSubstr("add a plan")));
}

}  // namespace
}  // namespace halfscope
