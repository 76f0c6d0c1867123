// SPDX-License-Identifier: MIT
// The trials of a study, beside lists written by hand, and what their hashes depend on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "analysis/study/study_facts.h"
#include "cli/sweep/study.h"
#include "core/data/npz.h"
#include "core/error.h"
#include "core/onnx/proto.h"
#include "core/policy/policy.h"
#include "tests/cli/program.h"

namespace halfscope {
namespace {

using test::Bench;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

void write(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}

StudyPlan study_of(const Bench& bench, const std::string& text, const char* name = "s.json") {
  write(bench / name, text);
  return read_study((bench / name).string());
}

std::string study_text(const std::string& settings, const std::string& axes,
                       const std::string& more = "") {
  return R"({"schema": "halfscope.study/1", "settings": {)" + settings + R"(}, "axes": {)" + axes +
         "}" + more + "}";
}

std::vector<std::string> hashes_of(const StudyPlan& study) {
  std::vector<std::string> hashes;
  for (const StudyTrial& trial : study.trials) hashes.push_back(trial.spec.hash);
  return hashes;
}

const std::string kSmall = R"("model": "mlp:784-16-10", "batch": 16, "steps": 4, "no_eval": true)";

TEST(StudyExpansion, IsTheListWrittenByHand) {
  const Bench bench;
  const StudyPlan study =
      study_of(bench, study_text(kSmall, R"("plan": ["mixed_float16", "mixed_bfloat16"],
        "loss_scale": ["none", "dynamic:1024"], "seed": {"from": 3, "to": 7, "step": 4})"));
  const std::string start =
      "halfscope train --model mlp:784-16-10 --data digits --steps 4 --batch 16 "
      "--optimizer sgd --no-eval";
  std::vector<std::string> lines;
  for (const StudyTrial& trial : study.trials) {
    std::string line = trial.spec.command;
    EXPECT_EQ(trial.spec.run, "trials/" + trial.spec.hash + ".hscope");
    EXPECT_EQ(trial.spec.hash.size(), 16u);
    const std::string out = " --out " + trial.spec.run;
    ASSERT_TRUE(line.ends_with(out)) << line;
    line.erase(line.size() - out.size());
    for (const int place : trial.spec.places) line += " " + std::to_string(place);
    lines.push_back(line + " base " + std::to_string(trial.spec.base.value_or(-1)));
  }
  EXPECT_THAT(
      lines,
      ElementsAre(
          HasSubstr("--seed 3 --no-eval --lanes mixed_float16 --loss-scale none 0 0 0 base 8"),
          HasSubstr("--seed 7 --no-eval --lanes mixed_float16 --loss-scale none 0 0 1 base 9"),
          HasSubstr(
              "--seed 3 --no-eval --lanes mixed_float16 --loss-scale dynamic:1024 0 1 0 base 8"),
          HasSubstr(
              "--seed 7 --no-eval --lanes mixed_float16 --loss-scale dynamic:1024 0 1 1 base 9"),
          HasSubstr("--seed 3 --no-eval --lanes mixed_bfloat16 --loss-scale none 1 0 0 base 8"),
          HasSubstr("--seed 7 --no-eval --lanes mixed_bfloat16 --loss-scale none 1 0 1 base 9"),
          HasSubstr(
              "--seed 3 --no-eval --lanes mixed_bfloat16 --loss-scale dynamic:1024 1 1 0 base 8"),
          HasSubstr(
              "--seed 7 --no-eval --lanes mixed_bfloat16 --loss-scale dynamic:1024 1 1 1 base 9"),
          HasSubstr("--seed 3 --no-eval --lanes float32 -1 -1 0 base -1"),
          HasSubstr("--seed 7 --no-eval --lanes float32 -1 -1 1 base -1")));
  EXPECT_THAT(study.trials[0].spec.command, HasSubstr("--model mlp:784-16-10 --data digits"));
  const std::vector<std::string> all = hashes_of(study);
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 10u);
  EXPECT_EQ(study.info.tolerance, kStudyTolerance);
  EXPECT_EQ(study.info.baseline, "float32");
  EXPECT_EQ(study.threads, 1);
}

TEST(StudyExpansion, BaselinesFollowTheAxesThatChangeThem) {
  const Bench bench;
  // A learning rate changes the baseline; layers in fp32, formats of sums and updates do not.
  const StudyPlan study =
      study_of(bench, study_text(kSmall + R"(, "micro_batches": 2)",
                                 R"("plan": ["mixed_float16"], "fp32": [null, ["fc1"]],
                           "accumulate_grads": ["fp16", "fp32"], "lr": [0.1, 0.2, 0.3])"));
  ASSERT_EQ(study.trials.size(), 12u + 3u);
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(study.trials[i].spec.base, static_cast<int>(12 + i % 3));
    EXPECT_FALSE(study.trials[i].spec.baseline);
  }
  for (size_t i = 12; i < 15; ++i) {
    EXPECT_TRUE(study.trials[i].spec.baseline);
    EXPECT_THAT(study.trials[i].spec.places, ElementsAre(-1, -1, -1, static_cast<int>(i - 12)));
  }
  // A baseline in reduced precision follows them, too.
  const StudyPlan reduced = study_of(
      bench, study_text(kSmall, R"("plan": ["mixed_float16"], "loss_scale": ["none", "dynamic"])",
                        R"(, "baseline": "bfloat16")"));
  ASSERT_EQ(reduced.trials.size(), 4u);
  EXPECT_THAT(reduced.trials[3].spec.places, ElementsAre(-1, 1));
  const StudyPlan none =
      study_of(bench, study_text(kSmall, R"("plan": ["mixed_float16"])", R"(, "baseline": null)"));
  ASSERT_EQ(none.trials.size(), 1u);
  EXPECT_EQ(none.trials[0].spec.base, std::nullopt);
  EXPECT_EQ(none.info.baseline, "");
}

TEST(StudyExpansion, BaselinesThatSomeValuesShareStayApart) {
  const Bench bench;
  // A lane in full precision follows the order of the sums over ranks, not their format.
  const StudyPlan study = study_of(
      bench, study_text(kSmall, R"("plan": ["mixed_float16", "mixed_bfloat16"], "ranks": [2],
        "reduce": ["tree:format=bf16", "tree:format=fp16", "halving:format=bf16",
                   "halving:format=fp16"], "seed": [1, 2])"));
  ASSERT_EQ(study.trials.size(), 16u + 4u);
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(study.trials[i].spec.base, static_cast<int>(16 + i % 8 / 4 * 2 + i % 2)) << i;
  }
  EXPECT_THAT(study.trials[16].spec.places, ElementsAre(-1, 0, 0, 0));
  EXPECT_THAT(study.trials[17].spec.places, ElementsAre(-1, 0, 0, 1));
  EXPECT_THAT(study.trials[18].spec.places, ElementsAre(-1, 0, 2, 0));
  EXPECT_THAT(study.trials[19].spec.places, ElementsAre(-1, 0, 2, 1));
  std::vector<TrialRow> rows;
  for (const TrialSpec& spec : study.specs()) rows.push_back({spec, {}});
  const StudyView view(study.info, rows);
  const StudyFacts facts = make_study_facts(view);
  EXPECT_EQ(facts.planned, 20);
  EXPECT_EQ(facts.groups[0].name,
            "float32 (reduce tree:format=bf16 and tree:format=fp16, baseline)");
  for (int trial = 0; trial < 20; ++trial) EXPECT_GE(facts.group_of(trial), 0) << trial;
}

TEST(StudyExpansion, ATrialMayBeTheBaselineOfOthers) {
  const Bench bench;
  const StudyPlan study = study_of(
      bench, study_text(kSmall, R"("plan": ["float32", "mixed_float16"], "seed": [1, 2])"));
  ASSERT_EQ(study.trials.size(), 4u);
  EXPECT_EQ(study.trials[0].spec.base, std::nullopt);
  EXPECT_EQ(study.trials[2].spec.base, 0);
  EXPECT_EQ(study.trials[3].spec.base, 1);
}

TEST(StudyExpansion, RecordsStatisticsNowAndThenUnlessToldOtherwise) {
  const Bench bench;
  const auto every = [&](const std::string& settings) {
    return study_of(bench, study_text(settings, R"("plan": ["mixed_float16"])"))
        .trials[0]
        .settings.every;
  };
  const std::string model = R"("model": "mlp:784-16-10", "batch": 16)";
  EXPECT_EQ(every(model + R"(, "steps": 10)"), 1);
  EXPECT_EQ(every(model + R"(, "steps": 1000)"), 1000 / kStudyRecordedSteps);
  EXPECT_EQ(every(model + R"(, "steps": 1000, "every": 3)"), 3);
}

TEST(TrialHash, DependsOnContentsAndNotOnNamesOrOrder) {
  const Bench bench;
  const auto plan = [](const char* name, const char* format) {
    return R"({"schema": "halfscope.plan/1", "name": ")" + std::string(name) +
           R"(", "default": {"read": ")" + format + R"("}})";
  };
  std::filesystem::create_directories(bench / "other");
  write(bench / "a.json", plan("first", "fp16"));
  write(bench / "other/b.json", plan("second", "fp16"));
  write(bench / "c.json", plan("first", "bf16"));
  const auto hash = [&](const std::string& settings, const std::string& axes,
                        const char* name = "s.json") {
    return hashes_of(study_of(bench, study_text(settings, axes), name));
  };
  const auto first = hash(kSmall, R"("plan": ["a.json"], "seed": [1, 2])");
  EXPECT_EQ(first.size(), 4u);
  // The order of keys, another place of the study, another file with the same plan.
  EXPECT_EQ(hash(R"("no_eval": true, "steps": 4, "batch": 16, "model": "mlp:784-16-10")",
                 R"("plan": ["a.json"], "seed": [1, 2])"),
            first);
  EXPECT_EQ(hash(kSmall, R"("plan": ["b.json"], "seed": [1, 2])", "other/t.json"), first);
  // Settings with their defaults, and what does not change results.
  EXPECT_EQ(hash(kSmall + R"(, "optimizer": "sgd", "data": "digits", "threads": 2)",
                 R"("plan": ["a.json"], "seed": {"from": 1, "to": 2})"),
            first);
  EXPECT_EQ(hash(kSmall + R"(, "lr": 0.1)", R"("plan": ["a.json"], "seed": [1, 2])"), first);
  // A study with more seeds has the same trials.
  const auto more = hash(kSmall, R"("plan": ["a.json"], "seed": [1, 2, 3])");
  EXPECT_EQ(more[0], first[0]);
  EXPECT_EQ(more[1], first[1]);
  EXPECT_EQ(more[3], first[2]) << "baselines, too";
  // Other contents.
  EXPECT_NE(hash(kSmall, R"("plan": ["c.json"], "seed": [1, 2])")[0], first[0]);
  EXPECT_EQ(hash(kSmall, R"("plan": ["c.json"], "seed": [1, 2])")[2], first[2]) << "the baseline";
  EXPECT_NE(hash(kSmall + R"(, "lr": 0.2)", R"("plan": ["a.json"])")[0], first[0]);
  write(bench / "a.json", plan("first", "bf16"));
  EXPECT_NE(hash(kSmall, R"("plan": ["a.json"], "seed": [1, 2])")[0], first[0]);
}

