// SPDX-License-Identifier: MIT
// The note of `convert --typed` about its file: none if the file matches the plan; otherwise the
// node and output that differ.
#include "cli/tasks/exported_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/tasks/run_input.h"
#include "core/models/models.h"
#include "core/onnx/export.h"
#include "core/policy/policy.h"
#include "core/train/lane_setup.h"

namespace halfscope {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class TypedCheckTest : public testing::Test {
 protected:
  /// A file typed by one plan, checked against the lane of another.
  TypedCheck check(const Plan& of_file, const Plan& of_lane) const {
    const std::string bytes =
        onnx_bytes(lower_inference(model_, of_file), "net", weights_, ShownPlan::types);
    const OnnxImport file =
        parse_onnx({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "net.onnx", ".");
    return check_typed_file(file, lower_inference(model_, of_lane), weights_,
                            random_inputs(model_, 4, 4, 7));
  }

  Model model_ = build_network("mlp:16-12-5", 4, {16}, 5);
  NamedTensors weights_ = starting_weights(model_, 3, {});
};

TEST_F(TypedCheckTest, FindsNothingInAFileOfThePlan) {
  for (const char* name : {"float32", "mixed_float16", "bfloat16"}) {
    const TypedCheck result = check(*preset_plan(name), *preset_plan(name));
    EXPECT_THAT(result.differences, IsEmpty()) << result.summary();
    EXPECT_EQ(result.outputs, 4 * 5);
    EXPECT_EQ(result.max_ulps, 0);
    EXPECT_GE(result.nodes, 3);
  }
}

TEST_F(TypedCheckTest, NamesTheNodeWhoseFormatIsAnother) {
  Plan with_island = *preset_plan("float16");
  keep_fp32(with_island, "fc1");
  const TypedCheck result = check(*preset_plan("float16"), with_island);
  EXPECT_THAT(result.summary(), HasSubstr("fc1 writes fp32, in the file fp16"));
}

TEST_F(TypedCheckTest, NamesTheOutputThatIsOff) {
  // In fp32 the same formats are written, but the operands are rounded.
  Plan rounded = *preset_plan("float32");
  rounded.rules.push_back({.path = "fc1", .op = "", .read = *parse_format("e4m3fn")});
  const TypedCheck result = check(rounded, *preset_plan("float32"));
  EXPECT_THAT(result.summary(), HasSubstr("output logits differs ("));
  EXPECT_THAT(result.summary(), HasSubstr("%); the first result that differs is from fc1 ("));
  EXPECT_THAT(result.summary(), Not(HasSubstr("NaN")));
}

}  // namespace
}  // namespace halfscope
