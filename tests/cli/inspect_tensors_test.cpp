// SPDX-License-Identifier: MIT
// `halfscope inspect` on tensors: counts of values whose place in each format is known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/data/npz.h"
#include "tests/cli/program.h"

namespace halfscope {
namespace {

using nlohmann::json;
using test::Bench;
using test::Outcome;
using testing::HasSubstr;

TEST(CliInspectTensors, CountsWhatEachFormatLoses) {
  const Bench bench;
  // fp16 ends at 65504, is subnormal below 2^-14, and rounds 2^-25 and less to 0.
  write_npz(bench / "w.npz", {{"w", {{6}, {65504.0F, 65520.0F, 0x1p-15F, 0x1p-25F, 0.0F, -1.0F}}},
                              {"calm", {{2}, {1.0F, 2.0F}}}});
  const Outcome outcome = bench.run({"inspect", "w.npz", "--format", "fp16,bf16", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  ASSERT_EQ(result.at("tensors").size(), 2U);
  const json& worst = result["tensors"][0];
  EXPECT_EQ(worst.at("name"), "w") << "the worst comes first";
  EXPECT_EQ(worst.at("zeros"), 1);
  EXPECT_EQ(worst.at("distinct"), 6);
  EXPECT_EQ(worst.at("largest"), 65520.0);
  const json& fp16 = worst.at("formats").at(0);
  EXPECT_EQ(fp16.at("overflow"), 1);
  EXPECT_EQ(fp16.at("underflow"), 1);
  EXPECT_EQ(fp16.at("subnormal"), 1);
  const json& bf16 = worst.at("formats").at(1);
  EXPECT_EQ(bf16.at("overflow"), 0);
  EXPECT_EQ(bf16.at("underflow"), 0);
  EXPECT_EQ(result["tensors"][1]["formats"][0]["sqnr_db"], "inf") << "fp16 has these numbers";
}

TEST(CliInspectTensors, TheVerdictSaysWhichFormatIsBetter) {
  const Bench bench;
  write_npz(bench / "w.npz", {{"w", {{3}, {1e-9F, 2.0F, 7e4F}}}});
  const Outcome outcome = bench.run({"inspect", "w.npz", "--format", "fp16,bf16"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("\nfp16 loses values in 1 of 1 tensor"));
  EXPECT_THAT(outcome.out, HasSubstr("w overflows: 33% of its values are larger than 65504."));
  EXPECT_THAT(outcome.out, HasSubstr("\nbf16 is the better answer"));
}

TEST(CliInspectTensors, AMissingFileIsNoRunFile) {
  const Bench bench;
  for (const char* name : {"none.npy", "none.npz", "none.safetensors"}) {
    const Outcome outcome = bench.run({"inspect", name});
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(outcome.err, HasSubstr("file not found\nhint: check the path"));
  }
}

}  // namespace
}  // namespace halfscope
