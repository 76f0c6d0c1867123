// SPDX-License-Identifier: MIT
// `halfscope mma-check` and `halfscope fprev`: results, exit codes, and what they say about files
// and words that are wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <nlohmann/json.hpp>

#include "cli/tasks/fprev_backend.h"
#include "cli/tasks/mma_formats.h"
#include "core/numeric/sum_orders/summation_tree.h"
#include "gpu/backends.h"
#include "tests/cli/bad_inputs.h"

namespace halfscope {
namespace {

using nlohmann::json;
using test::Bench;
using test::lines_of;
using test::Outcome;
using test::Words;
using test::write_text;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kHeader = "# gpu=V100 input=fp16 output=fp32 k=4; columns: a[k] b[k] c d\n";
/// 1.5 * 1.5 + 2^-12 * 2^-12 + ... = 2.25 + 2^-22; d is right.
constexpr const char* kRight =
    "3fc00000 39800000 00000000 00000000 3fc00000 39800000 00000000 00000000 00000000 40100000\n";
constexpr const char* kWrong =
    "3f800000 00000000 00000000 00000000 3f800000 00000000 00000000 00000000 3f800000 40000001\n";
constexpr const char* kNan =
    "7f800000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 3f800000 7fc00000\n";

void write_gz(const std::filesystem::path& path, const std::string& text) {
  const gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
}

TEST(CliMmaCheck, CountsMismatches) {
  const Bench bench;
  write_text(bench / "V100_fp16_fp32.txt", std::string(kHeader) + kRight + "\n" + kNan);
  write_gz(bench / "x.txt.gz", std::string(kHeader) + kRight + kWrong + kWrong);
  const Outcome good = bench.run({"mma-check", "V100_fp16_fp32.txt"});
  EXPECT_EQ(good.code, 0) << good.err << good.out;
  EXPECT_THAT(good.out, HasSubstr("1 file, 2 vectors, 0 mismatches\n"));
  const Outcome bad = bench.run({"mma-check", "x.txt.gz", "V100_fp16_fp32.txt", "--show", "1"});
  EXPECT_EQ(bad.code, 1) << bad.err;
  EXPECT_THAT(bad.out, HasSubstr("2 files, 5 vectors, 2 mismatches\n"));
  EXPECT_THAT(bad.out, HasSubstr("x.txt.gz, line 3: expected 40000001 (2.0000002), got 40000000"));
  EXPECT_THAT(bad.out, testing::Not(HasSubstr("line 4")));
  // Another accumulator reads c as fp16; another chip keeps more bits.
  EXPECT_EQ(bench.run({"mma-check", "V100_fp16_fp32.txt", "--arch", "T4"}).code, 0);
  EXPECT_EQ(
      bench.run({"mma-check", "V100_fp16_fp32.txt", "--arch", "ada", "--output", "fp16"}).code, 0);
}

TEST(CliMmaCheck, NamesTellWhereHeadersDoNot) {
  const Bench bench;
  write_text(bench / "H200_E5M2_fp32.txt", std::string("# k=4\r\n") + kRight);
  write_text(bench / "plain.txt", std::string("# k=4\n") + kRight);
  write_text(bench / "RTX_4090_fp16_fp32.txt", std::string("# k=4\n") + kRight);
  const Outcome named = bench.run({"mma-check", "H200_E5M2_fp32.txt", "--input", "fp16"});
  EXPECT_EQ(named.code, 0) << named.err;
  EXPECT_THAT(named.out, HasSubstr("h100"));
  const Outcome plain = bench.run({"mma-check", "plain.txt"});
  EXPECT_EQ(plain.code, 2);
  EXPECT_THAT(plain.err, HasSubstr("plain.txt: neither its header nor its name says"));
  EXPECT_EQ(
      bench.run({"mma-check", "plain.txt", "--arch", "a2", "--input", "FP16", "--output", "fp32"})
          .code,
      0);
  const Outcome unknown = bench.run({"mma-check", "RTX_4090_fp16_fp32.txt"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("unknown tensor core 'RTX_4090'"));
  EXPECT_THAT(unknown.err, HasSubstr("did you mean rtx4090?"));
}

// fp8 in fp32 from Hopper is assumed to be wgmma with an unused c, unless --arch says otherwise.
TEST(CliMmaCheck, HoppersFp8) {
  const Bench bench;
  std::string zeros;
  for (int k = 0; k < 64; ++k) zeros += "00000000 ";
  write_text(bench / "H100_E4M3_fp32.txt", "# k=32\n" + zeros + "3f800000 00000000\n");
  const Outcome wgmma = bench.run({"mma-check", "H100_E4M3_fp32.txt"});
  EXPECT_EQ(wgmma.code, 0) << wgmma.out;
  EXPECT_THAT(wgmma.out, HasSubstr("h100-wgmma, c ignored"));
  EXPECT_EQ(bench.run({"mma-check", "H100_E4M3_fp32.txt", "--arch", "h100"}).code, 1);
  EXPECT_EQ(bench.run({"mma-check", "H100_E4M3_fp32.txt", "--arch", "h100-wgmma"}).code, 1);
  EXPECT_EQ(
      bench.run({"mma-check", "H100_E4M3_fp32.txt", "--arch", "h100-wgmma", "--ignore-c"}).code, 0);
}

TEST(CliMmaCheck, Json) {
  const Bench bench;
  write_text(bench / "v.txt", std::string(kHeader) + kRight + kWrong);
  const Outcome outcome = bench.run({"mma-check", "v.txt", "--json"});
  EXPECT_EQ(outcome.code, 1);
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result.at("schema"), "halfscope.mma-check/1");
  EXPECT_EQ(result.at("vectors"), 2);
  EXPECT_EQ(result.at("mismatches"), 1);
  const json& file = result.at("files").at(0);
  EXPECT_EQ(file.at("arch"), "v100");
  EXPECT_EQ(file.at("k"), 4);
  EXPECT_EQ(file.at("grade"), "A");
  EXPECT_EQ(file.at("first_mismatches").at(0),
            (json{{"line", 3}, {"expected", "40000001"}, {"got", "40000000"}}));
}

TEST(CliMmaCheck, WhatIsWrongWithAFile) {
  const Bench bench;
  const std::string header = kHeader, right = kRight;
  const std::string cut = right.substr(0, 50);
  std::filesystem::create_directories(bench / "folder");
  struct Case {
    std::string text;
    int code;
    std::string what;
  };
  const std::vector<Case> cases{
      {"", 3, "the file is empty"},
      {"\n\n", 3, "the file is empty"},
      {header, 3, "contains no vectors"},
      {right, 3, "line 1: no header with k="},
      {"# gpu=V100 input=fp16 output=fp32\n" + right, 3, "line 1: the header has no k="},
      {"# k=inf\n" + right, 3, "line 1: k='inf' in the header, expected 1 to 4096"},
      {"# k=nan\n" + right, 3, "k='nan'"},
      {"# k=0\n" + right, 3, "k='0'"},
      {"# k=-4\n" + right, 3, "k='-4'"},
      {"# k=1e3\n" + right, 3, "k='1e3'"},
      {"# k=99999999999999999999\n" + right, 3, "k='99999999999999999999'"},
      {header + right + cut, 3, "line 3: word 6 is '39800', expected 8 hex digits"},
      {header + right + right.substr(0, 45) + "\n", 3,
       "line 3: found 5 numbers, expected 10 for k=4"},
      {header + right.substr(0, right.size() - 1) + " 00000000\n", 3, "line 2: found 11 numbers"},
      {header + "zzzzzzzz " + right, 3, "line 2: word 1 is 'zzzzzzzz'"},
      {header + "0x3f800000 " + right, 3, "word 1 is '0x3f800000'"},
      {header + std::string("\0\1\2\xff\xfe garbage", 13) + "\n", 3, "line 2: word 1 is '????"},
      {header + std::string(200000, '0'), 3, "line 2: the line is longer than"},
      {header + std::string(200000, ' ') + "\n", 3, "line 2: the line is longer than"},
      {header + "3f800001 " + right.substr(9), 3, "line 2: a[0] = 3f800001 is not a value of fp16"},
      {header + "49800000 " + right.substr(9), 3, "line 2: a[0] = 49800000 is not a value of fp16"},
      {"# gpu=V100 input=fp16 output=bf16 k=4\n" + right, 2, "v100 has no tensor-core instruction"},
      {"# gpu=V100 input=bf16 output=fp32 k=4\n" + right, 2, "bf16 operands and fp32 results"},
      {"# gpu=X100 input=fp16 output=fp32 k=4\n" + right, 2, "unknown tensor core 'X100'"},
      {"# gpu=V100 input=fp17 output=fp32 k=4\n" + right, 2, "unknown format 'fp17'"},
      {std::string("\x1f\x8b\x08\0\0\0\0\0\0\3garbage", 17), 3, "the gzip stream is damaged"},
  };
  for (const Case& each : cases) {
    write_text(bench / "x.txt", each.text);
    SCOPED_TRACE(each.what);
    const Outcome outcome = bench.run({"mma-check", "x.txt"});
    EXPECT_EQ(outcome.code, each.code) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    const Words lines = lines_of(outcome.err);
    ASSERT_EQ(lines.size(), 2u) << outcome.err;
    EXPECT_THAT(lines[0], StartsWith("halfscope: "));
    EXPECT_THAT(lines[0], HasSubstr("x.txt"));
    EXPECT_THAT(lines[0] + lines[1], HasSubstr(each.what));
    EXPECT_THAT(lines[1], StartsWith("hint: "));
  }
  write_gz(bench / "whole.gz", header + right);
  write_text(bench / "cut.gz", test::text_of(bench / "whole.gz").substr(0, 60));
  EXPECT_EQ(bench.run({"mma-check", "cut.gz"}).code, 3);
  EXPECT_EQ(bench.run({"mma-check", "nothing.gz"}).code, 3);
  EXPECT_EQ(bench.run({"mma-check", "folder"}).code, 3);
  EXPECT_EQ(bench.run({"mma-check"}).code, 2);
  EXPECT_EQ(bench.run({"mma-check", "whole.gz", "--show", "x"}).code, 2);
}

TEST(CliFprev, NamesStructures) {
  const Bench bench;
  const std::pair<Words, const char*> cases[] = {
      {{"fprev"}, "structure  one ascending chain\n"},
      {{"fprev", "--model", "fp64"}, "structure  one ascending chain\n"},
      {{"fprev", "--model", "fp64", "--n", "4096"}, "structure  one ascending chain\n"},
      {{"fprev", "--model", "fp64:split-k=2", "--n", "1000"},
       "structure  2 parts of 500, each one ascending chain, summed in order\n"},
      {{"fprev", "--model", "format"}, "structure  one ascending chain\n"},
      {{"fprev", "--model", "fma32-then-round", "--n", "333"}, "structure  one ascending chain\n"},
      {{"fprev", "--model", "pairwise"}, "structure  pairwise\n"},
      {{"fprev", "--model", "interleaved16", "--n", "100"},
       "structure  16 parts of 7, dealt out in turn in runs of 1, each one ascending chain, summed "
       "as a balanced tree\n"},
      {{"fprev", "--model", "fp32:split-k=4"},
       "structure  4 parts of 16, each one ascending chain, summed in order\n"},
      {{"fprev", "--model", "format:promote=16"},
       "structure  4 parts of 16, each one ascending chain, summed in order\n"},
      {{"fprev", "--model", "tensor-core:h100"},
       "structure  one ascending chain of blocks of 16\n"},
      {{"fprev", "--model", "tensor-core:h100-wgmma,promote=32", "--input", "e4m3"},
       "structure  2 parts of 32, each one block of 32, summed in order\n"},
      {{"fprev", "--model", "V100"}, "structure  one ascending chain of blocks of 4\n"},
      {{"fprev", "--model", "h100-wgmma", "--input", "e4m3", "--output", "fp16"},
       "structure  one ascending chain of blocks of 32\n"},
      {{"fprev", "--model", "a100", "--input", "tf32", "--split-k", "2"},
       "structure  2 parts of 32, each one ascending chain of blocks of 4, summed in order\n"},
      {{"fprev", "--model", "ada", "--input", "e5m2", "--promote", "32"},
       "structure  2 parts of 32, each one ascending chain of blocks of 16, summed in order\n"},
      {{"fprev", "--backend", "emulated", "--rows", "3", "--columns", "5"},
       "structure  one ascending chain\n"},
      {{"fprev", "--backend", "emulated", "--model", "tensor-core:a100", "--input", "bf16"},
       "structure  one ascending chain of blocks of 8\n"},
      {{"fprev", "--backend", "emulated", "--model", "pairwise", "--input", "e4m3", "--n", "256"},
       "structure  pairwise\n"}};
  for (const auto& [words, structure] : cases) {
    const Outcome outcome = bench.run(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr(structure));
  }
}

// The kernels of the GPU backend, on the host: every product is 2 x 3, so that probes take many.
TEST(CliFprev, LooksIntoAnyBackend) {
  const struct {
    const char *accumulation, *input, *structure;
  } cases[] = {
      {"fp32", "fp32", "one ascending chain"},
      {"fp32:split-k=2", "fp32", "2 parts of 24, each one ascending chain, summed in order"},
      {"tensor-core:h100", "fp16", "one ascending chain of blocks of 16"},
      {"tensor-core:ada", "e4m3", "one ascending chain of blocks of 16"},
  };
  for (const auto& each : cases) {
    for (const Backend* backend : {&host_executor_backend(), &shuffled_executor_backend()}) {
      const bool narrow = std::string(each.input) == "e4m3";
      BackendProduct product(*backend, {.rows = 2,
                                        .columns = 3,
                                        .k = 48,
                                        .input = mma_format("test", each.input),
                                        .accumulation = *parse_accumulation(each.accumulation)});
      const RecoveredTree found = recover_summation_tree(
          48,
          [&](std::span<const float> a, std::span<const float> b, int64_t, int64_t,
              std::span<float> out) { product.dot(a, b, out); },
          narrow ? FprevValues{0x1p8f, 0x1p8f, 0x1p-9f, 0x1p-9f}
                 : FprevValues{0x1p15f, 0x1p15f, 0x1p-14f, 0x1p-14f});
      EXPECT_EQ(found.problem, "") << each.accumulation;
      EXPECT_EQ(describe(found.tree), each.structure) << each.accumulation;
      EXPECT_EQ(product.kernel(), "own kernel");
    }
  }
}

TEST(CliFprev, Json) {
  const Bench bench;
  const Outcome outcome = bench.run({"fprev", "--model", "v100", "--n", "8", "--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result.at("schema"), "halfscope.fprev/1");
  EXPECT_EQ(result.at("tree"), "((0 1 2 3) 4 5 6 7)");
  EXPECT_EQ(result.at("n"), 8);
  EXPECT_EQ(result.at("plan").at("split_k"), 1);
  EXPECT_TRUE(result.at("backend").is_null());
  const json probed = json::parse(bench.run({"fprev", "--backend", "emulated", "--json"}).out);
  EXPECT_EQ(probed.at("backend"), "emulated");
  EXPECT_TRUE(probed.at("plan").is_null());
  const json split = json::parse(
      bench.run({"fprev", "--model", "tensor-core:h100,split-k=2,promote=16", "--json"}).out);
  EXPECT_EQ(split.at("plan").at("split_k"), 2);
  EXPECT_EQ(split.at("plan").at("promote"), 16);
}

TEST(CliFprev, WrongWords) {
  const Bench bench;
  const std::pair<Words, const char*> cases[] = {
      {{"--model", "h10"}, "unknown model 'h10'"},
      {{"--n", "1"}, "--n 1: out of range"},
      {{"--n", "5000"}, "--n 5000: out of range"},
      {{"--model", "format", "--n", "2049"}, "at most 2048 summands"},
      {{"--model", "h100", "--input", "e4m3", "--n", "513"}, "at most 512 summands"},
      {{"--model", "h100", "--input", "fp32"}, "no tensor-core instruction with fp32 operands"},
      {{"--model", "h100", "--input", "fp17"}, "unknown format 'fp17'"},
      {{"--model", "v100", "--input", "bf16"}, "v100 has no tensor-core instruction"},
      {{"--model", "b200-tcgen05", "--input", "e2m1"}, "range is too narrow"},
      {{"--split-k", "2"}, "are for tensor cores"},
      {{"--model", "fp32", "--input", "fp16"}, "--input is for tensor cores"},
      {{"--model", "fp32", "--promote", "16"}, "are for tensor cores"},
      {{"--model", "a100", "--split-k", "0"}, "--split-k 0: out of range"},
      {{"--rows", "8"}, "--rows and --columns need a backend"},
      {{"--backend", "cpu"}, "unknown backend 'cpu'"},
      {{"--backend", "emulated", "--model", "h100"}, "cannot show the order of 'h100'"},
      {{"--backend", "emulated", "--model", "fp64"}, "cannot show the order of 'fp64'"},
      {{"--backend", "emulated", "--model", "tensor-core:h100,acc=fp16", "--input", "fp16"},
       "cannot show the order of"},
      {{"--backend", "emulated", "--split-k", "2"}, "do not work with --backend"},
      {{"--backend", "emulated", "--input", "e2m1"}, "range is too narrow"},
      {{"--backend", "emulated", "--input", "e4m3", "--n", "257"}, "at most 256 summands"},
      {{"x"}, "unexpected argument 'x'"},
  };
  for (const auto& [more, what] : cases) {
    Words words{"fprev"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = bench.run(words);
    EXPECT_EQ(outcome.code, 2) << what;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr(what));
    EXPECT_LE(lines_of(outcome.err).size(), 2u);
  }
}

}  // namespace
}  // namespace halfscope
