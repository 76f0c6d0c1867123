// SPDX-License-Identifier: MIT
// `halfscope inspect` on tensors: counts of values whose place in each format is known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/data/npy.h"
#include "core/data/npz.h"
#include "tests/cli/bad_inputs.h"
#include "tests/cli/program.h"
#include "tests/data/zip_builder.h"

namespace halfscope {
namespace {

using nlohmann::json;
using test::Bench;
using test::Outcome;
using test::text_of;
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
  EXPECT_THAT(outcome.out, HasSubstr("w overflows: 33.3% of its values are larger than 65504."));
  EXPECT_THAT(outcome.out, HasSubstr("\nbf16 is the better answer"));
}

/// A tensor of `count` values, of which `small` become zero in fp16.
Tensor with_small_values(int64_t count, int64_t small, float size, float others) {
  Tensor tensor{{count}, std::vector<float>(static_cast<size_t>(count), others)};
  std::fill_n(tensor.data.begin(), small, size);
  return tensor;
}

TEST(CliInspectTensors, AFewSmallValuesAreNoLoss) {
  const Bench bench;
  const auto verdict = [&](const Tensor& tensor) {
    write_npz(bench / "w.npz", {{"w", tensor}});
    const Outcome outcome = bench.run({"inspect", "w.npz", "--format", "fp16"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  };
  constexpr float kSmall = 0x1p-26F;  // half of what fp16 rounds to zero
  EXPECT_THAT(verdict(with_small_values(1000, 10, kSmall, 1.0F)),
              HasSubstr("\nfp16 is enough: nothing overflows in 1 tensor. Few values underflow: at "
                        "most 1% of the nonzero values of a tensor (w) become zero"))
      << "one per cent is the limit";
  EXPECT_THAT(verdict(with_small_values(100000, 1, kSmall, 1.0F)),
              HasSubstr("Few values underflow: less than 0.01% of the nonzero values"));
  EXPECT_THAT(verdict(with_small_values(1000, 11, kSmall, 1.0F)),
              HasSubstr("\nfp16 loses values in 1 of 1 tensor"));
  // 5 of 1000 values, but 2^-52 * 5 / (2^-36 * 995) = 7.7e-8 of the energy is below u^2 = 2^-22 ...
  EXPECT_THAT(verdict(with_small_values(1000, 5, kSmall, 0x1p-18F)), HasSubstr("fp16 is enough"));
  // ... and 2^-52 * 5 / (2^-46 * 995) = 7.9e-5 is above it.
  EXPECT_THAT(verdict(with_small_values(1000, 5, kSmall, 0x1p-23F)),
              HasSubstr("\nfp16 loses values in 1 of 1 tensor"));
  // A single overflow is infinite.
  EXPECT_THAT(verdict(with_small_values(100000, 1, 1e6F, 1.0F)),
              HasSubstr("\nfp16 loses values in 1 of 1 tensor"));
  EXPECT_THAT(verdict(with_small_values(1000, 0, 0, 1.0F)),
              HasSubstr("fp16 is enough: nothing overflows or underflows in 1 tensor."));
}

/// Writes a .safetensors file with a weight and a batch counter.
void write_checkpoint(const std::filesystem::path& file, const std::string& kind_of_weight) {
  const std::string header =
      R"({"bn.num_batches_tracked":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
      R"("bn.weight":{"dtype":")" +
      kind_of_weight + R"(","shape":[1],"data_offsets":[8,12]}})";
  std::string bytes{static_cast<char>(header.size()), '\0', '\0', '\0', '\0', '\0', '\0', '\0'};
  const int64_t batches = 450360;  // 90 epochs of ImageNet
  const int32_t one = kind_of_weight == "I32" ? 1 : std::bit_cast<int32_t>(1.0F);
  bytes += header;
  bytes.append(reinterpret_cast<const char*>(&batches), sizeof(batches));
  bytes.append(reinterpret_cast<const char*>(&one), sizeof(one));
  test::write_text(file, bytes);
}

TEST(CliInspectTensors, ABatchCounterIsNotJudged) {
  const Bench bench;
  write_checkpoint(bench / "net.safetensors", "F32");
  const Outcome outcome = bench.run({"inspect", "net.safetensors", "--format", "fp16"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              HasSubstr("\nfp16 is enough: nothing overflows or underflows in 1 tensor"));
  EXPECT_THAT(outcome.out, HasSubstr("\n1 integer tensor is not judged"));
  const json tensors = json::parse(
      bench.run({"inspect", "net.safetensors", "--format", "fp16", "--json"}).out)["tensors"];
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors[0]["name"], "bn.weight") << "what is judged comes first";
  EXPECT_EQ(tensors[0]["judged"], true);
  EXPECT_EQ(tensors[1]["judged"], false);
  EXPECT_EQ(tensors[1]["formats"][0]["overflow"], 1) << "measured, but not judged";

  write_checkpoint(bench / "counts.safetensors", "I32");
  EXPECT_THAT(bench.run({"inspect", "counts.safetensors", "--format", "fp16"}).out,
              HasSubstr("\nfp16 loses values in 1 of 2 tensors. bn.num_batches_tracked overflows"))
      << "without floats, integers are what the question is about";
}

TEST(CliInspectTensors, BlockFormatsAreMeasured) {
  const Bench bench;
  // The tensor's scale is 2688 / (6 * 448) = 1. The first block of 16 has the scale 448, and what
  // is below a quarter of it becomes zero. The second block has a scale of its own.
  Tensor tensor{{32}, std::vector<float>(32, 1.0F)};
  tensor.data[0] = 2688.0F;
  tensor.data[1] = 100.0F;
  write_npz(bench / "w.npz", {{"w", tensor}});
  const Outcome outcome =
      bench.run({"inspect", "w.npz", "--format", "nvfp4,mxfp4,mxfp8_e4m3,mxfp8", "--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const json formats = json::parse(outcome.out)["tensors"][0]["formats"];
  ASSERT_EQ(formats.size(), 4U);
  EXPECT_EQ(formats[0]["underflow"], 15) << "the block of 2688, but for itself";
  EXPECT_EQ(formats[1]["underflow"], 31) << "mxfp4's block of 32 has the scale 512";
  EXPECT_EQ(formats[2]["underflow"], 0);
}

TEST(CliInspectTensors, ABombIsReadInPartsOrRefused) {
  const Bench bench;
  constexpr int kMebibytes = 600;
  const test::Bytes header = npy_header({int64_t{kMebibytes} << 18}, "<f4");
  test::ZipBuilder zip;
  zip.add(test::bomb("w.npy", header, kMebibytes));
  test::write_bytes(bench / "bomb.npz", zip.finish());
  EXPECT_LT(std::filesystem::file_size(bench / "bomb.npz"), uintmax_t{1} << 20);
  const pid_t child = bench.start({"inspect", "bomb.npz", "--format", "fp16,nvfp4"});
  int status = 0;
  rusage usage{};
  ASSERT_EQ(wait4(child, &status, 0, &usage), child);
  EXPECT_EQ(status, 0) << text_of(bench / "stderr.txt");
  EXPECT_THAT(text_of(bench / "stdout.txt"), HasSubstr("[157286400]"));
  EXPECT_LT(usage.ru_maxrss, 200 * 1024) << "KiB";
  const Outcome whole = bench.run({"diff", "bomb.npz", "bomb.npz"});
  EXPECT_EQ(whole.code, 2);
  EXPECT_THAT(whole.err, HasSubstr("compressed bytes expand to "));
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
