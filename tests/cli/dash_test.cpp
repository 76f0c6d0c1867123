// SPDX-License-Identifier: MIT
// "-" as the name of a file that a command writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/onnx/import.h"
#include "core/policy/policy.h"
#include "tests/cli/program.h"

namespace halfscope {
namespace {

using test::Bench;
using test::Outcome;
using test::small_training;
using test::text_of;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST(CliDash, AResultGoesToStandardOutputAlone) {
  const Bench bench;
  ASSERT_EQ(bench.run(small_training({"--lanes", "float32,mixed_float16"})).code, 0);
  for (const char* form : {"--html", "--md", "--json", "--csv"}) {
    const std::string file = std::string("report") + form;
    ASSERT_EQ(bench.run({"report", "run.hscope", form, file}).code, 0);
    const Outcome piped = bench.run({"report", "run.hscope", form, "-"});
    EXPECT_EQ(piped.code, 0) << piped.err;
    EXPECT_EQ(piped.out, text_of(bench / file)) << form;
  }
  ASSERT_EQ(bench.run({"report", "run.hscope", "--steps", "steps.csv"}).code, 0);
  EXPECT_EQ(bench.run({"report", "run.hscope", "--steps", "-"}).out, text_of(bench / "steps.csv"));
  ASSERT_EQ(bench.run({"convert", "mlp:6-3", "--out", "net.onnx"}).code, 0);
  const Outcome network = bench.run({"convert", "mlp:6-3", "--out", "-"});
  EXPECT_EQ(network.out, text_of(bench / "net.onnx"));
  EXPECT_FALSE(std::filesystem::exists(bench / "-"));
}

TEST(CliDash, ThePlanIsOnStandardOutputAndTheTextBesideIt) {
  const Bench bench;
  ASSERT_EQ(bench
                .run({"train", "--model", "lenet-hot", "--steps", "8", "--batch", "32", "--lanes",
                      "float32,mixed_float16"})
                .code,
            0);
  const Outcome advice = bench.run({"diagnose", "run.hscope", "--out", "-"});
  ASSERT_EQ(advice.code, 0) << advice.err;
  EXPECT_EQ(resolve(plan_from_json(advice.out), "conv2", "Conv").read, kFp32);
  EXPECT_THAT(advice.err, HasSubstr("fix, not tried yet: Keep conv2 in fp32"));

  // The same as text to paste, and nothing else.
  const Outcome plan = bench.run({"diagnose", "run.hscope", "--fix-as", "plan"});
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_EQ(plan.out, advice.out);
  const Outcome pytorch = bench.run({"diagnose", "run.hscope", "--fix-as", "pytorch"});
  EXPECT_THAT(pytorch.out, StartsWith("import functools\n\nimport torch\n"));
  EXPECT_THAT(pytorch.out, HasSubstr("\n    \"conv2\",\n"));
  EXPECT_THAT(bench.run({"diagnose", "run.hscope", "--lane", "float32", "--fix-as", "keras"}).out,
              "# Nothing to change.\n");
}

TEST(CliDash, WhatNeedsAFileSaysSo) {
  const Bench bench;
  for (const char* flag : {"--out", "--checkpoint", "--save-weights"}) {
    const Outcome refused = bench.run({"train", flag, "-"});
    EXPECT_EQ(refused.code, 2) << flag;
    EXPECT_THAT(refused.err, HasSubstr("cannot be written to standard output")) << flag;
    EXPECT_THAT(refused.out, IsEmpty());
  }
  ASSERT_EQ(bench.run(small_training({})).code, 0);
  EXPECT_EQ(bench.run({"report", "run.hscope", "--md", "-", "--summary"}).code, 2);
  EXPECT_EQ(bench.run({"report", "run.hscope", "--md", "-", "--csv", "-"}).code, 2);
  EXPECT_EQ(bench.run({"diagnose", "run.hscope", "--out", "-", "--json"}).code, 2);
  EXPECT_EQ(bench.run({"diagnose", "run.hscope", "--fix-as", "plan", "--json"}).code, 2);
  const Outcome misspelt = bench.run({"diagnose", "run.hscope", "--fix-as", "pytorh"});
  EXPECT_EQ(misspelt.code, 2);
  EXPECT_THAT(misspelt.err, HasSubstr("--fix-as: unknown framework 'pytorh'\nhint: did you mean "
                                      "pytorch?\n"));
}

}  // namespace
}  // namespace halfscope