TEST(TrialHash, CoversTheDataThatIsRead) {
  const Bench bench;
  std::filesystem::create_directories(bench / "other");
  std::string text = "abcdefgh";
  for (int i = 0; i < 12; ++i) text += text;
  write(bench / "a.txt", text);
  write(bench / "other/b.txt", text);
  text[77] = '?';
  write(bench / "c.txt", text);
  const auto hash = [&](const std::string& data) {
    return hashes_of(
        study_of(bench, study_text(R"("model": "mlp:8-8", "steps": 1, "data": ")" + data + "\"",
                                   R"("plan": ["mixed_float16"])")))[0];
  };
  const std::string first = hash("text:a.txt,sequence=8");
  EXPECT_EQ(hash("text:other/b.txt,sequence=8"), first);
  EXPECT_NE(hash("text:c.txt,sequence=8"), first);
  EXPECT_NE(hash("text:a.txt,sequence=16"), first);
}

TEST(TrialHash, CoversTheRatesOfASchedule) {
  const Bench bench;
  const auto hash = [&](const std::string& file, double last) {
    write_npz_double(bench / file, {{"rates", {{4}, {0.4, 0.3, 0.2, last}}}});
    return hashes_of(study_of(bench, study_text(kSmall + R"(, "schedule": "file:)" + file + "\"",
                                                R"("plan": ["mixed_float16"])")))[0];
  };
  const std::string first = hash("a.npz", 0.1);
  EXPECT_EQ(hash("b.npz", 0.1), first);
  EXPECT_NE(hash("a.npz", 0.05), first);
}

