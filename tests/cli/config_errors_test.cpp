// SPDX-License-Identifier: MIT
// Errors of settings from a file name the file and the key (docs/reference/json.md),
// whether the file is read, the settings are checked or the network is made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/bad_inputs.h"

namespace halfscope {
namespace {

using test::Bench;
using test::lines_of;
using test::Outcome;
using test::Words;
using testing::HasSubstr;
using testing::StartsWith;

struct Case {
  std::string members;    ///< in the file
  std::string begin;      ///< of the error message
  std::string more = "";  ///< in it
  Words typed{};
  int code = 2;
};

void expect_errors(const std::string& command, const std::vector<Case>& cases) {
  const Bench bench;
  for (const Case& each : cases) {
    SCOPED_TRACE(each.members);
    test::write_text(bench / "c.json",
                     "{\"schema\": \"halfscope." + command + "-config/1\", " + each.members + "}");
    Words words{command, "--config", "c.json", "--quiet"};
    words.insert(words.end(), each.typed.begin(), each.typed.end());
    const Outcome outcome = bench.run(words);
    EXPECT_EQ(outcome.code, each.code) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    const Words lines = lines_of(outcome.err);
    ASSERT_TRUE(lines.size() == 1 || lines.size() == 2) << outcome.err;
    EXPECT_THAT(lines[0], StartsWith("halfscope: " + each.begin));
    EXPECT_THAT(lines[0], HasSubstr(each.more));
    EXPECT_LT(outcome.err.size(), 600u) << outcome.err;
  }
}

const std::string kLong(5000, 'x');
const std::string kCut = std::string(54, 'x') + "...";

TEST(CliConfigErrors, OfATraining) {
  expect_errors(
      "train",
      {
          // As the file is read.
          {R"("batch": "0x10")", R"(c.json: "batch": 0x10: not a whole number)"},
          {R"("steps": 0)", R"(c.json: "steps": 0: out of range)"},
          {R"("lr": -1)", R"(c.json: "lr": -1: out of range)"},
          {R"("seed": 1.5, "steps": 3)", R"(c.json: "seed": 1.5: not a whole number)"},
          {R"("model": "")", R"(c.json: "model": the text is empty)"},
          {R"("lanes": [])", R"(c.json: "lanes": the list is empty)"},
          {R"("lanes": [{"backend": "emulated"}])",
           R"(c.json: "lanes": a lane names a backend without a "plan")"},
          {R"("lanes": [{"backend": "cuba", "plan": "float32"}])",
           R"(c.json: "lanes": unknown backend 'cuba')"},
          {R"("init": "--force")", R"(c.json: "init": )", "--force", {}, 3},
          {R"("no_eval": 1)", R"(c.json: "no_eval": must be true or false)"},
          {"\"" + kLong + "\": 1", "c.json: unknown key \"" + std::string(57, 'x') + "...\""},
          {R"("plan": ["float16", "bfloat16"])", R"(c.json: "plan": must be one plan)"},
          {R"("lanes": [{"plan": {"plan": "float32"}}])",
           R"(c.json: "lanes": "plan" must be a plan's name or its JSON)"},
          {R"("dimension": [5])", R"(c.json: "dimension": must hold texts)"},
          {R"("dimension": {"a": "x"})", R"(c.json: "dimension": x: not a whole number)"},
          {R"("ema": [1])", R"(c.json: "ema": must be a number, a text or an object)"},
          {R"("ema": {"decay": 0.9, "form": "average,format=bf16"})",
           R"(c.json: "ema": "form" must be one text or number)"},
          {R"("ema": {"decay": "0.9:form=average"})",
           R"(c.json: "ema": "decay" must be one text or number)"},
          // As the settings are checked.
          {R"("backend": "cudda")", R"(c.json: "backend": unknown backend 'cudda')"},
          {R"("model": "mlp:784-10", "loss": "mse")", R"(c.json: "model" and "loss": )", "targets"},
          {R"("lanes": ["float32", "mixed_float16"])",
           "no layer matches",
           "nosuch",
           {"--fp32", "nosuch"}},
          {R"("steps": 2, "optimizer": "sdg")", R"(c.json: "optimizer": )", "sdg"},
          {R"("schedule": "cosin", "optimizer": "adam")", R"(c.json: "schedule": )", "cosin"},
          {R"("ema": 1.5, "eval_ema": true)", R"(c.json: "ema": )", "decay 1.5"},
          {R"("clip_format": "fp16", "clip_norm": 0)", R"(c.json: "clip_format": )"},
          {R"("lanes": ["float32", "mixed_flaot16"])", R"(c.json: "lanes": )", "mixed_flaot16"},
          {R"("plan": "float16", "lanes": ["float32"])", R"(c.json: "plan" and "lanes": )",
           "exclude each other"},
          {R"("plan": {"schema": "halfscope.plan/1", "name": "p", "defualt": {}})",
           R"(c.json: "plan": )", "defualt"},
          {R"("optimizer": "sdg", "schedule": "cosin")", R"(c.json: "optimizer": )", "sdg"},
          {R"("accumulate": ")" + kLong + "\"", "c.json: \"accumulate\": ", kCut + "'"},
          {R"("lanes": ["float32", ")" + kLong + "\"]", "c.json: \"lanes\": ", " '" + kCut + "',"},
          {R"("loss_scale": "static:x", "lanes": ["float32"])", R"(c.json: "loss_scale": )"},
          {R"("dimension": {"N": 3})", R"(c.json: "dimension": )", "--dimension"},
          {R"("compare": ["float32,mixed"], "model": "mlp:784-10")", R"(c.json: "compare": )",
           "there is no lane 'mixed'"},
          // As data and network are made.
          {R"("data": "none.npz", "model": "mlp:6-3")", R"(c.json: "data": )", "none.npz", {}, 3},
          {R"("normalize": "1")", R"(c.json: "normalize": )", "images with 1 channel"},
          {R"("data": "digist")", R"(c.json: "data": )", "digist"},
          {R"("model": "lennet")", R"(c.json: "model": )", "lennet"},
          {R"("init": "w.npz")", R"(c.json: "init": )", "w.npz", {}, 3},
          {R"("batch": 12001)", R"(c.json: "batch": batch size 12001 does not fit)"},
          {R"("batch": 10, "micro_batches": 3, "steps": 2)",
           R"(c.json: "batch" and "micro_batches": )", "3 equal micro-batches"},
          {R"("model": "mlp:784-10", "fp32": ["convx*"])", R"(c.json: "fp32": )", "convx*"},
          // An error on the command line is not blamed on the file.
          {R"("steps": 2, "optimizer": "sgd")", "unknown optimizer", "", {"--optimizer", "sdg"}},
          {R"("steps": 2)", "batch size 12001", "", {"--batch", "12001"}},
      });
}

