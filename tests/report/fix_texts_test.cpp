// SPDX-License-Identifier: MIT
// Advice as text to paste: the module, the line of a forward function, and limits of a framework.
// tests/oracle/fix_texts.py executes such texts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "analysis/fixes/fixes.h"
#include "analysis/fixes/places.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

using fixes::ModulePlace;
using fixes::place_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

LayerInfo layer_of(const std::string& path, const std::string& op) {
  LayerInfo layer;
  layer.path = path;
  layer.op = op;
  layer.read = layer.write = *parse_format("fp16");
  return layer;
}

LaneInfo lane_with(const char* preset,
                   std::initializer_list<std::pair<const char*, const char*>> layers) {
  LaneInfo lane;
  lane.name = preset;
  lane.plan_json = plan_to_json(*preset_plan(preset));
  for (const auto& [path, op] : layers) lane.layers.push_back(layer_of(path, op));
  return lane;
}

LaneInfo exported() {
  return lane_with("mixed_float16", {{"layer1.0.conv1", "Conv"},
                                     {"layer1.0.conv2", "Conv"},
                                     {"layer1.0:add", "Add"},
                                     {"layer1.0:add_2", "Add"},
                                     {"fc1", "MatMul"},
                                     {"fc1:bias", "Add"},
                                     {"shared", "Gemm"},
                                     {"shared:call_2", "Gemm"},
                                     {"blocks.0.attn.qkv", "Gemm"},
                                     {"blocks.0.attn:attention/softmax", "Softmax"},
                                     {"relu_3", "Relu"}});
}

TEST(FixPlaces, NamesSayModuleAndCall) {
  const LaneInfo lane = exported();
  const auto at = [&](const char* path) {
    const ModulePlace place = place_of(path, lane);
    return place.module + "|" + place.call + "|" + std::to_string(place.which) + "|" + place.part;
  };
  EXPECT_EQ(at("layer1.0.conv2"), "layer1.0.conv2||1|");
  EXPECT_EQ(at("layer1.0:add"), "layer1.0|add|1|");
  EXPECT_EQ(at("layer1.0:add_2"), "layer1.0|add|2|");
  EXPECT_EQ(at("fc1:bias"), "fc1||1|") << "nothing but fc1 computes it";
  EXPECT_EQ(at("shared:call_2"), "shared||1|") << "wrapped, all calls are";
  EXPECT_EQ(at("blocks.0.attn:attention/softmax"), "blocks.0.attn|attention|1|softmax");
  EXPECT_EQ(at("relu_3"), "|relu|3|");
  LaneInfo with_weights =
      lane_with("float16", {{"conv", "Conv"}, {"conv2", "Conv"}, {"a.b", "Conv"}});
  EXPECT_EQ(place_of("conv2", with_weights).module, "conv2");
  EXPECT_EQ(place_of("conv", with_weights).call, "conv") << "F.conv2d of two tensors";
  with_weights.layers[0].parameters = 10;
  EXPECT_EQ(place_of("conv", with_weights).module, "conv");
  const LaneInfo scopes = lane_with("mixed_float16", {{"layer1/0/conv1", "Conv"}});
  EXPECT_EQ(place_of("layer1/0/conv1", scopes).module, "layer1.0.conv1");
}

