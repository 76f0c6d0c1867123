// SPDX-License-Identifier: MIT
// `halfscope plan show|explain` with a TensorFlow graph: text, JSON and errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace halfscope {
namespace {

using nlohmann::json;
using test::Bench;
using test::Outcome;
using testing::HasSubstr;

constexpr const char* kPrefix = "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_";

std::string graph_file(const std::string& name) {
  const std::filesystem::path files =
      std::filesystem::path(HALFSCOPE_SOURCE_DIR) / "tests/policy/files/tf_amp";
  return (files / (name + ".pb")).string();
}

TEST(TfAmpCommand, ShowCountsOperatorsCastsAndLogLine) {
  const Bench bench;
  const Outcome got = bench.run({"plan", "show", "tf-amp", "--model", graph_file("mlp_training")});
  EXPECT_EQ(got.code, 0) << got.err;
  EXPECT_THAT(got.out, HasSubstr("MatMul                               allow        8        0\n"));
  EXPECT_THAT(got.out, HasSubstr("Casts: 14 to float16 (3 of them not of constants and variables), "
                                 "6 to float32\n"));
  EXPECT_THAT(got.out, HasSubstr("Converted 23/74 nodes to float16 precision using 3 cast(s)"));
  EXPECT_THAT(got.out, HasSubstr("Total nodes converted: 23\n"));
  EXPECT_THAT(got.out, HasSubstr("Fed or fetched, so not changed: add, step, t, x\n"));
}

TEST(TfAmpCommand, ExplainSaysWhyAndWhatWouldChangeIt) {
  const Bench bench;
  const Outcome got =
      bench.run({"plan", "explain", "tf-amp", "Tanh", "--model", graph_file("mlp_training")});
  EXPECT_EQ(got.code, 0) << got.err;
  EXPECT_THAT(got.out, HasSubstr("Tanh (Tanh): T becomes float16.\n"));
  EXPECT_THAT(got.out, HasSubstr("b_mm (MatMul) -> b_bias (BiasAdd) -> Tanh (Tanh) -> c_mm"));
  EXPECT_THAT(got.out, HasSubstr("To change it: Remove Tanh from the infer list.\n    " +
                                 std::string(kPrefix) + "INFERLIST_REMOVE=Tanh\n"));
}

TEST(TfAmpCommand, JsonHasEveryNode) {
  const Bench bench;
  const Outcome got =
      bench.run({"plan", "show", "tf-amp-bf16", "--model", graph_file("resnet_block"), "--json"});
  EXPECT_EQ(got.code, 0) << got.err;
  const json out = json::parse(got.out);
  EXPECT_EQ(out.at("schema"), "halfscope.tf-amp/1");
  EXPECT_EQ(out.at("nodes").size(), 125u);
  size_t changed = 0;
  for (const json& node : out.at("nodes")) {
    for (const json& attribute : node.at("attributes")) {
      changed += attribute.at("type") == "bfloat16" ? 1 : 0;
      EXPECT_NE(attribute.at("why"), "");
    }
  }
  EXPECT_EQ(changed, 27u);
}

TEST(TfAmpCommand, ReadsTensorFlowsVariables) {
  const Bench bench;
  const std::vector<std::string> words{"plan", "explain", "tf-amp",
                                       "Relu", "--model", graph_file("mlp_forward")};
  EXPECT_THAT(bench.run(words).out, HasSubstr("becomes float16"));
  EXPECT_THAT(bench.run(words, std::string(kPrefix) + "CLEARLIST_REMOVE=Relu").out,
              HasSubstr("Relu is on none of the lists."));
  const Outcome got = bench.run(words, std::string(kPrefix) + "INFERLIST_ADD=Exp");
  EXPECT_EQ(got.code, 2);
  EXPECT_THAT(got.err, HasSubstr("operator 'Exp' is on the infer list and on the deny list\n"));
}

TEST(TfAmpCommand, BadInputIsOneClearLine) {
  const Bench bench;
  const auto run = [&](const std::string& plan, const std::string& file) {
    return bench.run({"plan", "show", plan, "--model", file});
  };
  Outcome got = run("mixed_float16", graph_file("mlp_forward"));
  EXPECT_EQ(got.code, 2);
  EXPECT_THAT(got.err, HasSubstr("a TensorFlow graph has no plan 'mixed_float16'\nhint: "));
  got = run("tf-amp", "nowhere.pb");
  EXPECT_EQ(got.code, 3);
  EXPECT_EQ(got.err,
            "halfscope: cannot read 'nowhere.pb': file not found\n"
            "hint: check the path and its permissions\n");
  got = bench.run({"plan", "explain", "tf-amp", "nobody", "--model", graph_file("mlp_forward")});
  EXPECT_EQ(got.code, 2);
  EXPECT_THAT(got.err, HasSubstr("matches 'nobody'\nhint: "));
  got = bench.run({"plan", "explain", "tf-amp", "MatMull", "--model", graph_file("mlp_forward")});
  EXPECT_THAT(got.err, HasSubstr("matches 'MatMull'\nhint: did you mean MatMul?"));
  std::filesystem::create_directories(bench / "folder");
  std::ofstream(bench / "t.pbtxt") << "node {\n}\n";
  std::ofstream(bench / "empty.pb").flush();
  EXPECT_THAT(run("tf-amp", "folder").err, HasSubstr("folder 'folder' has no saved_model.pb\n"));
  EXPECT_THAT(run("tf-amp", "t.pbtxt").err,
              HasSubstr("'t.pbtxt' is text, not a binary GraphDef\n"));
  EXPECT_THAT(run("tf-amp", "empty.pb").err, HasSubstr("'empty.pb' is empty\nhint: "));
  got = bench.run({"plan", "diff", "tf-amp", "tf-amp", "--model", graph_file("mlp_forward")});
  EXPECT_EQ(got.code, 2);
  EXPECT_THAT(got.err, HasSubstr("plan diff cannot read a TensorFlow graph\nhint: "));
}

}  // namespace
}  // namespace halfscope