void store_outside(::onnx::TensorProto& tensor, const std::string& file) {
  tensor.set_name("weights");
  tensor.set_data_location(::onnx::TensorProto::EXTERNAL);
  ::onnx::StringStringEntryProto& location = *tensor.add_external_data();
  location.set_key("location");
  location.set_value(file);
}

TEST(TrialHash, CoversTheWeightsBesideANetwork) {
  const Bench bench;
  ::onnx::ModelProto model;
  store_outside(*model.mutable_graph()->add_initializer(), "a.bin");
  store_outside(*model.mutable_graph()->add_initializer(), "a.bin");
  // In a branch of a node, as a constant.
  ::onnx::GraphProto& branch = *model.mutable_graph()->add_node()->add_attribute()->mutable_g();
  store_outside(*branch.add_node()->add_attribute()->mutable_t(), "b.bin");
  write(bench / "net.onnx", model.SerializeAsString());
  const auto hash = [&](const std::string& first, const std::string& second) {
    write(bench / "a.bin", first);
    write(bench / "b.bin", second);
    return hashes_of(study_of(bench, study_text(R"("model": "net.onnx", "steps": 1)",
                                                R"("plan": ["float16"])")))[0];
  };
  const std::string first = hash("1234", "56");
  EXPECT_EQ(hash("1234", "56"), first);
  EXPECT_NE(hash("1235", "56"), first);
  EXPECT_NE(hash("1234", "57"), first);
  EXPECT_NE(hash("123", "456"), first);
  std::filesystem::remove(bench / "b.bin");
  try {
    read_study((bench / "s.json").string());
    ADD_FAILURE() << "a file is missing";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot read its external data file 'b.bin'"));
  }
}

