// SPDX-License-Identifier: MIT
// Dimensions of products and the requirements of tensor cores, compared with numbers computed by
// hand from the networks' definitions and the table of NVIDIA's guide.
#include "analysis/cost/tensor_core_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "core/data/zip.h"
#include "core/error.h"
#include "core/models/models.h"
#include "core/onnx/import.h"
#include "core/policy/policy.h"
#include "gpu/device_info.h"

namespace halfscope {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Path, operator, products side by side, M, N, K.
using Row = std::tuple<std::string, std::string, int64_t, int64_t, int64_t, int64_t>;

std::vector<TensorCoreFit> fits_of(const Model& model, const Plan& plan) {
  return tensor_core_fits(lower_inference(model, plan));
}
std::vector<TensorCoreFit> fits_of(const Model& model, const std::string& plan) {
  return fits_of(model, preset_plan(plan).value());
}

std::vector<Row> rows_of(const std::vector<TensorCoreFit>& fits) {
  std::vector<Row> rows;
  for (const TensorCoreFit& fit : fits) {
    rows.emplace_back(fit.path, fit.op, fit.products, fit.sizes[0].size, fit.sizes[1].size,
                      fit.sizes[2].size);
  }
  return rows;
}

/// The advice of every layer that does not fit, by path.
std::map<std::string, std::vector<std::string>> advice_of(const std::vector<TensorCoreFit>& fits) {
  std::map<std::string, std::vector<std::string>> advice;
  for (const TensorCoreFit& fit : fits) {
    if (!fit.fits()) advice[fit.path] = fit.advice();
  }
  return advice;
}

/// A file of tests/oracle/onnx_nodes.py.
Model node_case(const std::string& name) {
  const std::string file = HALFSCOPE_SOURCE_DIR "/tests/onnx/files/nodes.zip";
  const ZipReader archive(read_file(file), file);
  for (const ZipMember& member : archive.members()) {
    if (member.name != name + ".onnx") continue;
    std::vector<uint8_t> bytes(member.size);
    archive.open(member)->read(bytes);
    return parse_onnx(bytes, name, ".").model;
  }
  throw Error("no " + name);
}

TEST(TensorCoreInputs, AreMultiplesOf16And128Bytes) {
  const auto input = [](const FloatFormat& format, const char* scale = "none") {
    return tensor_core_input(format, parse_scale(scale).value());
  };
  EXPECT_EQ(input(kFp16), (TensorCoreInput{"fp16", 8, 64, false}));
  EXPECT_EQ(input(kBf16), (TensorCoreInput{"bf16", 8, 64, false}));
  EXPECT_EQ(input(kTf32), (TensorCoreInput{"tf32", 4, 32, false}));
  for (const FloatFormat& format : {kE4m3fn, kE5m2}) {
    for (const char* scale : {"none", "current", "delayed", "static:0.5", "block:128"}) {
      EXPECT_EQ(input(format, scale), (TensorCoreInput{"fp8", 16, 128, true})) << scale;
    }
    EXPECT_EQ(input(format, "mx"), (TensorCoreInput{"mxfp8", 32, 128, true}));
  }
  EXPECT_EQ(input(kE2m1, "mx"), (TensorCoreInput{"fp4", 32, 256, true}));
  EXPECT_EQ(input(kE2m1, "nvfp4"), (TensorCoreInput{"fp4", 32, 256, true}));
  EXPECT_FALSE(input(kE2m1));
  for (const FloatFormat& format : {kFp32, kE4m3fnuz, kE5m2fnuz, FloatFormat{3, 2, 3}}) {
    EXPECT_FALSE(input(format)) << format_name(format);
  }
}

TEST(TensorCoreInputs, AreThoseOfTheDevice) {
  const GpuDevice volta{"", 7, 0}, ampere{"", 8, 0}, ada{"", 8, 9}, blackwell{"", 10, 0};
  const auto has = [](const GpuDevice& device, const FloatFormat& format,
                      const char* scale = "none") {
    const auto input = tensor_core_input(format, parse_scale(scale).value());
    return has_tensor_cores(device, input->name);
  };
  EXPECT_TRUE(has(volta, kFp16));
  EXPECT_FALSE(has(volta, kBf16));
  EXPECT_TRUE(has(ampere, kTf32));
  EXPECT_FALSE(has(ampere, kE4m3fn));
  EXPECT_TRUE(has(ada, kE4m3fn));
  EXPECT_FALSE(has(ada, kE4m3fn, "mx"));
  EXPECT_TRUE(has(blackwell, kE4m3fn, "mx"));
  EXPECT_TRUE(has(blackwell, kE2m1, "nvfp4"));
}

TEST(TensorCoreFits, Lenet) {
  // 28 - 5 + 1 = 24, halved 12; 12 - 5 + 1 = 8, halved 4; 64 * 4 * 4 = 1024.
  const std::vector<TensorCoreFit> fits =
      fits_of(build_network("lenet", 100, {1, 28, 28}, 10), "mixed_float16");
  EXPECT_EQ(rows_of(fits), (std::vector<Row>{{"conv1", "Conv", 1, 100 * 24 * 24, 32, 1},
                                             {"conv2", "Conv", 1, 100 * 8 * 8, 64, 32},
                                             {"fc1", "Gemm", 1, 100, 256, 1024},
                                             {"fc2", "Gemm", 1, 100, 10, 256}}));
  for (const TensorCoreFit& fit : fits) EXPECT_EQ(fit.read, kFp16) << fit.path;
  EXPECT_FALSE(fits[0].fits());
  EXPECT_TRUE(fits[1].fits());  // 6400 pixels do not matter, nor would 6401
  EXPECT_FALSE(fits[1].fits_best());
  EXPECT_FALSE(fits[1].sizes[0].matters);
  EXPECT_THAT(fits[0].advice(), ElementsAre("1 input channel: pad to 8"));
  EXPECT_THAT(fits[1].advice(), IsEmpty());
  EXPECT_THAT(fits[2].advice(), ElementsAre("100 rows: pad to 104"));
  EXPECT_THAT(fits[3].advice(), ElementsAre("100 rows: pad to 104", "10 outputs: pad to 16"));
}

TEST(TensorCoreFits, OddNumbersOfPixelsFit) {
  // conv2 of an image of 18 x 18: 18 - 4 = 14, halved 7, 7 - 4 = 3; 3 samples of 3 x 3 pixels.
  const std::vector<TensorCoreFit> fits =
      fits_of(build_network("lenet", 3, {8, 18, 18}, 10), "mixed_bfloat16");
  EXPECT_EQ(fits[1].sizes[0].size, 27);
  EXPECT_TRUE(fits[0].fits());
  EXPECT_TRUE(fits[1].fits());
}

TEST(TensorCoreFits, Mlp) {
  const Model model = build_network("mlp:784-512-512-10", 128, {784}, 10);
  const std::vector<Row> rows{{"fc1", "Gemm", 1, 128, 512, 784},
                              {"fc2", "Gemm", 1, 128, 512, 512},
                              {"fc3", "Gemm", 1, 128, 10, 512}};
  const std::vector<TensorCoreFit> half = fits_of(model, "mixed_float16");
  EXPECT_EQ(rows_of(half), rows);
  EXPECT_TRUE(half[0].fits());
  EXPECT_FALSE(half[0].fits_best());  // 784 = 12 * 64 + 16
  EXPECT_TRUE(half[1].fits_best());
  EXPECT_THAT(half[2].advice(), ElementsAre("10 outputs: pad to 16"));
  const std::vector<TensorCoreFit> eight = fits_of(model, "fp8_current");
  EXPECT_EQ(rows_of(eight), rows);
  EXPECT_EQ(eight[0].input.value().name, "fp8");
  EXPECT_TRUE(eight[0].fits());  // 784 = 49 * 16
  EXPECT_TRUE(eight[1].fits_best());
  // 784 = 24 * 32 + 16
  EXPECT_EQ(advice_of(fits_of(model, "mxfp8"))["fc1"],
            std::vector<std::string>{"784 inputs: pad to 800"});
  EXPECT_EQ(advice_of(fits_of(model, "nvfp4"))["fc1"],
            std::vector<std::string>{"784 inputs: pad to 800"});
}

TEST(TensorCoreFits, LayersInFp32HaveNoTensorCores) {
  Plan plan = preset_plan("mixed_float16").value();
  keep_fp32(plan, "fc1");
  const std::vector<TensorCoreFit> fits = fits_of(build_network("mlp:8-16-8", 8, {8}, 8), plan);
  EXPECT_EQ(fits[0].read, kFp32);
  EXPECT_FALSE(fits[0].input);
  EXPECT_FALSE(fits[0].fits());
  EXPECT_THAT(fits[0].advice(), IsEmpty());
  EXPECT_TRUE(fits[1].fits());
  for (const TensorCoreFit& fit : fits_of(build_network("mlp:8-16-8", 8, {8}, 8), "float32")) {
    EXPECT_FALSE(fit.input) << fit.path;
  }
}

TEST(TensorCoreFits, Resnet20) {
  const std::vector<TensorCoreFit> fits =
      fits_of(build_network("resnet20", 128, {3, 32, 32}, 10), "mixed_float16");
  ASSERT_EQ(fits.size(), 20u);  // 1 + 3 * 3 * 2 convolutions and the classifier
  const std::vector<Row> rows = rows_of(fits);
  EXPECT_EQ(rows[0], (Row{"conv1", "Conv", 1, 128 * 32 * 32, 16, 3}));
  EXPECT_EQ(rows[1], (Row{"layer1/0/conv1", "Conv", 1, 128 * 32 * 32, 16, 16}));
  EXPECT_EQ(rows[7], (Row{"layer2/0/conv1", "Conv", 1, 128 * 16 * 16, 32, 16}));
  EXPECT_EQ(rows[8], (Row{"layer2/0/conv2", "Conv", 1, 128 * 16 * 16, 32, 32}));
  EXPECT_EQ(rows[13], (Row{"layer3/0/conv1", "Conv", 1, 128 * 8 * 8, 64, 32}));
  EXPECT_EQ(rows[18], (Row{"layer3/2/conv2", "Conv", 1, 128 * 8 * 8, 64, 64}));
  EXPECT_EQ(rows[19], (Row{"linear", "Gemm", 1, 128, 10, 64}));
  EXPECT_EQ(advice_of(fits),
            (std::map<std::string, std::vector<std::string>>{
                {"conv1", {"3 input channels: pad to 8"}}, {"linear", {"10 outputs: pad to 16"}}}));
  EXPECT_TRUE(fits[18].fits_best());
  EXPECT_FALSE(fits[13].fits_best());
}

TEST(TensorCoreFits, Transformer) {
  // Two sequences of 5, width 8, two heads of 4, 11 words; the head is the transposed embedding.
  const std::vector<TensorCoreFit> fits = fits_of(node_case("transformer"), "mixed_float16");
  EXPECT_EQ(rows_of(fits), (std::vector<Row>{{"qkv", "MatMul", 1, 10, 24, 8},
                                             {"mix/scores", "MatMul", 4, 5, 5, 4},
                                             {"mix/mix", "MatMul", 4, 5, 4, 5},
                                             {"project", "MatMul", 1, 10, 8, 8},
                                             {"lm_head", "MatMul", 1, 10, 11, 8}}));
  EXPECT_EQ(
      advice_of(fits),
      (std::map<std::string, std::vector<std::string>>{
          {"qkv", {"10 rows: pad to 16"}},
          {"mix/scores", {"5 rows: pad to 8", "5 columns: pad to 8", "4 summed terms: pad to 8"}},
          {"mix/mix", {"5 rows: pad to 8", "4 columns: pad to 8", "5 summed terms: pad to 8"}},
          {"project", {"10 rows: pad to 16"}},
          {"lm_head", {"10 rows: pad to 16", "11 outputs: pad to 16"}}}));
}

TEST(TensorCoreFits, TransposedConvolutionInGroups) {
  // x [2, 4, 3, 4], w [4, 3, 3, 3] in two groups: 2 channels to 3 in each. Rows: 2 * 2 + 3 - 1,
  // columns: 3 + (2 * 2 + 1) - 3.
  const std::vector<TensorCoreFit> fits =
      fits_of(node_case("conv_transpose_grouped"), "mixed_float16");
  EXPECT_EQ(rows_of(fits),
            (std::vector<Row>{{fits.at(0).path, "ConvGradInput", 2, 2 * 6 * 5, 3, 2}}));
  EXPECT_THAT(fits[0].advice(), ElementsAre("3 output channels in each group: pad to 8",
                                            "2 input channels in each group: pad to 8"));
}

TEST(TensorCoreFits, DepthwiseConvolution) {
  Model model;
  const ValueId x = model.graph.add_input("x", {2, 16, 5, 5});
  const ValueId w = model.graph.add_variable("deep.weight", {16, 1, 3, 3}, {});
  model.outputs = {{"y", model.graph.add1("Conv", "deep", {x, w}, {{"group", int64_t{16}}})}};
  const std::vector<TensorCoreFit> fits = fits_of(model, "mixed_float16");
  EXPECT_EQ(rows_of(fits), (std::vector<Row>{{"deep", "Conv", 16, 2 * 3 * 3, 1, 1}}));
  EXPECT_FALSE(fits[0].fits());
  EXPECT_THAT(fits[0].advice(),
              ElementsAre("1 channel in each group: no matrices for tensor cores"));
}

TEST(TensorCoreFits, WeightsBehindAReshapeAreWeights) {
  Model model;
  const ValueId x = model.graph.add_input("x", {8, 24});
  const ValueId w = model.graph.add_variable("w", {2, 3, 4, 5}, {});
  const ValueId flat =
      model.graph.add1("Reshape", "flat", {w}, {{"shape", std::vector<int64_t>{24, 5}}});
  model.outputs = {{"y", model.graph.add1("MatMul", "times", {x, flat})}};
  EXPECT_THAT(fits_of(model, "mixed_float16").at(0).advice(), ElementsAre("5 outputs: pad to 8"));
}

TEST(TensorCoreFits, WeightsMayStandOnTheLeft) {
  Model model;
  const ValueId x = model.graph.add_input("x", {24, 3});
  const ValueId w = model.graph.add_variable("w", {5, 24}, {});
  model.outputs = {{"y", model.graph.add1("MatMul", "times", {w, x})}};
  EXPECT_THAT(fits_of(model, "mixed_float16").at(0).advice(),
              ElementsAre("5 outputs: pad to 8", "3 columns: pad to 8"));
}

}  // namespace
}  // namespace halfscope