TEST(FixTexts, PyTorchWrapsModulesAndPointsAtCalls) {
  PlanEdit edit = PlanEdit::in_fp32({"layer1.0.conv2", "layer1.0:add_2", "relu_3", "fc1:bias"});
  edit.set_loss_scale(1024.0);
  const std::string text = fix_as(FixTarget::pytorch, exported(), edit);
  EXPECT_THAT(text, HasSubstr("KEEP_FP32 = [  # as in model.named_modules()\n"
                              "    \"layer1.0.conv2\",\n    \"fc1\",\n]\n"));
  EXPECT_THAT(text, HasSubstr("# layer1.0:add_2: compute the 2nd add in the forward of layer1.0 in "
                              "fp32:\n#     with torch.autocast(\"cuda\", enabled=False):\n"
                              "#         y = a.float() + b.float()\n"));
  EXPECT_THAT(text, HasSubstr("the 3rd relu in the forward of the model"));
  EXPECT_THAT(text, HasSubstr("# If relu_3 is a module of your model, add it to KEEP_FP32"));
  EXPECT_THAT(text, HasSubstr("torch.amp.GradScaler(\"cuda\", init_scale=1024)"));
  EXPECT_THAT(text, Not(HasSubstr(".float()  # its weights"))) << "autocast keeps fp32 weights";
}

TEST(FixTexts, PyTorchKeepsTheRestOfAHalfModelAsItIs) {
  const LaneInfo lane = lane_with("float16", {{"a.fc", "Gemm"}, {"a.norm", "LayerNormalization"}});
  const std::string text = fix_as(FixTarget::pytorch, lane, PlanEdit::in_fp32({"a.norm"}));
  EXPECT_THAT(text, HasSubstr("return cast(args, torch.float16), "));
  EXPECT_THAT(text, HasSubstr("    model.get_submodule(name).float()"));
  EXPECT_THAT(fix_as(FixTarget::pytorch, lane, PlanEdit::of(FixKind::weights_fp32)),
              HasSubstr("model.float()  # fp32 master weights"));
}

TEST(FixTexts, ConstantsHaveTheNumbersOfTheFormat) {
  PlanEdit edit = PlanEdit::of(FixKind::constant, "layer1.0:add");
  EXPECT_THAT(fix_as(FixTarget::pytorch, exported(), edit),
              HasSubstr("In fp16, these are -65504 and 6.10351562e-05."));
  edit.changes[0].value = -1e4;
  EXPECT_THAT(fix_as(FixTarget::pytorch, exported(), edit), HasSubstr("use the constant -10000."));
}

TEST(FixTexts, RangesAndIntegersArePointedAt) {
  PlanEdit edit = PlanEdit::of(FixKind::clamp, "fc1");
  edit.add({.kind = FixKind::prescale, .path = "layer1.0:add", .value = 0.25});
  edit.add({.kind = FixKind::keep_integer, .path = "relu_3", .nodes = {"shared"}});
  edit.add({.kind = FixKind::schedule_fp32});
  const std::string text = fix_as(FixTarget::pytorch, exported(), edit);
  EXPECT_THAT(text, HasSubstr("# fc1: clamp its output: x = x.clamp("));
  EXPECT_THAT(text, HasSubstr("# layer1.0:add: scale its operands so that its output is "
                              "multiplied by 0.25."));
  EXPECT_THAT(text, HasSubstr("multiply it by 4"));
  EXPECT_THAT(text, HasSubstr("# relu_3: compute this in torch.int64"));
  EXPECT_THAT(text, HasSubstr("# Compute the learning rate in Python floats"));
  EXPECT_THAT(text, Not(HasSubstr("has no setting")));
}

TEST(FixTexts, EachSaysWhatItCannotDo) {
  PlanEdit edit = PlanEdit::of(FixKind::scale_round_up);
  for (FixTarget target : {FixTarget::pytorch, FixTarget::torchao, FixTarget::transformer_engine,
                           FixTarget::keras, FixTarget::tensorflow}) {
    EXPECT_THAT(fix_as(target, exported(), edit),
                HasSubstr(" has no setting for this change: Round scales up.\n"));
    EXPECT_EQ(fix_as(target, exported(), {}), "# Nothing to change.\n");
  }
  edit = PlanEdit::of(FixKind::store_fp32, "fc1");
  EXPECT_THAT(fix_as(FixTarget::pytorch, exported(), edit),
              HasSubstr("# Only the outputs of fc1 need fp32."));
}

