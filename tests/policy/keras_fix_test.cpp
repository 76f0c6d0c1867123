// SPDX-License-Identifier: MIT
// Advice for Keras is the text that keras_fix.py runs with tf_keras and Keras 3.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "analysis/fixes/fixes.h"
#include "core/policy/keras.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

using testing::HasSubstr;
using testing::Not;

LayerInfo layer(const std::string& path, const char* op, std::vector<std::string> inputs,
                const FloatFormat& format) {
  LayerInfo info;
  info.path = path;
  info.op = op;
  info.inputs = std::move(inputs);
  info.read = info.write = format;
  return info;
}

/// A network as tf2onnx exports it, whose loss has the format.
LaneInfo lane(const FloatFormat& loss) {
  LaneInfo info;
  info.name = "keras-mixed_float16";
  info.plan_json = plan_to_json(keras_plan({false, kFp16}));
  info.layers = {layer("net_1/first_1/MatMul", "Gemm", {"input"}, kFp16),
                 layer("net_1/block_1/inner_1/MatMul", "Gemm", {"net_1/first_1/MatMul"}, kFp16),
                 layer("net_1/logits_1/MatMul", "Gemm", {"net_1/block_1/inner_1/MatMul"}, kFp16),
                 layer("loss", "SoftmaxCrossEntropyLoss", {"net_1/logits_1/MatMul"}, loss)};
  return info;
}

TEST(KerasFix, IsTheTextThatRunsWithKeras) {
  const std::string text =
      fix_as(FixTarget::keras, lane(kFp16), PlanEdit::in_fp32({"net_1/block_1/inner_1/MatMul"}));
  const std::string path = std::string(HALFSCOPE_SOURCE_DIR) + "/tests/policy/files/keras_fix.txt";
  if (std::getenv("HALFSCOPE_REWRITE") != nullptr) std::ofstream(path) << text;
  std::ifstream file(path);
  std::ostringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(text, golden.str());
}

TEST(KerasFix, OutputsAreCastWhereTheLossIsInHalf) {
  const PlanEdit inner = PlanEdit::in_fp32({"net_1/block_1/inner_1/MatMul"});
  EXPECT_THAT(fix_as(FixTarget::keras, lane(kFp16), inner), HasSubstr("model.outputs"));
  EXPECT_THAT(fix_as(FixTarget::keras, lane(kFp32), inner), Not(HasSubstr("model.outputs")));
  // The advice itself makes the output float32.
  EXPECT_THAT(fix_as(FixTarget::keras, lane(kFp16), PlanEdit::in_fp32({"net_1/logits_1/MatMul"})),
              Not(HasSubstr("model.outputs")));
  EXPECT_EQ(fix_as(FixTarget::keras, lane(kFp16), {}), "# Nothing to change.\n");
}

}  // namespace
}  // namespace halfscope