TEST(StudyExpansion, FindsAPlanFileWithoutAnEndingBesideTheStudy) {
  const Bench bench;
  std::filesystem::create_directories(bench / "sub");
  write(bench / "sub/myplan",
        R"({"schema": "halfscope.plan/1", "name": "mine", "default": {"read": "fp16"}})");
  const StudyPlan study =
      study_of(bench, study_text(kSmall, R"("plan": ["myplan", "mixed_float16"])"), "sub/s.json");
  EXPECT_THAT(study.trials[0].spec.command, HasSubstr((bench / "sub/myplan").string()));
  EXPECT_THAT(study.trials[1].spec.command, HasSubstr("--lanes mixed_float16"));
}

TEST(StudyExpansion, RangesReachTheLargestNumber) {
  const Bench bench;
  const auto values = [&](const std::string& range) {
    return study_of(bench, study_text(kSmall, R"("plan": ["mixed_float16"], "seed": )" + range))
        .info.axes[1]
        .values;
  };
  EXPECT_THAT(values(R"({"from": 1, "to": 9223372036854775807, "step": 9223372036854775807})"),
              ElementsAre("1"));
  try {
    values(R"({"from": 9223372036854775805, "to": 9223372036854775807})");
    ADD_FAILURE() << "no seed is that large";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("\"seed\": 9223372036854775805: out of range"));
  }
  EXPECT_THAT(values(R"({"from": 1, "to": 8, "step": 3})"), ElementsAre("1", "4", "7"));
  EXPECT_THAT(values(R"({"from": 5, "to": 5})"), ElementsAre("5"));
}

TEST(StudyExpansion, TakesPlansThatAreWrittenOut) {
  const Bench bench;
  const StudyPlan study =
      study_of(bench, study_text(kSmall, R"("plan": [{"schema": "halfscope.plan/1", "name": "mine",
                             "default": {"read": "fp16"}}, "mixed_float16"])"));
  ASSERT_EQ(study.trials.size(), 3u);
  EXPECT_THAT(study.info.axes[0].values, ElementsAre("mine", "mixed_float16"));
  EXPECT_THAT(study.trials[0].spec.command, HasSubstr("halfscope.plan/1"));
}

}  // namespace
}  // namespace halfscope