TEST(FixTexts, TransformerEngineKeepsModulesOutOfFp8) {
  const PlanEdit edit = PlanEdit::in_fp32({"layer1.0.conv2", "layer1.0:add_2", "fc1:bias"});
  const std::string text = fix_as(FixTarget::transformer_engine, exported(), edit);
  EXPECT_THAT(text, HasSubstr("KEEP_OUT_OF_FP8 = [  # as in model.named_modules()\n"
                              "    \"layer1.0.conv2\",\n    \"fc1\",\n]\n"));
  EXPECT_THAT(text, HasSubstr("    DisableFP8Layer:\n      enabled: True\n"));
  EXPECT_THAT(text, HasSubstr("# layer1.0:add_2: Transformer Engine never quantizes the 2nd add in "
                              "the forward of layer1.0.\n"));
}

TEST(FixTexts, TensorFlowsListsAreByOperatorType) {
  const std::string text =
      fix_as(FixTarget::tensorflow, exported(), PlanEdit::in_fp32({"layer1.0.conv2"}));
  EXPECT_THAT(text, HasSubstr("DENIED = \"Conv2D,Conv2DBackpropFilter,Conv2DBackpropInput\"\n"));
  EXPECT_THAT(text, HasSubstr("# Warning: these lists apply to operator types."));
  EXPECT_THAT(text, HasSubstr("layer1.0.conv1"));
  EXPECT_THAT(text, Not(HasSubstr("blocks.0")));
}

TEST(FixTexts, TensorFlowsDenialSpreads) {
  LaneInfo lane = lane_with(
      "mixed_float16", {{"conv1", "Conv"}, {"shortcut", "Add"}, {"mix", "Mul"}, {"conv2", "Conv"}});
  const std::vector<std::vector<std::string>> inputs{
      {"input"}, {"conv1"}, {"shortcut", "conv1"}, {"mix"}};
  for (size_t i = 0; i < inputs.size(); ++i) lane.layers[i].inputs = inputs[i];
  std::string text = fix_as(FixTarget::tensorflow, lane, PlanEdit::in_fp32({"shortcut"}));
  for (size_t at = 0; (at = text.find("\n# ", at)) != std::string::npos;) text.replace(at, 3, " ");
  EXPECT_THAT(text, HasSubstr("DENIED = \"Add,AddV2\"\n"));
  EXPECT_THAT(text, HasSubstr("and do not need it: mix."));
  EXPECT_THAT(text,
              HasSubstr("Without \"DENYLIST_ADD\" in the loop, denial does not spread, and no "
                        "other layer moves."));
  EXPECT_THAT(text, Not(HasSubstr("conv2")));
}

TEST(FixTexts, ThePlanIsTheEditedOne) {
  const LaneInfo lane = exported();
  const PlanEdit edit = PlanEdit::in_fp32({"layer1.0.conv2"});
  const Plan plan = plan_from_json(fix_as(FixTarget::plan, lane, edit));
  EXPECT_EQ(resolve(plan, "layer1.0.conv2", "Conv").write, kFp32);
  EXPECT_EQ(resolve(plan, "layer1.0.conv1", "Conv").write, *parse_format("fp16"));
}

TEST(FixTexts, NamesCannotEndACommentOrAString) {
  for (const std::string path : {"a.b\"\nimport shutil", "a:b\nimport shutil\n"}) {
    const LaneInfo lane = lane_with("mixed_float16", {{path.c_str(), "Erf"}, {"a.c", "Gemm"}});
    for (FixTarget target : {FixTarget::pytorch, FixTarget::torchao, FixTarget::transformer_engine,
                             FixTarget::keras, FixTarget::tensorflow}) {
      EXPECT_THAT(fix_as(target, lane, PlanEdit::in_fp32({path})),
                  Not(HasSubstr("\nimport shutil\n")))
          << fix_target_name(target);
    }
  }
}

}  // namespace
}  // namespace halfscope
