// SPDX-License-Identifier: MIT
// Estimates from the published figures, by hand.
#include "analysis/cost/roofline.h"

#include <gmock/gmock.h>

#include "core/error.h"
#include "tests/cost/counted.h"

namespace halfscope {
namespace {

using testing::HasSubstr;

/// The first product of a layer, and its estimate.
struct Product {
  NodeWork work;
  Estimate time;
};

Product product_of(const std::string& model, const std::string& plan, const std::string& device,
                   int64_t batch, const Shape& sample, int64_t classes, const std::string& layer) {
  const PlanCost cost = cost_of_training(model, plan, batch, sample, classes);
  for (const NodeWork& work : cost.work) {
    if (work.layer == layer && work.is_product())
      return {work, estimate(cost.executable, work, find_device(device))};
  }
  throw std::runtime_error("no product in " + layer);
}

TEST(Roofline, LargeProductsTakeTheTimeOfTheirOperations) {
  const double flops = 2.0 * 4096 * 4096 * 4096;
  const auto seconds = [&](const char* plan, const char* device) {
    const Product each = product_of("mlp:4096-4096-4096", plan, device, 4096, {4096}, 4096, "fc1");
    EXPECT_EQ(each.time.limit, Limit::compute) << plan << device;
    return each.time.seconds;
  };
  EXPECT_DOUBLE_EQ(seconds("float32", "v100"), flops / (15.7e12 * kComputeShare));
  EXPECT_DOUBLE_EQ(seconds("mixed_float16", "v100"), flops / (125e12 * kComputeShare));
  EXPECT_DOUBLE_EQ(seconds("mixed_bfloat16", "a100"), flops / (312e12 * kComputeShare));
  EXPECT_DOUBLE_EQ(seconds("fp8_delayed", "h100"), flops / (1978.9e12 * kComputeShare));
  EXPECT_DOUBLE_EQ(seconds("mxfp8", "h100"), flops / (1978.9e12 * kComputeShare));
  EXPECT_DOUBLE_EQ(seconds("mixed_bfloat16", "tpu-v4"), flops / (275e12 * kComputeShare));
}

TEST(Roofline, FormatsWithoutUnitsRunOnOthers) {
  const Product bf16 =
      product_of("mlp:1024-1024-1024", "mixed_bfloat16", "v100", 4096, {1024}, 1024, "fc1");
  EXPECT_TRUE(bf16.time.use.no_unit);
  EXPECT_EQ(bf16.time.use.format, "fp32");
  const Product fp32 =
      product_of("mlp:1024-1024-1024", "float32", "tpu-v4", 4096, {1024}, 1024, "fc1");
  EXPECT_EQ(fp32.time.use.format, "bf16");
}

// int4 runs on its own units, on those for int8 if a device has no others, else as fp32.
TEST(Roofline, CodesOfFourBits) {
  const Model model = build_network("mlp:4096-4096-4096", 4096, {4096}, 4096);
  const PlanCost cost(
      "codes",
      lower_inference(
          model,
          plan_from_json(
              R"({"schema": "halfscope.plan/1", "name": "codes", "rules": [{"path": "*", "op": "Gemm",
          "read": "int4", "accumulate": "fp64", "scale": "divide:0.1",
          "second_scale": "channel"}]})")));
  const auto use = [&](const char* device) {
    for (const NodeWork& work : cost.work) {
      if (work.is_product()) return estimate(cost.executable, work, find_device(device)).use;
    }
    throw std::runtime_error("no product");
  };
  for (const char* device : {"t4", "a100", "rtx2080ti"}) {
    EXPECT_EQ(use(device).format, "int4") << device;
    EXPECT_FALSE(use(device).no_unit) << device;
    EXPECT_EQ(*find_device(device).rate("int4") / *find_device(device).rate("int8"),
              device == std::string("rtx2080ti") ? 430.3 / 215.2 : 2.0);
  }
  EXPECT_EQ(use("h100").format, "int8");
  EXPECT_TRUE(use("h100").no_unit);
  EXPECT_EQ(use("v100").format, "fp32");
}

TEST(Roofline, SizesDecideHowMuchIsUsed) {
  const auto use = [](const char* model, const char* device, int64_t batch, int64_t inputs,
                      int64_t classes) {
    return product_of(model, "mixed_bfloat16", device, batch, {inputs}, classes, "fc1").time.use;
  };
  EXPECT_EQ(use("mlp:1024-1024-8", "a100", 4096, 1024, 8).used, 1.0);
  const UnitUse odd = use("mlp:1023-1024-8", "a100", 4096, 1023, 8);
  EXPECT_TRUE(odd.misaligned);
  EXPECT_EQ(odd.used, 0.5);
  // 256 x 512 results are 2 x 4 tiles, and 1024 terms allow two parts of each.
  const UnitUse small = use("mlp:1024-512-8", "a100", 256, 1024, 8);
  EXPECT_TRUE(small.few_tiles);
  EXPECT_DOUBLE_EQ(small.used, 16.0 / 108.0);
  // 100 columns count as 128, 8 rows stay.
  const UnitUse padded = use("mlp:128-100-8", "tpu-v4", 8, 128, 8);
  EXPECT_EQ(padded.padded_to, 128);
  EXPECT_DOUBLE_EQ(padded.used, 100.0 / 128.0);
}

TEST(Roofline, DepthwiseConvolutionsHaveNoMatrices) {
  const Product depthwise = product_of("efficientnet-lite0", "mixed_float16", "v100", 64,
                                       {3, 224, 224}, 1000, "blocks/1/0/conv_dw");
  EXPECT_TRUE(depthwise.time.use.thin);
  EXPECT_EQ(depthwise.work.products, 96);
  EXPECT_EQ(depthwise.time.limit, Limit::memory);
}

TEST(Roofline, ReasonsNameWhatLimits) {
  const auto why = [](const char* plan, const char* device, const char* layer) {
    const auto of = [&](const char* name) {
      const PlanCost cost = cost_of_training("resnet18", name, 64, {3, 224, 224}, 1000);
      for (const LayerTime& each : layer_times(cost, find_device(device)))
        if (each.layer == layer) return each;
      throw std::runtime_error("no such layer");
    };
    return why_no_faster(of("float32"), of(plan), find_device(device));
  };
  EXPECT_EQ(why("mixed_float16", "v100", "layer1/0/conv1"), "");
  EXPECT_THAT(why("mixed_float16", "v100", "conv1"), HasSubstr("not multiples of 16 bytes"));
  EXPECT_THAT(why("mixed_float16", "v100", "bn1"), HasSubstr("memory: moves 0.50 times"));
  EXPECT_THAT(why("mixed_bfloat16", "v100", "layer1/0/conv1"), HasSubstr("no units for this"));
  EXPECT_THAT(why("mixed_float16", "h100", "loss"), HasSubstr("too small"));
  EXPECT_THAT(why("mixed_float16", "v100", "optimizer"), HasSubstr("limited by memory"));
}

TEST(Devices, AreFoundByName) {
  for (const Device& device : devices()) {
    EXPECT_EQ(find_device(std::string(device.name)).title, device.title);
    EXPECT_FALSE(device.source.empty());
    EXPECT_GT(device.memory_gb * device.bandwidth, 0.0);
  }
  EXPECT_THROW(find_device("v10"), Error);
}

}  // namespace
}  // namespace halfscope