TEST(CliConfigErrors, OfTheFileItself) {
  const Bench bench;
  const auto says = [&](const std::string& text) {
    test::write_text(bench / "c.json", text);
    const Outcome outcome = bench.run({"train", "--config", "c.json", "--print-config"});
    EXPECT_EQ(outcome.code, 2);
    return outcome.err;
  };
  const std::string start = R"({"schema": "halfscope.train-config/1", )";
  for (const size_t depth : {size_t{100}, size_t{200'000}}) {
    std::string lanes = "\"float32\"";
    for (size_t i = 0; i < depth; ++i) lanes.insert(0, "{\"plan\": ").append("}");
    EXPECT_THAT(says(start + "\"lanes\": [" + lanes + "]}"), HasSubstr("nested too deeply"));
    const std::string open(depth, '['), close(depth, ']');
    EXPECT_THAT(says(start + "\"dimension\": {\"a\": " + open + close + "}}"),
                HasSubstr("nested too deeply"));
  }
  std::filesystem::create_directory(bench / "folder");
  const Outcome folder = bench.run({"train", "--config", "folder"});
  EXPECT_EQ(folder.code, 2);
  EXPECT_THAT(folder.err, HasSubstr("folder is a folder, not a configuration file"));
  test::write_text(bench / "c.json", start + "\"steps\": 1}");
  const Outcome plan = bench.run({"train", "--plan", "c.json"});
  EXPECT_EQ(plan.code, 2);
  EXPECT_THAT(plan.err, HasSubstr("this is a configuration file"));
  EXPECT_THAT(plan.err, HasSubstr("--config"));
  const Outcome bytes = bench.run({"train", "--data", "\xff.npz", "--print-config"});
  EXPECT_EQ(bytes.code, 2);
  EXPECT_THAT(bytes.err, HasSubstr("--data: the value is not UTF-8"));
}

TEST(CliConfigErrors, OfARun) {
  expect_errors(
      "run",
      {
          {R"("network": "lenet", "limit": 0)", R"(c.json: "limit": 0: out of range)"},
          {R"("network": "--force", "data": "digits")",
           R"(c.json: "network": unknown model '--force')"},
          {R"("network": "lenet", "data": "digits", "random_input": 1)",
           R"(c.json: "data" and "random_input": )", "exclude each other"},
          {R"("network": "lenet", "random_input": 1, "labels": "l.npy")", R"(c.json: "labels": )"},
          {R"("network": "lenet", "data": "digits", "plan": ["float16", "flaot16"])",
           R"(c.json: "plan": )",
           "flaot16",
           {},
           2},
          {R"("network": "lennet", "data": "digits")", R"(c.json: "network": )", "lennet"},
          {R"("network": "mlp:6-3", "input": ["none.npy"])",
           R"(c.json: "input": )",
           "none.npy",
           {},
           3},
          {R"("network": "mlp:6-3", "random_input": 1, "dimension": {"N": 3})",
           R"(c.json: "network" and "dimension": )"},
          {R"("network": "mlp:6-3", "random_input": 1, "init": ")" + kLong + ".npz\"",
           "c.json: \"init\": ",
           kCut,
           {},
           3},
          {R"("network": "mlp:6-3", "random_input": 1)",
           "no plan named 'pp'",
           "",
           {"--plan", "pp"},
           2},
      });
}

TEST(CliConfigErrors, LongTextsAreCutBetweenCharacters) {
  std::string accents;
  for (int i = 0; i < 40; ++i) accents += "\xc3\xa9";
  expect_errors("train", {{"\"model\": \"" + accents + "\"", "c.json: \"model\": unknown model ",
                           " '" + accents.substr(0, 54) + "...'"},
                          {"\"model\": \"x" + accents + "\"", "c.json: \"model\": unknown model ",
                           " 'x" + accents.substr(0, 54) + "...'"},
                          {"\"model\": \"" + std::string(58, 'y') + "\"",
                           "c.json: \"model\": unknown model '" + std::string(58, 'y') + "'"}});
}

}  // namespace
}  // namespace halfscope
