// SPDX-License-Identifier: MIT
// The products that gpu_layer_bench times: all of a step's, each with the result that a sum over
// its operands gives.
#include "bench/layer_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "core/error.h"
#include "core/models/models.h"
#include "core/policy/policy.h"
#include "emulation/backends.h"
#include "gpu/backends.h"

namespace halfscope {
namespace {

using Row = std::tuple<std::string, std::string, Shape, Shape, int>;

Executable step_of(const std::string& model, const Shape& sample, const std::string& plan,
                   int64_t batch, int64_t classes = 10) {
  return lower(build_model(model, batch, sample, classes), preset_plan(plan).value(), {});
}

std::vector<Row> rows_of(const Executable& executable) {
  std::vector<Row> rows;
  for (const LayerProduct& each : layer_products(executable)) {
    rows.emplace_back(each.layer, each.product, each.operands[0], each.operands[1], each.count);
  }
  return rows;
}

TEST(LayerProducts, OfAnMlp) {
  for (const char* plan : {"float32", "mixed_float16", "mixed_bfloat16"}) {
    EXPECT_THAT(
        rows_of(step_of("mlp:6-5-4", {6}, plan, 3, 4)),
        testing::UnorderedElementsAre(
            Row{"fc1", "forward", {3, 6}, {5, 6}, 1}, Row{"fc2", "forward", {3, 5}, {4, 5}, 1},
            Row{"fc2", "grad_weight", {3, 4}, {3, 5}, 1},
            Row{"fc2", "grad_input", {3, 4}, {4, 5}, 1},
            Row{"fc1", "grad_weight", {3, 5}, {3, 6}, 1}))  // its input's gradient is unused
        << plan;
  }
}

TEST(LayerProducts, OfResnet20StandTogether) {
  const std::vector<Row> rows = rows_of(step_of("resnet20", {3, 8, 8}, "mixed_float16", 2));
  int forward = 0, of_input = 0, of_weight = 0;
  for (const Row& row : rows) {
    const int count = std::get<4>(row);
    forward += std::get<1>(row) == "forward" ? count : 0;
    of_input += std::get<1>(row) == "grad_input" ? count : 0;
    of_weight += std::get<1>(row) == "grad_weight" ? count : 0;
  }
  EXPECT_EQ(forward, 20);
  EXPECT_EQ(of_weight, 20);
  EXPECT_EQ(of_input, 19);
  // conv1; 16 to 16; 16 to 32 at half the size; 32 to 32; 32 to 64; 64 to 64; linear.
  EXPECT_EQ(rows.size(), 7u * 3 - 1);
  EXPECT_THAT(
      rows, testing::Contains(Row{"layer1/0/conv1", "forward", {2, 16, 8, 8}, {16, 16, 3, 3}, 6}));
  EXPECT_THAT(
      rows, testing::Contains(Row{"layer2/0/conv1", "forward", {2, 16, 8, 8}, {32, 16, 3, 3}, 1}));
}

// Sums of small multiples of 1/16 are exact in fp32 and fp16, in any order.
TEST(LayerProducts, AreComputedAsTheyAreDefined) {
  constexpr int64_t kBatch = 3, kIn = 6, kOut = 4;
  for (const char* plan : {"float32", "mixed_float16"}) {
    const Executable step = step_of("mlp:6-4", {kIn}, plan, kBatch, kOut);
    const FloatFormat format = std::string(plan) == "float32" ? kFp32 : kFp16;
    for (const LayerProduct& product : layer_products(step)) {
      SCOPED_TRACE(product.product);
      const Executable single = alone(step, product.node);
      const bool forward = product.product == "forward";
      ASSERT_EQ(single.inputs.size(), forward ? 3u : 2u);
      for (const NamedValue& input : single.inputs) {
        EXPECT_EQ(single.graph.value(input.value).format, format);
      }
      EXPECT_EQ(single.graph.value(single.outputs[0].value).format, format);
      // x w^T + b with x [3, 6], w [4, 6], b [4]; dw = dy^T x with dy [3, 4].
      const int64_t elements = forward ? kBatch * kIn + kOut * kIn + kOut + kBatch * kOut
                                       : kBatch * kOut + kBatch * kIn + kOut * kIn;
      EXPECT_EQ(product_bytes(single), elements * (format == kFp32 ? 4 : 2));
      for (const Backend* backend : {&emulation_backend(), &host_executor_backend()}) {
        ProductTimer timer(*backend, single);
        EXPECT_GT(timer.milliseconds(0.01), 0.0);
        const Tensor y = timer.program().read(single.outputs[0].value);
        if (forward) {
          ASSERT_EQ(y.shape, (Shape{kBatch, kOut}));
          for (int64_t i = 0; i < kBatch * kOut; ++i) {
            float sum = product_operand(2, i % kOut);
            for (int64_t k = 0; k < kIn; ++k) {
              sum +=
                  product_operand(0, i / kOut * kIn + k) * product_operand(1, i % kOut * kIn + k);
            }
            EXPECT_EQ(y.data[static_cast<size_t>(i)], sum) << i;
          }
        } else {
          ASSERT_EQ(y.shape, (Shape{kOut, kIn}));
          for (int64_t i = 0; i < kOut * kIn; ++i) {
            float sum = 0.0f;
            for (int64_t n = 0; n < kBatch; ++n) {
              sum += product_operand(0, n * kOut + i / kIn) * product_operand(1, n * kIn + i % kIn);
            }
            EXPECT_EQ(y.data[static_cast<size_t>(i)], sum) << i;
          }
        }
      }
    }
  }
}

TEST(LayerProducts, OperandsAreOfEveryFormat) {
  bool differ = false;
  for (int64_t i = 0; i < 1000; ++i) {
    const float value = product_operand(0, i);
    for (const FloatFormat& format : {kFp16, kBf16, kTf32, kE4m3fn, kE5m2}) {
      EXPECT_EQ(round_to_format(value, format).value, value);
    }
    differ = differ || value != product_operand(1, i);
  }
  EXPECT_TRUE(differ);
}

TEST(LayerProducts, ScaledOperandsAreRefused) {
  const Executable step = step_of("mlp:6-4", {6}, "fp8_current", 3, 4);
  const std::vector<LayerProduct> products = layer_products(step);
  ASSERT_EQ(products.size(), 2u);
  EXPECT_THROW(alone(step, products[0].node), Error);
}

}  // namespace
}  // namespace halfscope
